package passthrough

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// FuzzBoundary compares the boundary of a watch, read in pieces, with a slow reading of all bytes
// so far.
func FuzzBoundary(f *testing.F) {
	frame := func(event string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...)
	}
	f.Add("application/vnd.kubernetes.protobuf;stream=watch", append(frame("one"), frame("three")...), 5)
	f.Add("application/vnd.kubernetes.protobuf;stream=watch", append(frame(""), 0, 0), 1)
	f.Add("application/vnd.kubernetes.protobuf", frame("a list"), 3)
	f.Add("application/vnd.kubernetes.protobuf;stream=watch", append(frame("one"), frame(bookmarks[1]+"rest")...), 5)
	f.Add("application/json", []byte("{}\n{}\n{"), 2)
	f.Add("application/json", []byte("{}\n"+bookmarks[0]+"}\n{}\n"), 9)
	f.Add("application/json", []byte(changes[0]+"}\n"+bookmarks[0]+"}\n"+changes[1]+"}\n{\"type\":\"DELETED\"}\n"), 30)
	f.Add("application/cbor-seq", []byte("\n"), 1)
	f.Fuzz(func(t *testing.T, contentType string, watch []byte, piece int) {
		for _, ordered := range []bool{false, true} {
			testBoundary(t, contentType, watch, max(1, piece), ordered)
		}
	})
}

// testBoundary reads a watch in pieces.
func testBoundary(t *testing.T, contentType string, watch []byte, piece int, ordered bool) {
	b := newBoundary(http.Header{"Content-Type": {contentType}}, ordered)
	for read := 0; ; {
		events, whole := wholeEvents(contentType, watch[:read])
		if got := b.whole(); got != whole {
			t.Fatalf("%s: after %q: got %v, want %v", contentType, watch[:read], got, whole)
		}
		if got, want := b.resumes(), whole && resumes(events, ordered); got != want {
			t.Fatalf("%s: after %q: resumes %v, want %v", contentType, watch[:read], got, want)
		}
		if read == len(watch) {
			return
		}
		next := min(piece, len(watch)-read)
		if at := b.read(watch[read : read+next]); at > 0 {
			if events, whole := wholeEvents(contentType, watch[:read+at]); !whole || !resumes(events, ordered) {
				t.Fatalf("%s: a client resumes behind %q", contentType, watch[:read+at])
			}
		}
		read += next
	}
}

// resumes reports whether a client resumes behind these events without a loss.
func resumes(events [][]byte, ordered bool) bool {
	begins := func(event []byte, with []string) bool {
		return slices.ContainsFunc(with, func(w string) bool { return bytes.HasPrefix(event, []byte(w)) })
	}
	if len(events) == 0 {
		return ordered
	}
	if begins(events[len(events)-1], bookmarks) {
		return true
	}
	ordered = ordered || slices.ContainsFunc(events, func(e []byte) bool { return begins(e, bookmarks) })
	return ordered && begins(events[len(events)-1], changes)
}

// wholeEvents reports whether watch is a series of whole events, and returns them.
func wholeEvents(contentType string, watch []byte) (events [][]byte, whole bool) {
	switch {
	case strings.HasPrefix(contentType, "application/json"):
		lines := bytes.SplitAfter(watch, []byte("\n"))
		return lines[:len(lines)-1], len(lines[len(lines)-1]) == 0
	case strings.HasPrefix(contentType, "application/vnd.kubernetes.protobuf;stream=watch"):
		for len(watch) > 0 {
			if len(watch) < 4 {
				return nil, false
			}
			length := uint64(binary.BigEndian.Uint32(watch))
			if watch = watch[4:]; uint64(len(watch)) < length {
				return nil, false
			}
			events, watch = append(events, watch[:length]), watch[length:]
		}
		return events, true
	}
	return nil, false
}
