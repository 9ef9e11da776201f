package framing_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/watchfan/watchfan/framing"
)

func TestLineReader(t *testing.T) {
	f := func(stream string, end error, want ...string) {
		t.Helper()
		r := framing.NewEventReader(framing.JSON, strings.NewReader(stream))
		for _, w := range want {
			if line, err := r.Next(); string(line) != w || err != nil {
				t.Errorf("%.40q: got %.40q, %v, want %.40q", stream, line, err, w)
			}
		}
		if line, err := r.Next(); line != nil || !errors.Is(err, end) {
			t.Errorf("%.40q: ended with %.40q, %v, want %v", stream, line, err, end)
		}
	}
	long := strings.Repeat("x", 100_000) + "\n"
	f("", io.EOF)
	f("a\n", io.EOF, "a\n")
	f("a\n\nb\n", io.EOF, "a\n", "\n", "b\n")
	f("a\nb", io.ErrUnexpectedEOF, "a\n")
	f(long+"a\n"+long, io.EOF, long, "a\n", long)
	f(long+long[:50_000], io.ErrUnexpectedEOF, long)
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

// FuzzLineReader compares with bufio.Reader.ReadBytes, however the stream is split.
func FuzzLineReader(f *testing.F) {
	for _, c := range readTestdata(f)[:2] {
		f.Add(c.bytes("all"), uint64(1))
		f.Add(c.bytes("all")[:500], uint64(2))
	}
	f.Add(bytes.Repeat([]byte("0123456789abcdef"), 5000), uint64(3))
	f.Add([]byte("\n\n"), uint64(4))
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		r := framing.NewEventReader(framing.JSON, &uneven{stream, rand.New(rand.NewPCG(seed, 0))})
		twin := bufio.NewReader(bytes.NewReader(stream))
		for {
			want, end := twin.ReadBytes('\n')
			got, err := r.Next()
			if end == nil {
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("got %q, %v, want %q", got, err, want)
				}
				continue
			}
			if len(want) > 0 {
				end = io.ErrUnexpectedEOF
			}
			if got != nil || !errors.Is(err, end) {
				t.Fatalf("ended with %q, %v, want %v", got, err, end)
			}
			return
		}
	})
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
