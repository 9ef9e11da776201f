package fanout

import "sync/atomic"

// Totals are the figures of all caches of a Flusher since it began, as in the metrics. They are
// read one after another while they change, so they may not match each other exactly.
type Totals struct {
	Subscriptions, Parked int // now
	Parks, Flushes        uint64
	Events, Bytes         uint64 // written to subscriptions; see Cache.Delivered
	Ended                 map[Reason]uint64
	Delivery              []Bucket // from an event's arrival to its first writes, in seconds
	DeliverySeconds       float64  // the sum
}

// delivered is what has been written to subscriptions. All shards add to it, so it has a cache line of its
// own.
type delivered struct {
	_             [64]byte
	events, bytes atomic.Uint64
	_             [64]byte
}

func (d *delivered) add(events, bytes uint64) {
	d.events.Add(events)
	d.bytes.Add(bytes)
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
	t.cache.delivered.add(t.events, t.bytes)
	if t.account != nil {
		t.account.Bytes.Add(int(t.bytes))
	}
	m := t.cache.flusher.metrics
	m.delivered.add(t.events, t.bytes)
	m.flushes.Add(t.writes)
	if t.gzipBytes > 0 {
		m.gzipBytes.Add(t.gzipBytes)
		m.gzipPlain.Add(t.gzipPlain)
	}
	*t = tally{}
}

// Totals returns the current figures. It may be called from any goroutine, and takes no lock.
func (f *Flusher) Totals() Totals {
	m := f.metrics
	t := Totals{
		Subscriptions: int(m.subscriptions.Get()),
		Parked:        int(m.parked.Get()),
		Parks:         m.parks.Get(),
		Flushes:       m.flushes.Get(),
		Events:        m.delivered.events.Load(),
		Bytes:         m.delivered.bytes.Load(),
		Ended:         make(map[Reason]uint64, len(m.ended)),
	}
	for reason, counter := range m.ended {
		t.Ended[reason] = counter.Get()
	}
	t.Delivery, t.DeliverySeconds = m.delivery.buckets()
	return t
}
