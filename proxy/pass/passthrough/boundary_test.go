package passthrough

import (
	"bytes"
	"encoding/binary"
	"net/http"
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
	f.Add("application/vnd.kubernetes.protobuf;stream=watch", append(frame("one"), frame(protobufBookmark+"rest")...), 5)
	f.Add("application/json", []byte("{}\n{}\n{"), 2)
	f.Add("application/json", []byte("{}\n"+jsonBookmark+"}\n{}\n"), 9)
	f.Add("application/cbor-seq", []byte("\n"), 1)
	f.Fuzz(func(t *testing.T, contentType string, watch []byte, piece int) {
		b := newBoundary(http.Header{"Content-Type": {contentType}})
		piece = max(1, piece)
		for read := 0; ; {
			last, want := wholeEvents(contentType, watch[:read])
			if got := b.whole(); got != want {
				t.Fatalf("%s: after %q: got %v, want %v", contentType, watch[:read], got, want)
			}
			bookmark := read == 0 || bytes.HasPrefix(last, []byte(b.bookmark))
			if got := b.resumes(); got != (want && bookmark) {
				t.Fatalf("%s: after %q: resumes %v, want %v", contentType, watch[:read], got, want && bookmark)
			}
			if read == len(watch) {
				return
			}
			next := min(piece, len(watch)-read)
			if at := b.read(watch[read : read+next]); at > 0 {
				last, whole := wholeEvents(contentType, watch[:read+at])
				if !whole || !bytes.HasPrefix(last, []byte(b.bookmark)) {
					t.Fatalf("%s: %q ends with a bookmark", contentType, watch[:read+at])
				}
			}
			read += next
		}
	})
}

// wholeEvents reports whether watch is a series of whole events, and returns the last one.
func wholeEvents(contentType string, watch []byte) (last []byte, whole bool) {
	switch {
	case strings.HasPrefix(contentType, "application/json"):
		lines := bytes.SplitAfter(watch, []byte("\n"))
		if len(lines) > 1 {
			last = lines[len(lines)-2]
		}
		return last, len(lines[len(lines)-1]) == 0
	case strings.HasPrefix(contentType, "application/vnd.kubernetes.protobuf;stream=watch"):
		for len(watch) > 0 {
			if len(watch) < 4 {
				return nil, false
			}
			length := uint64(binary.BigEndian.Uint32(watch))
			if watch = watch[4:]; uint64(len(watch)) < length {
				return nil, false
			}
			last, watch = watch[:length], watch[length:]
		}
		return last, true
	}
	return nil, false
}
