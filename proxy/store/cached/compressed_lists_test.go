package cached

import (
	"bytes"
	"compress/gzip"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/gate/fairness"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// states returns the identities of n states of a cache.
func states(t *testing.T, n int) []fanout.Identity {
	t.Helper()
	c := fanout.NewCache(fanout.Limits{HistoryEvents: 10, HistoryBytes: 1 << 20}, fanout.NewFlusher(1, 0, fanout.NewMetrics(metrics.NewSet())))
	var all []fanout.Identity
	for i := range n {
		c.Reset(nil, uint64(i+1), fanout.Ending{})
		s := c.Snapshot()
		all = append(all, s.Identity())
		t.Cleanup(func() { runtime.KeepAlive(s) })
	}
	return all
}

// Requests for the same items in the same state share the same bytes. Those of another state are
// made anew.
func TestCompressedListsAreShared(t *testing.T) {
	c := compressedLists{ledger: account.New(account.Limits{})}
	state := states(t, 2)
	key := listKey{filter: "f"}
	items := exchange.BodySlices{[]byte(strings.Repeat("a", 1000)), []byte("b")}
	if c.get(&fairness.Seat{}, key, state[0]) != nil {
		t.Error("there is a list before there is one")
	}
	all := make([]*compressedList, 20)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			all[i] = c.add(account.Source{}, &fairness.Seat{}, key, state[0], extent{bytes: 1001, last: "l", more: 3}, items)
		})
	}
	wg.Wait()
	got := c.get(&fairness.Seat{}, key, state[0])
	if got == nil || got.extent != (extent{bytes: 1001, last: "l", more: 3}) {
		t.Fatalf("got %+v", got)
	}
	first := framing.GzipMember(got.items)[1]
	for i, l := range all {
		if b := framing.GzipMember(l.items)[1]; &b[0] != &first[0] {
			t.Errorf("%d has bytes of its own", i)
		}
	}
	z, err := gzip.NewReader(bytes.NewReader(bytes.Join(framing.GzipMember(framing.Stored([]byte("head")), got.items), nil)))
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := io.ReadAll(z); err != nil || string(plain) != "head"+strings.Repeat("a", 1000)+"b" {
		t.Errorf("reads as %q, %v", plain, err)
	}
	if c.get(&fairness.Seat{}, key, state[1]) != nil {
		t.Error("got the list of another state")
	}
	c.add(account.Source{}, &fairness.Seat{}, key, state[1], extent{}, items)
	bytes, _ := c.bytesLocked(account.Source{})
	if old := c.get(&fairness.Seat{}, key, state[0]); old != nil || bytes != got.items.Len() {
		t.Errorf("the old state's is still there: %v, %d bytes", old != nil, bytes)
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
	}
	left := func(when string, lists int) {
		t.Helper()
		if len(c.lists) != lists {
			t.Errorf("%s: %d lists are left, want %d", when, len(c.lists), lists)
		}
	}
	c.mu.Lock()
	c.shrinkLocked(account.Source{})
	if left("beyond the bound", 4); c.lists[listKey{}] != nil {
		t.Error("the oldest is left")
	}
	c.sweepLocked(now.Add(3 * time.Second))
	left("asked for since", 2)
	c.mu.Unlock()
	c.forget()
	left("memory is short", 0)
}

// Lists that were made for one source do not push out those of others, once they are most.
func TestCompressedListsShares(t *testing.T) {
	c := compressedLists{lists: make(map[listKey]*compressedList)}
	state, now := states(t, 1)[0], time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	sources := [2]account.Source{{Name: "ann"}, {Name: "eve"}}
	for i := range 30 {
		l := &compressedList{by: sources[min(i/3, 1)], state: state, size: maxCompressed / 8, used: now.Add(time.Duration(i))}
		c.lists[listKey{limit: int64(i)}] = l
		c.shrinkLocked(l.by)
	}
	if all, ann := c.bytesLocked(sources[0]); ann != maxCompressed*3/8 || all != maxCompressed {
		t.Errorf("%d bytes of ann, %d in all", ann, all)
	}
	for i := range 3 {
		if c.lists[listKey{limit: int64(i)}] == nil {
			t.Errorf("list %d of ann is forgotten", i)
		}
	}
}

// A source that holds what it may compresses nothing.
func TestCompressedListsCount(t *testing.T) {
	ledger := account.New(account.Limits{Each: heldByDeflate})
	c := compressedLists{ledger: ledger}
	ann, items := account.Source{Name: "ann"}, exchange.BodySlices{[]byte("a")}
	state := states(t, 1)[0]
	holds := ledger.Open(ann, account.Answers, nil)
	holds.Set(1)
	if c.add(ann, &fairness.Seat{}, listKey{}, state, extent{}, items) != nil || len(c.lists) != 0 {
		t.Error("it compresses a list")
	}
	if c.add(account.Source{Name: "bob"}, &fairness.Seat{}, listKey{}, state, extent{}, items) == nil {
		t.Error("another one does not")
	}
	holds.Close()
	if got := ledger.Totals(); got.Open != 0 {
		t.Errorf("%+v is left", got)
	}
}
