package passthrough

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"strings"
)

// boundary follows the bytes of a watch. It knows where the events end, and which are bookmarks:
//
//	JSON      {"type":"BOOKMARK", … }⏎
//	protobuf  length, 4 bytes, big-endian ▌ 0a 08 "BOOKMARK" …
//
// Of other encodings, and of compressed bytes, it never says that an event has ended.
type boundary struct {
	bookmark string // how a bookmark begins; "" if events can't be told apart
	frames   bool   // each event has its length before it; otherwise it is a line

	inside  bool // within an event
	covered bool // the last event was a bookmark, or there was none

	start  [len(jsonBookmark)]byte // of the event
	begun  int                     // bytes of start
	length [4]byte                 // of a frame
	got    int                     // bytes of length
	left   int                     // bytes of the frame that have not been read
}

const (
	jsonBookmark     = `{"type":"BOOKMARK"`
	protobufBookmark = "\x0a\x08BOOKMARK"
)

// newBoundary returns the boundary of the watch that is the body of a response with this header.
func newBoundary(h http.Header) boundary {
	contentType := h.Get("Content-Type")
	switch {
	case h.Get("Content-Encoding") != "": // upstream is another watchfan
	case strings.HasPrefix(contentType, "application/json"):
		return boundary{bookmark: jsonBookmark, covered: true}
	case strings.HasPrefix(contentType, "application/vnd.kubernetes.protobuf;stream=watch"):
		return boundary{bookmark: protobufBookmark, covered: true, frames: true}
	}
	return boundary{}
}

// read notes the next bytes of the watch. It returns how many of them end with a bookmark; 0 for
// none.
func (b *boundary) read(p []byte) (bookmark int) {
	for at := 0; at < len(p) && b.bookmark != ""; {
		if b.frames {
			at += b.readFrame(p[at:])
		} else {
			at += b.readLine(p[at:])
		}
		if !b.inside && b.covered {
			bookmark = at
		}
	}
	return bookmark
}

// readLine reads up to the end of a line, and returns the number of bytes.
func (b *boundary) readLine(p []byte) int {
	end := bytes.IndexByte(p, '\n')
	if end < 0 {
		return b.note(p)
	}
	b.note(p[:end])
	b.end()
	return end + 1
}

// readFrame reads up to the end of a frame, or of its length. It returns the number of bytes.
func (b *boundary) readFrame(p []byte) (n int) {
	if b.got < len(b.length) {
		b.inside = true
		n = copy(b.length[b.got:], p)
		b.got += n
		b.left = int(binary.BigEndian.Uint32(b.length[:]))
	} else {
		n = b.note(p[:min(b.left, len(p))])
		b.left -= n
	}
	if b.got == len(b.length) && b.left == 0 {
		b.got = 0
		b.end()
	}
	return n
}

// note notes bytes of an event, and returns their number.
func (b *boundary) note(p []byte) int {
	b.inside = true
	b.begun += copy(b.start[b.begun:], p)
	return len(p)
}

// end notes the end of an event.
func (b *boundary) end() {
	b.covered = strings.HasPrefix(string(b.start[:b.begun]), b.bookmark)
	b.inside, b.begun = false, 0
}

// whole reports whether only whole events have been read.
func (b *boundary) whole() bool { return b.bookmark != "" && !b.inside }

// resumes reports whether a client that ends here resumes without a loss: behind a bookmark, or
// where it began. Behind another event it may miss one with the same resourceVersion.
func (b *boundary) resumes() bool { return b.whole() && b.covered }
