package reflector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
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
	body   io.Closer // of the response; nil before it has begun

	mu       sync.Mutex
	expected time.Time   // by when something must come; zero for no such time
	timer    *time.Timer // calls look
}

// newWatchdog returns a watchdog for a watch that is asked to last for timeout. The caller must
// call stop.
func newWatchdog(ctx context.Context, h *health, timeout time.Duration) *watchdog {
	w := &watchdog{health: h, end: time.Now().Add(timeout + overtime)}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(hangTimeout, w.look)
	return w
}

// stop ends the watch.
func (w *watchdog) stop() {
	if w.body != nil {
		w.body.Close()
	}
	w.cancel(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
}

// expect breaks the watch unless the next call of expect comes within d. 0 stands for a watch that
// has begun, which may be silent between two bookmarks.
func (w *watchdog) expect(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if w.expected = now.Add(d); d == 0 {
		w.expected = time.Time{}
		w.health.note(func(s *Status) { s.LastHeard = now })
	}
	w.timer.Reset(w.leftLocked())
}

// explain returns an error of reading the watch, with errSilent if the watchdog has caused it.
func (w *watchdog) explain(err error) error {
	if err != nil && context.Cause(w.ctx) == errSilent {
		return fmt.Errorf("%w: %w", errSilent, err)
	}
	return err
}

// look breaks the watch if its time is over. Otherwise it looks again then.
func (w *watchdog) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := w.leftLocked()
	switch {
	case w.ctx.Err() != nil: // stop waits for the lock
	case left <= 0:
		w.health.note(func(s *Status) { s.bookmarked = false }) // the next watch may bring none: silence proves nothing
		w.cancel(errSilent)
	default:
		w.timer.Reset(left)
	}
}

// leftLocked returns for how long the watch may go on as it is.
func (w *watchdog) leftLocked() time.Duration {
	left, health := min(time.Until(w.end), hangTimeout), w.health.read()
	switch {
	case !w.expected.IsZero():
		left = min(left, time.Until(w.expected))
	case health.bookmarked:
		left = min(left, hangTimeout-time.Since(health.LastHeard))
	}
	return left
}

// breaker breaks the upstream watch on demand. Its fields may be used from any goroutine.
type breaker struct {
	cancel atomic.Pointer[context.CancelFunc] // ends the attempt that is under way; nil before the first
	last   *rate.Limiter                      // of watches that are broken
	relist atomic.Bool                        // the collection must be listed again
	lists  atomic.Bool                        // the attempt lists the collection, or waits for its turn to
}

// breakInterval is the least time between two watches that are broken: upstream may just be slow.
const breakInterval = 30 * time.Second

// BreakWatch breaks the upstream watch. The next one begins at the same resourceVersion. It is for
// a watch that may hang: another request has shown that upstream has changes that this watch did
// not bring in time. A list goes on: it would only begin anew, and has a watchdog of its own. It may be
// called from any goroutine.
func (r *Reflector) BreakWatch() {
	cancel := r.breaker.cancel.Load()
	if cancel == nil || r.breaker.lists.Load() || !r.breaker.last.Allow() {
		return
	}
	r.Log.Warn("Broke an upstream watch that does not bring what upstream has", "resourceVersion", r.Cache.Progress())
	(*cancel)()
}

// RequireRelist has the collection listed again, because at resourceVersion rv upstream differs
// from the cache. This happens if etcd was restored, and its resourceVersions passed those of the
// cache before the restore was noticed. If a watch has just been broken, the list begins as soon as
// another may be. It may be called from any goroutine.
func (r *Reflector) RequireRelist(rv uint64) {
	r.health.note(func(s *Status) { s.KnownWrong = true })
	if r.breaker.relist.Swap(true) {
		return
	}
	r.Log.Error("The cache is not what upstream is, listing again", "resourceVersion", rv)
	time.AfterFunc(r.breaker.last.Reserve().Delay(), func() {
		// An attempt that lists takes the difference away, or the next one lists.
		if cancel := r.breaker.cancel.Load(); cancel != nil && r.breaker.relist.Load() && !r.breaker.lists.Load() {
			(*cancel)()
		}
	})
}
