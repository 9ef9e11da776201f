package chaos_test

import (
	"math"
	"slices"
	"sync"
	"testing"
	"time"
)

// acks has the times at which kube-apiserver acknowledged the last writes. Its methods may be called
// from any goroutine. A nil acks notes nothing and knows nothing.
type acks struct {
	mu   sync.Mutex
	last [1 << 14]ack // by resourceVersion modulo the length
}

type ack struct {
	rv uint64
	at time.Time
}

// note notes that the write with this resourceVersion has been acknowledged now, unless it was before.
func (a *acks) note(rv uint64) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if one := &a.last[rv%uint64(len(a.last))]; one.rv < rv {
		*one = ack{rv, time.Now()}
	}
}

// of returns when a write was acknowledged. ok is false if it has not been yet, or long ago.
func (a *acks) of(rv uint64) (at time.Time, ok bool) {
	if a == nil {
		return at, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.last[rv%uint64(len(a.last))]
	return one.at, one.rv == rv
}

// deliveries are times from the acknowledgement of a write to its event in a client. Its methods may
// be called from any goroutine.
type deliveries struct {
	mu   sync.Mutex
	took []time.Duration
}

func (d *deliveries) add(took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.took = append(d.took, took)
}

// p99 returns the 99th percentile since it was last called, or 0 if there has been nothing.
func (d *deliveries) p99() time.Duration {
	d.mu.Lock()
	took := d.took
	d.took = nil
	d.mu.Unlock()
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[int(math.Ceil(.99*float64(len(took))))-1]
}

// measure notes how late an event came. It counts if its write was acknowledged after the stream had
// begun, and if the client reads at once. An event that overtakes the acknowledgement does not count,
// which makes percentiles higher and never lower.
func (w *watcher) measure(e event) {
	if at, ok := w.suite.acks.of(e.rv); ok && e.key != "" && w.manner == steady && w.cursor.leaps && at.After(w.opened) {
		w.at.deliveries.add(time.Since(at))
	}
}

// TestDeliveries: the 99th percentile is that of the events since the last question, and a write is
// acknowledged once.
func TestDeliveries(t *testing.T) {
	var d deliveries
	for i := range 200 {
		d.add(time.Duration(200-i) * time.Millisecond)
	}
	if first, second := d.p99(), d.p99(); first != 198*time.Millisecond || second != 0 {
		t.Errorf("p99 of 1 to 200 ms is %s, and then %s", first, second)
	}
	a := new(acks)
	a.note(5)
	first, known := a.of(5)
	a.note(5)
	if again, _ := a.of(5); !known || !again.Equal(first) {
		t.Errorf("the write at 5 was acknowledged at %s, and then at %s", first, again)
	}
	a.note(5 + uint64(len(a.last)))
	if _, known := a.of(5); known {
		t.Error("a write from long ago is still known")
	}
}
