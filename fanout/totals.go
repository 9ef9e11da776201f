package fanout

import (
	"math"
	"sync/atomic"
)

// Totals are the figures of all caches of the process since it began, as in the metrics. They are
// read one after another while they change, so they may not match each other exactly.
type Totals struct {
	Subscriptions, Parked int // now
	Parks, Flushes        uint64
	Events, Bytes         uint64 // written to subscriptions; see Cache.Delivered
	Ended                 map[Reason]uint64
	Delivery              []Bucket // cumulative, ascending; the last has no bound
	DeliverySeconds       float64  // the sum
}

// delivered is what has been written to all subscriptions. It outlives the caches.
var delivered struct {
	_             [64]byte // a cache line of its own, because all shards add to it
	events, bytes atomic.Uint64
	_             [64]byte
}

// tally adds up what a shard writes, and adds it to the counters when the round ends. They are
// shared with other shards, and a round may write to thousands of subscriptions.
type tally struct {
	cache         *Cache   // of the subscriptions; nil if nothing has been written
	account       *Account // of the subscriptions; nil for none
	writes        int
	events, bytes uint64

	gzipBytes, gzipPlain int
}

// note notes a batch that has been written to a subscription.
func (t *tally) note(s *Subscription, b *batch) {
	if g := s.group; t.cache != g.cache || t.account != g.variant.Account {
		t.count()
		t.cache, t.account = g.cache, g.variant.Account
	}
	t.writes++
	t.events += uint64(b.frames)
	t.bytes += uint64(b.bytes)
	if s.gzip != nil {
		t.gzipBytes += b.bytes
		t.gzipPlain += b.plain
	}
}

// count adds what has been noted to the counters.
func (t *tally) count() {
	if t.cache == nil {
		return
	}
	t.cache.deliveredEvents.Add(t.events)
	t.cache.deliveredBytes.Add(t.bytes)
	if t.account != nil {
		t.account.Bytes.Add(int(t.bytes))
	}
	delivered.events.Add(t.events)
	delivered.bytes.Add(t.bytes)
	flushes.Add(t.writes)
	if t.gzipBytes > 0 {
		gzipBytes.Add(t.gzipBytes)
		gzipPlainBytes.Add(t.gzipPlain)
	}
	*t = tally{}
}

// Bucket counts the deliveries that took at most LE seconds, from an event's arrival to its first
// writes. The last bucket's LE is +Inf.
type Bucket struct {
	LE    float64
	Count uint64
}

// CurrentTotals returns the current figures. It may be called from any goroutine, and takes no
// lock.
func CurrentTotals() Totals {
	t := Totals{
		Subscriptions: int(subscriptions.Get()),
		Parked:        int(parked.Get()),
		Parks:         parks.Get(),
		Flushes:       flushes.Get(),
		Events:        delivered.events.Load(),
		Bytes:         delivered.bytes.Load(),
		Ended:         make(map[Reason]uint64, len(ended)),
	}
	for reason, counter := range ended {
		t.Ended[reason] = counter.Get()
	}
	t.Delivery, t.DeliverySeconds = deliverySeconds.buckets()
	return t
}

// buckets returns the cumulative counts and the sum.
func (h *histogram) buckets() (buckets []Bucket, sum float64) {
	var total uint64
	for i := range h.counts {
		total += h.counts[i].Load()
		bound := math.Inf(1)
		if i < len(h.bounds) {
			bound = h.bounds[i]
		}
		buckets = append(buckets, Bucket{bound, total})
	}
	return buckets, math.Float64frombits(h.sum.Load())
}
