package chaos_test

import (
	"math"
	"slices"
	"sync"
	"time"
)

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
	if w.suite.acks == nil || e.key == "" || w.manner != steady || !w.cursor.leaps {
		return
	}
	if at, ok := w.suite.acks.Load(e.rv); ok && at.(time.Time).After(w.opened) {
		w.at.deliveries.add(time.Since(at.(time.Time)))
	}
}
