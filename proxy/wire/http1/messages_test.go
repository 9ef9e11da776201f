package http1

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
	"github.com/watchfan/watchfan/proxy/wire/websocket"
)

// narrow is a connection that takes a few bytes at a time, and the others when it is drained. A
// write that overlaps a drain fails the test.
type narrow struct {
	connection
	t   *testing.T
	rnd *rand.Rand

	mu       sync.Mutex
	taken    []byte
	rest     [][]byte
	wide     bool // takes everything
	full     bool // takes nothing until it is drained
	drained  int
	ended    bool
	complete bool
	fails    error // of the next drain
}

func (n *narrow) Write(batch [][]byte) (blocked bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.rest) > 0 || n.ended {
		n.t.Error("a write within a drain, or behind the end")
	}
	room := n.rnd.IntN(100)
	switch {
	case n.full:
		room = 0
	case n.wide:
		room = 1 << 20
	}
	for i, slice := range batch {
		took := min(room, len(slice))
		n.taken, room = append(n.taken, slice[:took]...), room-took
		if took < len(slice) {
			n.rest = slices.Clone(batch[i:])
			n.rest[0] = slice[took:]
			return true, nil
		}
	}
	return false, nil
}

func (n *narrow) Drain(done func(error)) {
	n.mu.Lock()
	wait := time.Duration(n.rnd.IntN(200)) * time.Microsecond
	n.mu.Unlock()
	go func() {
		time.Sleep(wait) //testlint:allow timer all of these tests are in bubbles
		n.mu.Lock()
		n.taken = append(n.taken, bytes.Join(n.rest, nil)...)
		n.rest = nil
		n.drained++
		err := n.fails
		n.mu.Unlock()
		done(err)
	}()
}

func (n *narrow) End(_ fanout.Reason, complete bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended, n.complete = true, complete
}

// A shard's messages and a reader's answers share a connection: each leaves whole, all messages
// leave in their order, and CLOSE is the last.
func TestMessages(t *testing.T) { synctest.Test(t, testMessages) }

func testMessages(t *testing.T) {
	rnd := steady.Rand(t)
	n := &narrow{t: t, rnd: rand.New(rand.NewPCG(rnd.Uint64(), 0))}
	m := &messages{connection: n, form: exchange.Messages{Binary: true}}
	var reader sync.WaitGroup
	stop := make(chan struct{})
	reader.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Microsecond):
				m.answer(fmt.Appendf(nil, "\x8a\x04%04d", i%10000), false)
			}
		}
	})
	var want []string
	parks := 0
	for len(want) < 2000 {
		var batch [][]byte
		for range 1 + rnd.IntN(5) {
			text := fmt.Sprintf("message %05d", len(want))
			want = append(want, text)
			batch = append(batch, fmt.Appendf(nil, "d\r\n%s", text[:3]), fmt.Appendf(nil, "%s\r\n", text[3:]))
		}
		blocked, err := m.Write(batch)
		if err != nil {
			t.Fatal(err)
		}
		for i := range batch {
			batch[i] = []byte("the flusher uses its slice again")
		}
		if blocked {
			parks++
			done := make(chan error, 1)
			m.Drain(func(err error) { done <- err })
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	reader.Wait()
	time.Sleep(time.Second)
	n.wide = true
	m.End(fanout.TimedOut, true)
	got, pongs := n.taken, 0
	for len(got) > 0 && got[0] != 0x88 {
		size := 2 + int(got[1])
		switch frame := got[:min(size, len(got))]; frame[0] {
		case 0x8a:
			pongs++
		case 0x82:
			if len(want) == 0 || string(frame[2:]) != want[0] {
				t.Fatalf("got %q", frame)
			}
			want = want[1:]
		default:
			t.Fatalf("got %q", frame)
		}
		got = got[min(size, len(got)):]
	}
	if string(got) != websocket.CloseNormal || !n.complete || len(want) > 0 {
		t.Errorf("the last bytes are % x, complete %v, %d messages are missing", got, n.complete, len(want))
	}
	if pongs == 0 || parks == 0 || n.drained <= parks {
		t.Errorf("%d pongs, %d parks, %d drains", pongs, parks, n.drained)
	}
}

// While the connection drains, only the newest answers wait.
func TestMessagesKeepTheNewestAnswers(t *testing.T) {
	n := &narrow{t: t, rnd: rand.New(rand.NewPCG(1, 1)), full: true}
	m := &messages{connection: &parkedConnection{narrow: n}}
	for i := range 1000 {
		m.answer(fmt.Appendf(nil, "\x8a\x04%04d", i), false)
	}
	if blocked, err := m.Write([][]byte{[]byte("3\r\nabc\r\n")}); !blocked || err != nil {
		t.Fatalf("a batch behind answers that wait: %v, %v", blocked, err)
	}
	if len(m.answers) != 6 || len(m.batch) != 2 {
		t.Errorf("%d bytes of answers and %d slices wait", len(m.answers), len(m.batch))
	}
	n.full, n.wide = false, true
	done := make(chan error, 1)
	m.Drain(func(err error) { done <- err })
	n.Drain(m.goOn)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got, want := string(n.taken), "\x8a\x040000\x81\x03abc\x8a\x040999"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// parkedConnection is a narrow connection that is drained by the test.
type parkedConnection struct{ *narrow }

func (parkedConnection) Drain(func(error)) {}

// Nothing follows CLOSE, and a broken connection ends without it.
func TestMessagesEnd(t *testing.T) {
	f := func(name string, test func(*testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
	begin := func() (*messages, *narrow) {
		n := &narrow{t: t, rnd: rand.New(rand.NewPCG(1, 1)), wide: true}
		return &messages{connection: n}, n
	}
	chunk := [][]byte{[]byte("3\r\nabc\r\n")}
	f("by the client", func(t *testing.T) {
		m, n := begin()
		m.answer([]byte(websocket.CloseNormal), true)
		if blocked, err := m.Write(chunk); blocked || !errors.Is(err, errMessagesOver) {
			t.Errorf("a message behind CLOSE: %v, %v", blocked, err)
		}
		m.answer([]byte("\x8a\x00"), false)
		if m.End(fanout.Gone, false); string(n.taken) != websocket.CloseNormal || !n.complete {
			t.Errorf("got % x, complete %v", n.taken, n.complete)
		}
	})
	f("by an eviction", func(t *testing.T) {
		m, n := begin()
		if m.End(fanout.Evicted, false); len(n.taken) > 0 || n.complete {
			t.Errorf("got % x, complete %v", n.taken, n.complete)
		}
	})
	f("within a drain", func(t *testing.T) {
		m, n := begin()
		n.full = true
		m.answer([]byte("\x8a\x00"), false)
		if m.End(fanout.TimedOut, true); n.complete {
			t.Error("complete within a frame")
		}
		time.Sleep(time.Second) // the drain ends behind the end
	})
	f("by a failed drain", func(t *testing.T) {
		m, n := begin()
		n.full, n.fails = true, errors.New("reset")
		blocked, err := m.Write(chunk)
		if !blocked || err != nil {
			t.Fatalf("%v, %v", blocked, err)
		}
		done := make(chan error, 1)
		m.Drain(func(err error) { done <- err })
		if err := <-done; err != n.fails {
			t.Errorf("got %v", err)
		}
	})
	f("by a batch that is none", func(t *testing.T) {
		m, n := begin()
		if blocked, err := m.Write([][]byte{[]byte("abc")}); blocked || err == nil || len(n.taken) > 0 {
			t.Errorf("%v, %v, got %q", blocked, err, n.taken)
		}
	})
}
