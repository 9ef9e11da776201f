package cached

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/exchange"
	"github.com/watchfan/watchfan/proxy/fairness"
)

// states returns the identities of n states of a cache.
func states(t *testing.T, n int) []fanout.Identity {
	t.Helper()
	c := fanout.NewCache(fanout.Limits{HistoryEvents: 10, HistoryBytes: 1 << 20}, fanout.NewFlusher(1, 0, fanout.NewMetrics(metrics.NewSet())))
	var all []fanout.Identity
	var held []fanout.Snapshot
	for i := range n {
		c.Reset(nil, uint64(i+1), fanout.Ending{})
		s := c.Snapshot()
		held = append(held, s)
		all = append(all, s.Identity())
	}
	t.Cleanup(func() { _ = held[0] })
	return all
}

// Requests for the same items in the same state share the same bytes. Those of another state are
// made anew.
func TestCompressedListsAreShared(t *testing.T) {
	var c compressedLists
	state := states(t, 2)
	key := listKey{filter: "f"}
	items := exchange.BodySlices{[]byte(strings.Repeat("a", 1000)), []byte("b")}
	if _, _, ok := c.get(&fairness.Seat{}, key, state[0]); ok {
		t.Error("there is a list before there is one")
	}
	all := make([]framing.Deflated, 20)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			all[i] = c.add(&fairness.Seat{}, key, state[0], extent{bytes: 1001, last: "l", more: 3}, items)
		})
	}
	wg.Wait()
	x, got, ok := c.get(&fairness.Seat{}, key, state[0])
	if !ok || x != (extent{bytes: 1001, last: "l", more: 3}) {
		t.Fatalf("got %+v, %v", x, ok)
	}
	first := framing.GzipMember(got)[1]
	for i, d := range all {
		if b := framing.GzipMember(d)[1]; &b[0] != &first[0] {
			t.Errorf("%d has bytes of its own", i)
		}
	}
	z, err := gzip.NewReader(bytes.NewReader(bytes.Join(framing.GzipMember(framing.Stored([]byte("head")), got), nil)))
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := io.ReadAll(z); err != nil || string(plain) != "head"+strings.Repeat("a", 1000)+"b" {
		t.Errorf("reads as %q, %v", plain, err)
	}
	if _, _, ok := c.get(&fairness.Seat{}, key, state[1]); ok {
		t.Error("got the list of another state")
	}
	c.add(&fairness.Seat{}, key, state[1], extent{}, items)
	if _, _, ok := c.get(&fairness.Seat{}, key, state[0]); ok || c.bytes != got.Len() {
		t.Errorf("the old state's is still there: %v, %d bytes", ok, c.bytes)
	}
}

// The kept lists are bounded. The ones that have not been used for longest are dropped first.
func TestCompressedListsBounds(t *testing.T) {
	var c compressedLists
	state := states(t, 1)[0]
	c.lists = make(map[listKey]*compressedList)
	now := time.Now()
	for i := range 5 {
		c.lists[listKey{limit: int64(i)}] = &compressedList{state: state, size: maxCompressed / 4,
			used: now.Add(time.Duration(i) * time.Second)}
		c.bytes += maxCompressed / 4
	}
	c.mu.Lock()
	c.shrinkLocked()
	c.mu.Unlock()
	if c.lists[listKey{}] != nil || len(c.lists) != 4 || c.bytes != maxCompressed {
		t.Errorf("%d lists of %d bytes are left", len(c.lists), c.bytes)
	}
	c.mu.Lock()
	c.sweepLocked(now.Add(3 * time.Second))
	c.mu.Unlock()
	if len(c.lists) != 2 || c.bytes != maxCompressed/2 {
		t.Errorf("%d lists of %d bytes are left of those asked for since", len(c.lists), c.bytes)
	}
	c.forget()
	if len(c.lists) != 0 || c.bytes != 0 {
		t.Errorf("%d lists of %d bytes are left where memory is short", len(c.lists), c.bytes)
	}
}
