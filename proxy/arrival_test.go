package proxy

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Turns come in the order in which they were asked for, and no more than so many at a time.
func TestArrivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 2
		all := newArrivals(most)
		conns := make([]*arrival, 9)
		var mu sync.Mutex
		var order []int
		for i := range conns {
			conns[i] = &arrival{all: all}
			go func() {
				all.take(conns[i])
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
			}()
			synctest.Wait()
		}
		taken := func(want ...int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if got := slices.Sorted(slices.Values(order)); !slices.Equal(got, want) { // who has a turn at the same time is in no order
				t.Errorf("turns were had by %v, want %v", got, want)
			}
		}
		taken(0, 1)
		conns[1].end()
		taken(0, 1, 2)
		conns[1].end() // it has none any more
		taken(0, 1, 2)
		all.give(conns[0])
		waits(withArrival(context.Background(), conns[2]))
		taken(0, 1, 2, 3, 4)

		// Who keeps its turn loses it, so that one that waits for something unforeseen does not keep out all others.
		time.Sleep(turnLimit + time.Millisecond)
		taken(0, 1, 2, 3, 4, 5, 6)
		time.Sleep(2 * turnLimit)
		taken(0, 1, 2, 3, 4, 5, 6, 7, 8)
	})
}

// A connection whose client sends nothing has no turn, and one whose arrival is over needs none.
func TestArrivalReads(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	all := newArrivals(1)
	clients := clientListener{Listener: ln, arrivals: all}
	defer ln.Close()
	accept := func() (client, served net.Conn) {
		t.Helper()
		client, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if served, err = clients.Accept(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close(); served.Close() })
		return client, served
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
			arrivalOf(served).end()
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
