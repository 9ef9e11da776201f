package framing_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/watchfan/watchfan/framing"
)

func TestEventReader(t *testing.T) {
	f := func(e framing.Encoding, stream string, end error, want ...string) {
		t.Helper()
		r := framing.NewEventReader(e, iotest.HalfReader(strings.NewReader(stream)))
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
	long := text + "\n"
	f(framing.JSON, "", io.EOF)
	f(framing.JSON, "a\n", io.EOF, "a\n")
	f(framing.JSON, "a\n\nb\n", io.EOF, "a\n", "\n", "b\n")
	f(framing.JSON, "a\nb", io.ErrUnexpectedEOF, "a\n")
	f(framing.JSON, long+"a\n"+long, io.EOF, long, "a\n", long)
	f(framing.JSON, long+long[:50_000], io.ErrUnexpectedEOF, long)
	long = "\x00\x01\x86\xa0" + text
	f(framing.Protobuf, "", io.EOF)
	f(framing.Protobuf, "\x00\x00\x00\x01a", io.EOF, "a")
	f(framing.Protobuf, "\x00\x00\x00\x01a\x00\x00\x00\x00\x00\x00\x00\x02bc", io.EOF, "a", "", "bc")
	f(framing.Protobuf, long+"\x00\x00\x00\x01a"+long, io.EOF, text, "a", text)
	f(framing.Protobuf, "\x00\x00\x00", io.ErrUnexpectedEOF)
	f(framing.Protobuf, "\x00\x00\x00\x01", io.ErrUnexpectedEOF)
	f(framing.Protobuf, "\x00\x00\x00\x02a", io.ErrUnexpectedEOF)
	f(framing.Protobuf, long+long[:4], io.ErrUnexpectedEOF, text)
	f(framing.Protobuf, long+long[:50_000], io.ErrUnexpectedEOF, text)
	f(framing.Protobuf, "\x01\x00\x00\x01", framing.ErrTooLong)
	f(framing.Protobuf, "\xff\xff\xff\xff", framing.ErrTooLong)
	items := []string{string(encodeCBOR("x")), "\x00", "\xf9\x3c\x00", string(tagged(cborMap("a", []any{1, map[string]string{}}))), "\x80",
		string(encodeCBOR(strings.Repeat("x", 1<<20))), string(encodeCBOR(slices.Repeat([]int{1000}, 1<<16))), "\xf6",
		strings.Repeat("\x81", 1<<20) + "\x00"} // nested deeper than any reader goes
	f(framing.CBOR, strings.Join(items, ""), io.EOF, items...)
	for broken, want := range map[string]error{
		"\x18": io.ErrUnexpectedEOF, "\x81": io.ErrUnexpectedEOF, "\x42\x00": io.ErrUnexpectedEOF,
		"\x82\x5a\x00\xf0\x00\x00": io.ErrUnexpectedEOF, "\x5a\x01\x00\x00\x01": framing.ErrTooLong,
		"\x5a\x01\x00\x00\x00" + strings.Repeat("\x00", 1<<24): framing.ErrTooLong,
		"\x9b\xff\xff\xff\xff\xff\xff\xff\xff":                 framing.ErrTooLong, "\xba\x00\x90\x00\x00": framing.ErrTooLong,
	} {
		f(framing.CBOR, "\x00"+broken, want, "\x00")
	}
}

// A connection that breaks within an event is not taken for the end of the stream.
func TestReaderError(t *testing.T) {
	broken := errors.New("broken")
	f := func(e framing.Encoding, event, want string, parts ...string) {
		for _, part := range parts {
			r := framing.NewEventReader(e, io.MultiReader(strings.NewReader(event+part), iotest.ErrReader(broken)))
			if got, err := r.Next(); string(got) != want || err != nil {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
			if got, err := r.Next(); got != nil || err != broken {
				t.Errorf("%q: got %q, %v, want %v", part, got, err, broken)
			}
		}
	}
	f(framing.JSON, "a\n", "a\n", "", "b")
	f(framing.CBOR, "\x00", "\x00", "", "\x42")
	f(framing.Protobuf, "\x00\x00\x00\x01a", "a", "", "\x00", "\x00\x00\x00\x02", "\x00\x00\x00\x02b", "\x00\x01\x00\x00b")
}

// The memory for one event is bounded, and is released before the reader waits for the next event.
func TestReaderBound(t *testing.T) {
	for e, event := range map[framing.Encoding]func(n int) io.Reader{
		framing.JSON: func(n int) io.Reader {
			return io.MultiReader(io.LimitReader(zeros{}, int64(n-1)), strings.NewReader("\n"))
		},
		framing.Protobuf: func(n int) io.Reader {
			return io.MultiReader(bytes.NewReader(binary.BigEndian.AppendUint32(nil, uint32(n))), io.LimitReader(zeros{}, int64(n)))
		},
	} {
		t.Run(e.String(), func(t *testing.T) {
			const large = 10 << 20
			most := framing.NewEventReader(e, event(framing.MaxEvent))
			if got, err := most.Next(); len(got) != framing.MaxEvent || err != nil {
				t.Errorf("got %d bytes, %v, want %d", len(got), err, framing.MaxEvent)
			}
			for _, stream := range []io.Reader{event(framing.MaxEvent + 1), zeros{}} {
				if got, err := framing.NewEventReader(e, stream).Next(); got != nil || err != framing.ErrTooLong {
					t.Errorf("got %d bytes, %v, want %v", len(got), err, framing.ErrTooLong)
				}
			}
			before := heap()
			r := framing.NewEventReader(e, io.MultiReader(event(large), event(1)))
			if got, err := r.Next(); len(got) != large || err != nil {
				t.Fatalf("got %d bytes, %v, want %d", len(got), err, large)
			}
			if held := heap() - before; held < large {
				t.Errorf("%d bytes held with the large event: this test measures nothing", held)
			}
			if got, err := r.Next(); len(got) != 1 || err != nil {
				t.Fatalf("got %q, %v", got, err)
			}
			if held := heap() - before; held > 1<<20 {
				t.Errorf("%d bytes held after the large event", held)
			}
			runtime.KeepAlive(r)
		})
	}
}

// heap returns the reachable bytes.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// fuzzReader compares an EventReader, however the stream is split, with a twin.
func fuzzReader(t *testing.T, e framing.Encoding, stream []byte, seed uint64, twin func() ([]byte, error)) {
	r := framing.NewEventReader(e, &uneven{stream, rand.New(rand.NewPCG(seed, 0))})
	for {
		want, end := twin()
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
}

// FuzzLineReader compares with bufio.Reader.ReadBytes.
func FuzzLineReader(f *testing.F) {
	for _, c := range readTestdata(f)[:2] {
		f.Add(c.bytes("all"), uint64(1))
		f.Add(c.bytes("all")[:500], uint64(2))
	}
	f.Add(bytes.Repeat([]byte("0123456789abcdef"), 5000), uint64(3))
	f.Add([]byte("\n\n"), uint64(4))
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		lines := bufio.NewReader(bytes.NewReader(stream))
		fuzzReader(t, framing.JSON, stream, seed, func() ([]byte, error) {
			line, err := lines.ReadBytes('\n')
			if err != nil && len(line) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return line, err
		})
	})
}

// FuzzLengthReader compares with encoding/binary and io.ReadFull.
func FuzzLengthReader(f *testing.F) {
	for _, c := range asProtobuf.captured(f)[:2] {
		f.Add(c.bytes("all"), uint64(1))
		f.Add(c.bytes("all")[:500], uint64(2))
	}
	f.Add(append([]byte{0, 1, 0, 0}, bytes.Repeat([]byte("0123456789abcdef"), 5000)...), uint64(3))
	f.Add([]byte{0, 0, 0, 0, 0, 0}, uint64(4))
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		messages := bytes.NewReader(stream)
		fuzzReader(t, framing.Protobuf, stream, seed, func() ([]byte, error) { return nextPrefixed(messages) })
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

// uneven reads random amounts, sometimes nothing.
type uneven struct {
	rest []byte
	rng  *rand.Rand
}

func (u *uneven) Read(p []byte) (int, error) {
	if len(u.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), u.rng.IntN(1<<u.rng.IntN(16)+1))], u.rest)
	u.rest = u.rest[n:]
	return n, nil
}
