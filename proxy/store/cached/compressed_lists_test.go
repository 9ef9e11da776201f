package cached

import (
	"bytes"
	"compress/gzip"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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
	c := newCompressedLists(account.New(account.Limits{}))
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
	if c.get(&fairness.Seat{}, key, state[0]) != nil {
		t.Error("the old state's is still there")
	}
	c.forget()
	if c.get(&fairness.Seat{}, key, state[1]) != nil {
		t.Error("a list is there when memory is short")
	}
}

// A list is not kept for long.
func TestCompressedListsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, state := newCompressedLists(account.New(account.Limits{})), states(t, 1)[0]
		c.add(account.Source{}, &fairness.Seat{}, listKey{}, state, extent{}, exchange.BodySlices{[]byte("a")})
		if time.Sleep(compressedFor - 1); c.known.Len() != 1 {
			t.Error("it is not kept")
		}
		if time.Sleep(time.Nanosecond); c.get(&fairness.Seat{}, listKey{}, state) != nil {
			t.Error("it is used after its time")
		}
		if synctest.Wait(); c.known.Len() != 0 {
			t.Error("it is kept after its time")
		}
	})
}

// A source that holds what it may compresses nothing.
func TestCompressedListsCount(t *testing.T) {
	ledger := account.New(account.Limits{Each: heldByDeflate})
	c := newCompressedLists(ledger)
	ann, items := account.Source{Name: "ann"}, exchange.BodySlices{[]byte("a")}
	state := states(t, 1)[0]
	holds := ledger.Open(ann, account.Answers, nil)
	holds.Set(1)
	if c.add(ann, &fairness.Seat{}, listKey{}, state, extent{}, items) != nil || c.known.Len() != 0 {
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
