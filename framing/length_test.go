package framing_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/watchfan/watchfan/framing"
)

func TestLengthReader(t *testing.T) {
	f := func(stream string, end error, want ...string) {
		t.Helper()
		r := framing.NewEventReader(framing.Protobuf, iotest.HalfReader(strings.NewReader(stream)))
		for _, w := range want {
			if event, err := r.Next(); string(event) != w || err != nil {
				t.Errorf("%.40q: got %.40q, %v, want %.40q", stream, event, err, w)
			}
		}
		if event, err := r.Next(); event != nil || !errors.Is(err, end) {
			t.Errorf("%.40q: ended with %.40q, %v, want %v", stream, event, err, end)
		}
	}
	text := strings.Repeat("x", 100_000)
	long := "\x00\x01\x86\xa0" + text
	f("", io.EOF)
	f("\x00\x00\x00\x01a", io.EOF, "a")
	f("\x00\x00\x00\x01a\x00\x00\x00\x00\x00\x00\x00\x02bc", io.EOF, "a", "", "bc")
	f(long+"\x00\x00\x00\x01a"+long, io.EOF, text, "a", text)
	f("\x00\x00\x00", io.ErrUnexpectedEOF)
	f("\x00\x00\x00\x01", io.ErrUnexpectedEOF)
	f("\x00\x00\x00\x02a", io.ErrUnexpectedEOF)
	f(long+long[:4], io.ErrUnexpectedEOF, text)
	f(long+long[:50_000], io.ErrUnexpectedEOF, text)
	f("\x01\x00\x00\x01", framing.ErrTooLong)
	f("\xff\xff\xff\xff", framing.ErrTooLong)
}

// FuzzLengthReader compares with encoding/binary and io.ReadFull, however the stream is split.
func FuzzLengthReader(f *testing.F) {
	for _, c := range asProtobuf.captured(f)[:2] {
		f.Add(c.bytes("all"), uint64(1))
		f.Add(c.bytes("all")[:500], uint64(2))
	}
	f.Add(append([]byte{0, 1, 0, 0}, bytes.Repeat([]byte("0123456789abcdef"), 5000)...), uint64(3))
	f.Add([]byte{0, 0, 0, 0, 0, 0}, uint64(4))
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		r := framing.NewEventReader(framing.Protobuf, &uneven{stream, rand.New(rand.NewPCG(seed, 0))})
		twin := bytes.NewReader(stream)
		for {
			want, end := nextPrefixed(twin)
			got, err := r.Next()
			if end == nil {
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("got %q, %v, want %q", got, err, want)
				}
				continue
			}
			if got != nil || !errors.Is(err, end) {
				t.Fatalf("ended with %q, %v, want %v", got, err, end)
			}
			return
		}
	})
}

func nextPrefixed(r *bytes.Reader) ([]byte, error) {
	if r.Len() == 0 {
		return nil, io.EOF
	}
	var n uint32
	switch err := binary.Read(r, binary.BigEndian, &n); {
	case err != nil:
		return nil, io.ErrUnexpectedEOF
	case n > framing.MaxEvent:
		return nil, framing.ErrTooLong
	case int(n) > r.Len():
		return nil, io.ErrUnexpectedEOF
	}
	event := make([]byte, n)
	_, err := io.ReadFull(r, event)
	return event, err
}
