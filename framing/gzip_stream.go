package framing

import (
	"iter"
	"strconv"
	"sync"
)

// GzipStart is the chunk that opens a gzip member.
const GzipStart = "a\r\n" + gzipOpening + crlf

// GzipChunk is one event, or several in a row, compressed once for any number of gzip members: a
// complete HTTP/1.1 chunk. It is immutable.
type GzipChunk struct {
	// Plain is the checksum of the events as they are in an uncompressed stream.
	Plain Checksum

	bytes []byte
}

// Bytes returns the chunk. Read only.
func (c GzipChunk) Bytes() []byte { return c.bytes }

// At gzipStreamLevel a pod of 4 to 16 KB is compressed within 25 to 40 µs, to 10 % less than at
// levels 1 to 4 (BenchmarkGzipFrames of commit 4ba589e).
const gzipStreamLevel = 5

// GzipFrames compresses frames of one stream, one after the other. If before is the zero Frame, the
// result may be placed anywhere in a member. Otherwise it may only come right after before, because
// it refers to before's last 32 KiB. Then the bytes that an update of an object has in common with
// the previous one cost next to nothing.
func GzipFrames(before Frame, frames ...Frame) GzipChunk {
	buf := scratch.Get().(*[2][]byte)
	defer scratch.Put(buf)
	var dictionary []byte
	if len(before.Body) > 0 {
		buf[1] = before.Payload(buf[1][:0])
		dictionary = buf[1][max(0, len(buf[1])-window):]
	}
	blocks, plain := appendDeflated(buf[0][:0], gzipStreamLevel, dictionary, payloads(frames))
	buf[0] = blocks
	c := GzipChunk{plain, newChunk(blocks)}
	for i := range buf {
		if cap(buf[i]) > maxScratch {
			buf[i] = nil
		}
	}
	return c
}

// window is how far back blocks may refer (RFC 1951, section 2).
const window = 32 << 10

// scratch are buffers for blocks and for a dictionary.
var scratch = sync.Pool{New: func() any { return new([2][]byte) }}

const maxScratch = 1 << 20

// GzipStored is GzipFrames for a small frame that only one client is sent. It only copies.
func GzipStored(f Frame) GzipChunk {
	d := Stored(f.Payload(nil))
	return GzipChunk{d.plain, newChunk(d.blocks, []byte(emptyBlock))}
}

// emptyBlock is an empty stored block. Decoders, Go's among them, may hold back what they have
// decompressed until they see one.
const emptyBlock = "\x00\x00\x00\xff\xff"

// GzipEnd returns the chunk that ends a member of c's bytes. It is the caller's.
func (c Checksum) GzipEnd() []byte { return newChunk(c.appendTrailer(nil)) }

// Checksum returns the checksum of the event without its chunk framing. It takes about 0.1 ns for
// each byte.
func (f Frame) Checksum() Checksum {
	first, rest := f.payload()
	return checksum(first).update(rest)
}

// payloads returns the bytes of frames without their chunk framing.
func payloads(frames []Frame) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, f := range frames {
			if first, rest := f.payload(); !yield(first) || !yield(rest) {
				return
			}
		}
	}
}

// newChunk returns parts, which are not empty, as an HTTP/1.1 chunk (RFC 9112, section 7.1).
func newChunk(parts ...[]byte) []byte {
	n := lengthOf(parts)
	chunk := strconv.AppendInt(make([]byte, 0, n+16), int64(n), 16)
	chunk = append(chunk, crlf...)
	for _, part := range parts {
		chunk = append(chunk, part...)
	}
	return append(chunk, crlf...)
}
