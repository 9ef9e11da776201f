package passthrough

import (
	"bytes"
	"encoding/binary"
	"net/http"
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
	f.Add("application/json", []byte("{}\n{}\n{"), 2)
	f.Add("application/cbor-seq", []byte("\n"), 1)
	f.Fuzz(func(t *testing.T, contentType string, watch []byte, piece int) {
		b := newBoundary(http.Header{"Content-Type": {contentType}})
		piece = max(1, piece)
		for read := 0; ; {
			if got, want := b.whole(), wholeEvents(contentType, watch[:read]); got != want {
				t.Fatalf("%s: after %q: got %v, want %v", contentType, watch[:read], got, want)
			}
			if read == len(watch) {
				return
			}
			next := min(piece, len(watch)-read)
			b.read(watch[read : read+next])
			read += next
		}
	})
}

// wholeEvents reports whether watch is a series of whole events.
func wholeEvents(contentType string, watch []byte) bool {
	switch {
	case bytes.HasPrefix([]byte(contentType), []byte("application/json")):
		return len(watch) == 0 || watch[len(watch)-1] == '\n'
	case bytes.HasPrefix([]byte(contentType), []byte("application/vnd.kubernetes.protobuf;stream=watch")):
		for len(watch) > 0 {
			if len(watch) < 4 {
				return false
			}
			length := uint64(binary.BigEndian.Uint32(watch))
			if watch = watch[4:]; uint64(len(watch)) < length {
				return false
			}
			watch = watch[length:]
		}
		return true
	}
	return false
}
