package lane

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// hangTimeout is how long a watch that has brought bookmarks may bring nothing. kube-apiserver
	// sends one each minute.
	hangTimeout = 150 * time.Second
	// overtime is how much longer a watch may last than it was asked to.
	overtime = 30 * time.Second
)

// ErrSilent is the cause when a watchdog breaks a watch.
var ErrSilent = errors.New("upstream has gone silent")

// watchdog breaks an upstream watch that hangs although its connection is alive:
//
//   - The response's head, or the next initial event, does not come in time.
//   - The watch has brought bookmarks, and then nothing for hangTimeout.
//   - The watch is open for longer than its timeout and overtime.
//
// A watch that has brought no bookmark may be silent until its timeout: upstream sends no bookmarks
// for a resource that has not changed since kube-apiserver began, where etcd does not notify it of
// its progress.
type watchdog struct {
	lane   *Lane
	ctx    context.Context // of the watch
	cancel context.CancelCauseFunc
	end    time.Time // after which the watch is overdue

	running sync.WaitGroup
	wakec   chan struct{} // one token: expected has changed; never closed

	mu       sync.Mutex
	since    time.Time // when expect was last called
	expected time.Time // by when something is to come; zero for no such time
}

// watchdog returns a watchdog for a watch that is to last for timeout.
func (l *Lane) watchdog(ctx context.Context, timeout time.Duration) *watchdog {
	now := time.Now()
	w := &watchdog{lane: l, since: now, end: now.Add(timeout + overtime), wakec: make(chan struct{}, 1)}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.running.Go(w.run)
	return w
}

// stop ends the watch.
func (w *watchdog) stop() {
	w.cancel(nil)
	w.running.Wait()
}

// expect has something to come within d; 0 is the silence between two bookmarks.
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

// explain returns err, of reading the watch, or why the watchdog has broken it.
func (w *watchdog) explain(err error) error {
	if err != nil && context.Cause(w.ctx) == ErrSilent {
		return fmt.Errorf("%w: %w", ErrSilent, err)
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
			w.lane.Health.bookmarked.Store(false) // should the next not bring any, that is how it is
			w.cancel(ErrSilent)
			return
		}
		timer.Reset(left)
	}
}

// left is for how long nothing need be done.
func (w *watchdog) left() time.Duration {
	l := w.lane
	left := min(time.Until(w.end), l.lanes.hang)
	w.mu.Lock()
	since, expected := w.since, w.expected
	w.mu.Unlock()
	switch {
	case !expected.IsZero():
		left = min(left, time.Until(expected))
	case l.Health.bookmarked.Load():
		if heard := l.Health.lastHeard.time(); heard.After(since) {
			since = heard
		}
		left = min(left, l.lanes.hang-time.Since(since))
	}
	return left
}
