package fanout_test

import (
	"errors"
	"testing"
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
