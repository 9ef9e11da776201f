package fanout_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/watchfan/watchfan/fanout"
)

// "Nothing can be read from it before the first Replace": earlier subscribers would never get its
// objects.
func TestSubscribeBeforeFilled(t *testing.T) {
	c := fanout.NewCache(roomy, newFlusher(1))
	for _, start := range []fanout.Start{fanout.FromNow, fanout.FromSnapshot, fanout.FromVersion} {
		_, err := c.Subscribe(fanout.Request{Filter: everything(t).filter(t), Start: start, ResourceVersion: 5,
			Timeout: time.Hour})
		if err != fanout.ErrNotFresh {
			t.Errorf("start %d: %v, want %v", start, err, fanout.ErrNotFresh)
		}
	}
	if n := c.Snapshot().Len(); n != 0 || c.Progress() != 0 {
		t.Errorf("%d objects at %d", n, c.Progress())
	}
}

// The three ways to begin, from one history.
func TestSubscribeStarts(t *testing.T) {
	w := newWorld(t, roomy)
	from := w.put(named("x", "l", "1"))
	w.put(named("y", "l", "1"))
	w.put(named("x"))
	w.put(named("z", "l", "1"))
	w.advance(3)
	for _, s := range []selector{everything(t), sel(t, "", "l=1", ""), sel(t, "b", "", ""),
		sel(t, "a", "", "metadata.name=x")} {
		now := w.rv
		want := map[fanout.Start][]string{
			fanout.FromNow:      nil,
			fanout.FromSnapshot: append(w.initial(s, now), bookmark(now, true)),
			fanout.FromVersion:  w.since(s, from),
		}
		recs := make(map[fanout.Start]*recorder)
		for start := range want {
			_, recs[start] = w.client(s,
				fanout.Request{Start: start, ResourceVersion: from, Bookmarks: true, EndBookmark: true})
		}
		_, plain := w.client(s, fanout.Request{Start: fanout.FromSnapshot, EndBookmark: true}) // but no Bookmarks
		w.put(named("x", "l", "1"))
		w.put(named("x"))
		for start, r := range recs {
			r.wantLines(t, append(want[start], w.since(s, now)...)...)
		}
		plain.wantLines(t, append(w.initial(s, now), w.since(s, now)...)...)
	}
}

// A watch from a resourceVersion in the future is accepted. It gets nothing up to and including
// that resourceVersion, neither events nor bookmarks, as with kube-apiserver.
func TestSubscribeFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, roomy)
		_, r := w.client(everything(t),
			fanout.Request{Start: fanout.FromVersion, ResourceVersion: 103, Bookmarks: true})
		w.put(named("x")) // 101
		w.put(named("y"))
		w.put(named("x"))                                // 103
		time.Sleep(2*time.Minute + 350*time.Millisecond) // between two sweeps that may send a bookmark
		r.wantLines(t)
		y := named("y")
		w.put(y)
		time.Sleep(fanout.SweepEvery)
		r.wantLines(t, line("MODIFIED", y.at(104)))
		time.Sleep(time.Minute + 2*time.Second)
		w.advance(1)
		time.Sleep(time.Minute)
		r.wantLines(t, line("MODIFIED", y.at(104)), bookmark(104, false), bookmark(104, false), bookmark(105, false))
	})
}

func TestSubscribeExpired(t *testing.T) {
	limits := roomy
	limits.HistoryEvents = 3
	w := newWorld(t, limits)
	f := func(rv uint64, want error) {
		t.Helper()
		sub, err := w.cache.Subscribe(fanout.Request{Filter: everything(t).filter(t), Start: fanout.FromVersion,
			ResourceVersion: rv, Timeout: time.Hour})
		if !errors.Is(err, want) {
			t.Errorf("from %d: %v, want %v", rv, err, want)
		}
		if err == nil {
			sub.Cancel()
		}
	}
	f(99, fanout.ErrExpired)
	f(100, nil)
	for range 3 {
		w.put(named("x"))
	}
	f(100, nil)
	w.put(named("x")) // 101 is forgotten
	f(100, fanout.ErrExpired)
	f(101, nil)
	if s := w.cache.Stats(); s.Subscriptions != 0 || s.Groups != 0 || s.Oldest != 101 || s.HistoryEvents != 3 {
		t.Errorf("stats %+v", s)
	}
}

// A subscription takes no more memory than its comment demands, because there may be very many.
func TestSubscriptionSize(t *testing.T) {
	if got := unsafe.Sizeof(fanout.Subscription{}); got > 160 {
		t.Errorf("%d bytes", got)
	}
}

// A subscription may be part of something of the caller's.
func TestSubscribeInto(t *testing.T) {
	w := newWorld(t, roomy)
	var mine struct{ sub fanout.Subscription }
	for range 2 { // a failed attempt leaves nothing in it
		sub, err := w.cache.Subscribe(fanout.Request{Filter: everything(t).filter(t), Start: fanout.FromVersion,
			ResourceVersion: 1, Timeout: time.Hour, Into: &mine.sub})
		if !errors.Is(err, fanout.ErrExpired) {
			t.Fatalf("%v, %v", sub, err)
		}
	}
	sub, err := w.cache.Subscribe(fanout.Request{Filter: everything(t).filter(t), Timeout: time.Hour, Into: &mine.sub})
	if sub != &mine.sub || err != nil {
		t.Fatalf("%p, %v, want %p", sub, err, &mine.sub)
	}
	sub.Cancel()
	if n := w.cache.Stats().Subscriptions; n != 0 {
		t.Errorf("%d subscriptions are left", n)
	}
}
