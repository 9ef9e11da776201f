package load

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// zipped compresses texts, each followed by a flush, or as a member of its own.
func zipped(t testing.TB, members bool, texts ...string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for i, text := range texts {
		if members && i > 0 {
			z.Close()
			z.Reset(&b)
		}
		io.WriteString(z, text)
		if err := z.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	z.Close()
	return b.Bytes()
}

// inflateAll feeds stream in pieces of at most size bytes.
func inflateAll(stream []byte, size int) (out []byte, err error) {
	var z inflater
	for len(stream) > 0 && err == nil {
		n := min(size, len(stream))
		var plain []byte
		plain, err = z.feed(stream[:n])
		out = append(out, plain...)
		stream = stream[n:]
	}
	return out, err
}

// TestInflater: the cuts of a stream do not change its content, across flushes that refer to
// earlier ones, and across members.
func TestInflater(t *testing.T) {
	var texts []string
	for i := range 40 {
		pad := strings.Repeat("pad ", i*50)
		texts = append(texts, fmt.Sprintf(`{"type":"MODIFIED","object":{"n":%d,"pad":"%s"}}`+"\n", i, pad))
	}
	want := strings.Join(texts, "")
	for _, members := range []bool{false, true} {
		stream := zipped(t, members, texts...)
		for _, size := range []int{1, 7, 100, 4096, len(stream)} {
			got, err := inflateAll(stream, size)
			if err != nil || string(got) != want {
				t.Errorf("members=%t, pieces of %d: got %d bytes, %v, want %d", members, size, len(got), err, len(want))
			}
		}
	}
}

func FuzzInflater(f *testing.F) {
	f.Add(zipped(f, false, "a", "b"), 3)
	f.Add(zipped(f, true, "aaaa", "bbbb"), 5)
	f.Add([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0, 7}, 1)
	f.Add(append(zipped(f, false, "a"), 0x1f, 0x8b, 8, 0x80, 0, 0, 0, 0, 0, 0xff), 9) // a second header with a flag
	f.Fuzz(func(t *testing.T, stream []byte, size int) {
		if size < 1 || len(stream) > 1<<16 {
			return
		}
		r, err := gzip.NewReader(bytes.NewReader(stream))
		got, inflateErr := inflateAll(stream, size) // must not panic
		if err != nil || errors.Is(inflateErr, errHeader) {
			return
		}
		want, err := io.ReadAll(r)
		if err == nil && (inflateErr != nil || !bytes.Equal(got, want)) {
			t.Errorf("got %d bytes, %v, want %d", len(got), inflateErr, len(want))
		}
	})
}

// flushed returns a gzip stream up to its flush, without its end.
func flushed(t *testing.T, p []byte) []byte {
	stream := zipped(t, false, string(p))
	return stream[:bytes.LastIndex(stream, syncMarker)+len(syncMarker)]
}
