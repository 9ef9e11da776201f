package passthrough

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"slices"
	"strings"
)

// place is a place in a watch, between two of its events. It says whether a client that ends there
// resumes without a loss.
type place struct {
	// ordered says that the events come in the order of their resourceVersions: the watch began behind
	// one, or a bookmark has ended its initial events.
	ordered bool
	covered bool // the last event was a bookmark, or there was none behind the resourceVersion
	alone   bool // the last event was a change that no other shares its resourceVersion with
}

// beginning returns the place before the first event of a watch. ordered says that the watch begins behind a
// resourceVersion, where its client resumes.
func beginning(ordered bool) place { return place{ordered: ordered, covered: ordered} }

// How bookmarks and changes begin, in JSON and in protobuf. Deletions are not there, because several of
// them may share a resourceVersion, as when a lease of etcd ends.
var (
	bookmarks = []string{`{"type":"BOOKMARK"`, "\x0a\x08BOOKMARK"}
	changes   = []string{`{"type":"ADDED"`, `{"type":"MODIFIED"`, "\x0a\x05ADDED", "\x0a\x08MODIFIED"}
)

// mostStart is as long as the longest of these.
const mostStart = len(`{"type":"MODIFIED"`)

// pass goes on behind an event that begins with start.
func (at *place) pass(start string) {
	begins := func(with string) bool { return strings.HasPrefix(start, with) }
	at.covered = slices.ContainsFunc(bookmarks, begins)
	at.alone = slices.ContainsFunc(changes, begins)
	at.ordered = at.ordered || at.covered
}

// resumes reports whether a client that ends here resumes without a loss: behind a bookmark, behind the
// resourceVersion where it began, or behind a change that is alone. Initial events come in no order, so a
// client can't resume within them.
func (at *place) resumes() bool { return at.covered || at.ordered && at.alone }

// boundary follows the bytes of a watch. It knows where the events end:
//
//	JSON      {"type":"BOOKMARK", … }⏎
//	protobuf  length, 4 bytes, big-endian ▌ 0a 08 "BOOKMARK" …
//
// Of other encodings, and of compressed bytes, it never says that an event has ended.
type boundary struct {
	place
	known  bool // events can be told apart
	frames bool // each event has its length before it; otherwise it is a line
	inside bool // within an event

	start  [mostStart]byte // of the event
	begun  int             // bytes of start
	length [4]byte         // of a frame
	got    int             // bytes of length
	left   int             // bytes of the frame that have not been read
}

// newBoundary returns the boundary of the watch that is the body of a response with this header.
// ordered says that it begins behind a resourceVersion.
func newBoundary(h http.Header, ordered bool) boundary {
	contentType := h.Get("Content-Type")
	b := boundary{place: beginning(ordered)}
	switch {
	case h.Get("Content-Encoding") != "": // upstream is another watchfan
	case strings.HasPrefix(contentType, "application/json"):
		b.known = true
	case strings.HasPrefix(contentType, "application/vnd.kubernetes.protobuf;stream=watch"):
		b.known, b.frames = true, true
	}
	return b
}

// read notes the next bytes of the watch. It returns how many of them end where a client resumes; 0 for
// none.
func (b *boundary) read(p []byte) (resumes int) {
	for at := 0; at < len(p) && b.known; {
		if b.frames {
			at += b.readFrame(p[at:])
		} else {
			at += b.readLine(p[at:])
		}
		if b.resumes() {
			resumes = at
		}
	}
	return resumes
}

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

func (b *boundary) end() {
	b.pass(string(b.start[:b.begun]))
	b.inside, b.begun = false, 0
}

// whole reports whether only whole events have been read.
func (b *boundary) whole() bool { return b.known && !b.inside }

// resumes reports whether a client that ends here resumes without a loss.
func (b *boundary) resumes() bool { return b.whole() && b.place.resumes() }
