package exchange

import "sync"

// Bodies of responses are copied through buffers of two sizes, because a client that does not read
// keeps one. Most responses are short.
const shortCopy, longCopy = 4 << 10, 32 << 10

var shortBuffers, longBuffers sync.Pool // of *[]byte

// CopyBufferSize returns the size of the buffer for a body of some length; -1 is any length.
func CopyBufferSize(length int64) int {
	if 0 <= length && length < shortCopy {
		return shortCopy
	}
	return longCopy
}

func copyBuffers(size int) *sync.Pool {
	if size == shortCopy {
		return &shortBuffers
	}
	return &longBuffers
}

// TakeCopyBuffer returns a buffer for a body of some length. The caller gives it back.
func TakeCopyBuffer(length int64) *[]byte {
	size := CopyBufferSize(length)
	if buf, ok := copyBuffers(size).Get().(*[]byte); ok {
		return buf
	}
	buf := make([]byte, size)
	return &buf
}

// GiveCopyBuffer gives a buffer back, which must not be used afterwards.
func GiveCopyBuffer(buf *[]byte) { copyBuffers(len(*buf)).Put(buf) }
