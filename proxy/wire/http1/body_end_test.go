package http1

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
)

// renamed is fasthttp's stream in a version whose field has another name, which tells nothing, and retyped one whose field has another type.
type (
	renamed struct {
		io.Reader
		ended bool
	}
	retyped struct {
		io.Reader
		eof int
	}
)

// A body in chunks of which nobody can tell whether that was all of it is not sent on as a whole one.
func TestBodyEndUnknown(t *testing.T) {
	for name, stream := range map[string]io.Reader{
		"another type":   bytes.NewReader([]byte(`{"a":`)),
		"another name":   &renamed{bytes.NewReader([]byte(`{"a":`)), true},
		"another kind":   &retyped{bytes.NewReader([]byte(`{"a":`)), 1},
		"not a struct":   io.LimitReader(bytes.NewReader([]byte(`{"a":`)), 3),
		"no stream left": notEvenAStruct(5),
	} {
		c, other := net.Pipe()
		t.Cleanup(func() { c.Close(); other.Close() })
		b := &requestBody{conn: c, length: chunkedLength, stream: stream}
		if got, err := io.ReadAll(b); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %q, %v; want %v", name, got, err, io.ErrUnexpectedEOF)
		}
		if b.atEnd.Load() || b.Release() {
			t.Errorf("%s: the body is whole", name)
		}
	}
}

type notEvenAStruct int

func (notEvenAStruct) Read([]byte) (int, error) { return 0, io.EOF }

// A body of known length is whole when that many bytes have come, and needs nothing of fasthttp's to tell.
func TestBodyEndOfKnownLength(t *testing.T) {
	for _, length := range []int{4, 5, 6} {
		c, other := net.Pipe()
		t.Cleanup(func() { c.Close(); other.Close() })
		b := &requestBody{conn: c, length: length, stream: bytes.NewReader([]byte("12345"))}
		_, err := io.ReadAll(b)
		if whole := err == nil; whole != (length == 5) {
			t.Errorf("5 bytes of %d: %v", length, err)
		}
	}
}
