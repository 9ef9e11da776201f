package reflector

import (
	"context"
	"sync/atomic"
	"time"
)

// breaker breaks the upstream watch on demand. Its fields may be used from any goroutine.
type breaker struct {
	cancel atomic.Pointer[context.CancelFunc] // ends the attempt that is under way; nil before the first
	last   moment                             // when a watch was last broken
	relist atomic.Bool                        // the collection must be listed again
	wrong  atomic.Bool                        // the same, until it has been listed
}

// breakInterval is the least time between two watches that are broken: upstream may just be slow.
const breakInterval = 30 * time.Second

// arm makes cancel end the watch from now on.
func (b *breaker) arm(cancel context.CancelFunc) { b.cancel.Store(&cancel) }

// BreakWatch breaks the upstream watch. The next one begins at the same resourceVersion. It is for
// a watch that may hang: another request has shown that upstream has changes that this watch did
// not bring in time. It may be called from any goroutine.
func (r *Reflector) BreakWatch() {
	cancel := r.breaker.cancel.Load()
	if cancel == nil || !r.breaker.last.once(breakInterval) {
		return
	}
	r.log.Warn("Broke an upstream watch that does not bring what upstream has", "resourceVersion", r.cache.Progress())
	(*cancel)()
}

// RequireRelist has the collection listed again, because at resourceVersion rv upstream differs
// from the cache. This happens if etcd was restored, and its resourceVersions passed those of the
// cache before the restore was noticed. It may be called from any goroutine.
func (r *Reflector) RequireRelist(rv uint64) {
	r.breaker.wrong.Store(true)
	if !r.breaker.relist.Swap(true) {
		r.log.Error("The cache is not what upstream is, listing again", "resourceVersion", rv)
	}
	r.BreakWatch()
}

// KnownWrong reports whether RequireRelist has been called and the collection has not been listed
// since. It may be called from any goroutine.
func (r *Reflector) KnownWrong() bool { return r.breaker.wrong.Load() }
