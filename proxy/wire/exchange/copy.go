package exchange

import (
	"errors"
	"io"
	"sync"
)

// Bodies of responses are copied through buffers of two sizes, because a client that does not read
// keeps one. Most responses are short.
const shortCopy, longCopy = 4 << 10, 32 << 10

var shortBuffers, longBuffers = sync.Pool{New: newBuffer(shortCopy)}, sync.Pool{New: newBuffer(longCopy)}

func newBuffer(size int) func() any {
	return func() any {
		buf := make([]byte, size)
		return &buf
	}
}

// CopyBufferSize returns the size of the buffer for a body of some length; -1 is any length.
func CopyBufferSize(length int64) int {
	if 0 <= length && length < shortCopy {
		return shortCopy
	}
	return longCopy
}

var errLength = errors.New("the response's body is not as long as its head says")

// Copy gives a body of some length, -1 is any, to send: what each read of from brings, at once. last says that
// nothing follows p, which may then be empty. send must not keep p. A body that is shorter or longer is an error,
// because a client takes what follows for a part of it, or a part for what follows.
func Copy(from io.Reader, length int64, send func(p []byte, last bool) error) error {
	pool := &longBuffers
	if CopyBufferSize(length) == shortCopy {
		pool = &shortBuffers
	}
	buf := pool.Get().(*[]byte)
	defer pool.Put(buf)
	for total := int64(0); ; {
		n, err := from.Read(*buf)
		last := err == io.EOF
		if total += int64(n); length >= 0 && (total > length || last && total < length) {
			return errLength
		}
		if n > 0 || last {
			if err := send((*buf)[:n], last); err != nil || last {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}
