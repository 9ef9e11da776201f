package passthrough

import (
	"encoding/binary"
	"net/http"
	"strings"
)

// boundary follows the bytes of a watch and knows where its events end. JSON events are lines.
// Protobuf events are frames:
//
//	length, 4 bytes, big-endian  ▌event
//
// Of other encodings, and of compressed bytes, it never says that an event has ended.
type boundary struct {
	lines, frames bool

	last byte    // the last byte read; of lines
	head [4]byte // a frame's length, as far as it has been read
	got  int     // how many bytes of head
	left uint32  // the bytes of the event that have not been read
}

// newBoundary returns the boundary of the watch that is the body of a response with this header.
func newBoundary(h http.Header) boundary {
	if h.Get("Content-Encoding") != "" { // upstream is another watchfan
		return boundary{}
	}
	contentType := h.Get("Content-Type")
	return boundary{
		lines:  strings.HasPrefix(contentType, "application/json"),
		frames: strings.HasPrefix(contentType, "application/vnd.kubernetes.protobuf;stream=watch"),
		last:   '\n',
	}
}

// read notes the next bytes of the watch.
func (b *boundary) read(p []byte) {
	if len(p) > 0 {
		b.last = p[len(p)-1]
	}
	for b.frames && len(p) > 0 {
		if b.left > 0 {
			n := min(b.left, uint32(min(len(p), 1<<30)))
			b.left -= n
			p = p[n:]
			continue
		}
		n := copy(b.head[b.got:], p)
		p = p[n:]
		if b.got += n; b.got == len(b.head) {
			b.left, b.got = binary.BigEndian.Uint32(b.head[:]), 0
		}
	}
}

// whole reports whether only whole events have been read.
func (b *boundary) whole() bool {
	return b.lines && b.last == '\n' || b.frames && b.got == 0 && b.left == 0
}
