package fanout_test

import (
	"testing"
	"unsafe"

	"github.com/watchfan/watchfan/fanout"
)

// "Nothing can be read from it before the first Replace": earlier subscribers would never get its
// objects.
func TestSubscribeBeforeFilled(t *testing.T) {
	w := &world{t: t, cache: fanout.NewCache(roomy, newFlusher(1))}
	for _, start := range []fanout.Start{fanout.FromNow, fanout.FromSnapshot, fanout.FromVersion} {
		w.begins(everything(t), fanout.Request{Start: start, ResourceVersion: 5}, fanout.ErrNotFresh)
	}
	if n := w.cache.Snapshot().Len(); n != 0 || w.cache.Progress() != 0 {
		t.Errorf("%d objects at %d", n, w.cache.Progress())
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
	r := resume(1)
	r.Into = &mine.sub
	w.begins(everything(t), r, fanout.ErrExpired) // a failed attempt leaves nothing in it
	w.begins(everything(t), r, fanout.ErrExpired)
	sub := w.subscribe(everything(t), fanout.Request{Into: &mine.sub})
	if sub != &mine.sub {
		t.Fatalf("%p, want %p", sub, &mine.sub)
	}
	sub.Cancel()
	if n := w.cache.Stats().Subscriptions; n != 0 {
		t.Errorf("%d subscriptions are left", n)
	}
}
