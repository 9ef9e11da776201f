package reflector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// hangTimeout is how long a watch that has brought bookmarks may bring nothing.
	// kube-apiserver sends a bookmark each minute.
	hangTimeout = 150 * time.Second
	// overtime is how much longer a watch may last than it was asked to.
	overtime = 30 * time.Second
)

// errSilent is the cause when a watchdog breaks a watch.
var errSilent = errors.New("upstream has gone silent")

// watchdog breaks an upstream watch that hangs although its connection is alive:
//
//   - The response's head, or the next initial event, does not come in time.
//   - The watch has brought bookmarks, and then nothing for hangTimeout.
//   - The watch is open for longer than its timeout and overtime.
//
// A watch that has brought no bookmark may be silent until its timeout: upstream sends no bookmarks
// for a resource that has not changed since kube-apiserver started, if etcd does not notify
// kube-apiserver of its progress.
type watchdog struct {
	health *health
	ctx    context.Context // of the watch
	cancel context.CancelCauseFunc
	end    time.Time // after which the watch is overdue

	running sync.WaitGroup
	wakec   chan struct{} // one token: expected has changed; never closed

	mu       sync.Mutex
	since    time.Time // when expect was last called
	expected time.Time // by when something must come; zero for no such time
}

// newWatchdog returns a watchdog for a watch that is asked to last for timeout. The caller must
// call stop.
func newWatchdog(ctx context.Context, h *health, timeout time.Duration) *watchdog {
	now := time.Now()
	w := &watchdog{
		health: h,
		end:    now.Add(timeout + overtime),
		wakec:  make(chan struct{}, 1),
		since:  now,
	}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.running.Go(w.run)
	return w
}

// stop ends the watch.
func (w *watchdog) stop() {
	w.cancel(nil)
	w.running.Wait()
}

// expect breaks the watch unless the next call of expect comes within d. 0 stands for a watch that
// has begun, which may be silent between two bookmarks.
func (w *watchdog) expect(d time.Duration) {
	w.mu.Lock()
	w.since, w.expected = time.Now(), time.Time{}
	if d > 0 {
		w.expected = w.since.Add(d)
	}
	w.mu.Unlock()
	select {
	case w.wakec <- struct{}{}:
	default:
	}
}

// explain returns an error of reading the watch, with errSilent if the watchdog has caused it.
func (w *watchdog) explain(err error) error {
	if err != nil && context.Cause(w.ctx) == errSilent {
		return fmt.Errorf("%w: %w", errSilent, err)
	}
	return err
}

func (w *watchdog) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-w.wakec:
		case <-w.ctx.Done():
			return
		}
		left := w.left()
		if left <= 0 {
			w.health.bookmarked.Store(false) // the next watch may bring none, and then silence proves nothing
			w.cancel(errSilent)
			return
		}
		timer.Reset(left)
	}
}

// left returns for how long the watch may go on as it is.
func (w *watchdog) left() time.Duration {
	left := min(time.Until(w.end), hangTimeout)
	w.mu.Lock()
	since, expected := w.since, w.expected
	w.mu.Unlock()
	switch {
	case !expected.IsZero():
		left = min(left, time.Until(expected))
	case w.health.bookmarked.Load():
		if heard := w.health.lastHeard.time(); heard.After(since) {
			since = heard
		}
		left = min(left, hangTimeout-time.Since(since))
	}
	return left
}
