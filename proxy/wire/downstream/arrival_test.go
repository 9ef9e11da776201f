package downstream

import (
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// Turns come in the order in which they were asked for, and no more than so many at a time.
func TestArrivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 2
		all := NewArrivals(atMost(most), NewMetrics(metrics.NewSet()))
		conns := make([]*Arrival, 9)
		var taken atomic.Int64 // a bit for each connection
		for i := range conns {
			conns[i] = &Arrival{all: all}
			go func() {
				all.take(conns[i])
				taken.Or(1 << i)
			}()
			synctest.Wait()
		}
		first := func(n int) {
			t.Helper()
			synctest.Wait()
			if got := taken.Load(); got != 1<<n-1 {
				t.Errorf("turns were had by %b, want the first %d", got, n)
			}
		}
		first(2)
		conns[1].End()
		first(3)
		conns[1].End() // it has none any more
		first(3)
		all.give(conns[0])
		conns[2].End()
		first(5)

		// Who keeps its turn loses it, so that one that waits for something unforeseen does not keep out all others.
		time.Sleep(turnLimit + time.Millisecond)
		first(7)
		time.Sleep(2 * turnLimit)
		first(9)
	})
}

// Who has begun goes before who has not, and who has waited for long goes in any case.
func TestArrivalOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := NewArrivals(atMost(1), NewMetrics(metrics.NewSet()))
		var order []string // appended to by one at a time: there is one turn, and one is in a hurry
		come := func(name string, turns int) *Arrival {
			a := &Arrival{all: all, turns: turns}
			go func() {
				all.take(a)
				if order = append(order, name); name != "holder" {
					a.End()
				}
			}()
			synctest.Wait()
			return a
		}
		holder := come("holder", 0)
		// Turns end by themselves where somebody waits; this one is renewed, as by a processor that is elsewhere.
		keep := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(turnLimit / 5) {
				all.mu.Lock()
				all.holders[0].since = time.Now()
				all.mu.Unlock()
			}
		}
		come("late", 0)
		keep(hurry + turnLimit)
		come("fresh", 0)
		come("begun", 1)
		come("byte by byte", handshakeTurns+1)
		come("begun last", handshakeTurns)
		holder.End()
		synctest.Wait()
		if want := []string{"holder", "late", "begun", "begun last", "fresh", "byte by byte"}; !slices.Equal(order, want) {
			t.Errorf("turns were had by %q, want %q", order, want)
		}
	})
}

// TestArrivalAgain: those whose arrival is over go on one at a time behind a common wait. New
// connections do not wait for them. Giving a turn back twice gives no other turn back.
func TestArrivalAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := NewArrivals(atMost(1), NewMetrics(metrics.NewSet()))
		var mu sync.Mutex
		var order []string
		note := func(name string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, name)
		}
		taken := func(want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(order, want) {
				t.Errorf("turns were had by %q, want %q", order, want)
			}
		}
		arrived := &Arrival{all: all}
		all.take(arrived)
		arrived.End()
		give := arrived.again()
		go func() {
			fresh := &Arrival{all: all}
			all.take(fresh)
			note("fresh")
			fresh.End()
		}()
		synctest.Wait()
		for _, name := range []string{"second", "third"} {
			go func() {
				give := arrived.again()
				note(name)
				time.Sleep(turnLimit / 2)
				give()
			}()
			synctest.Wait()
		}
		taken("fresh")
		give()
		taken("fresh", "second")
		give()
		taken("fresh", "second")
		time.Sleep(2 * turnLimit)
		taken("fresh", "second", "third")
		(*Arrival)(nil).again()()
	})
}

// Who has left while it waited takes no turn.
func TestArrivalLeft(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		client, served := proxytest.TCPPair(t)
		all := NewArrivals(atMost(1), NewMetrics(metrics.NewSet()))
		holder := &Arrival{all: all}
		all.take(holder)
		if _, err := client.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		type answer struct {
			n   int
			err error
		}
		read := make(chan answer, 1)
		go func() {
			n, err := (&Arrival{all: all}).read(served, make([]byte, 16))
			read <- answer{n, err}
		}()
		steady.UntilTrue(t, "its place in the queue", func() bool {
			all.mu.Lock()
			defer all.mu.Unlock()
			if len(all.fresh) == 0 {
				return false
			}
			all.fresh[0].since = time.Now().Add(-longQueue) // it has stood there for long
			return true
		})
		if leaves {
			client.Close()
			steady.UntilTrue(t, "the client's end", func() bool { return HasLeft(served) })
		}
		holder.End()
		got := <-read
		if leaves && (got.n != 0 || got.err == nil) || !leaves && (got.n != 5 || got.err != nil) {
			t.Errorf("leaves %v: read %d bytes, %v", leaves, got.n, got.err)
		}
	}
}

// A connection whose client sends nothing has no turn, and one whose arrival is over needs none.
func TestArrivalReads(t *testing.T) {
	all := NewArrivals(atMost(1), NewMetrics(metrics.NewSet()))
	accept := func() (client, served net.Conn) {
		t.Helper()
		client, accepted := proxytest.TCPPair(t)
		return client, &arrivingConn{TCPConn: accepted, arrival: Arrival{all: all}}
	}
	holders := func() int {
		all.mu.Lock()
		defer all.mu.Unlock()
		return len(all.holders)
	}
	silent, waiting := accept()
	read := make(chan error, 1)
	go func() {
		_, err := waiting.Read(make([]byte, 1))
		read <- err
	}()
	client, served := accept()
	for _, want := range []int{1, 1, 0} {
		if want == 0 {
			arrivalOf(served).End()
		}
		if _, err := client.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := served.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if got := holders(); got != want {
			t.Errorf("%d have a turn, want %d", got, want)
		}
	}
	silent.Close()
	if err := <-read; err == nil {
		t.Error("read from a client that has left")
	}
	if got := holders(); got != 0 {
		t.Errorf("%d have a turn where all have left, want none", got)
	}
}

// A crowd has half of the processors while watches are sent changes, and all when they are not.
func TestShareOf(t *testing.T) {
	for _, c := range []struct {
		processors int
		quiet      bool
		want       int
	}{{5, true, 5}, {5, false, 2}, {1, false, 1}} {
		if got := ShareOf(c.processors, func() bool { return c.quiet })(); got != c.want {
			t.Errorf("%+v: %d turns", c, got)
		}
	}
}

func atMost(n int) func() int { return func() int { return n } }
