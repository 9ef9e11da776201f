package lane

import (
	"context"
	"sync/atomic"
	"time"
)

// watchBreaker breaks a lane's upstream watch, so that the reflector begins another one. Its
// methods may be called from any goroutine.
type watchBreaker struct {
	cancel atomic.Pointer[context.CancelFunc] // ends the watch that is under way; nil before the first
	last   moment                             // when a watch was last broken
	relist atomic.Bool                        // the collection must be listed again
}

// breakInterval is the least time between two watches that are broken: upstream may just be slow.
const breakInterval = 30 * time.Second

// arm makes cancel end the watch from now on.
func (b *watchBreaker) arm(cancel context.CancelFunc) { b.cancel.Store(&cancel) }

// breakWatch breaks the lane's upstream watch. The next one begins at the same resourceVersion.
// Upstream has shown changes in time that this watch did not bring, so it may hang.
func (l *Lane) breakWatch() {
	cancel := l.breaker.cancel.Load()
	if cancel == nil || !l.breaker.last.once(breakInterval) {
		return
	}
	l.Log.Warn("Broke off an upstream watch that does not bring what upstream has", "resourceVersion", l.Cache.Progress())
	(*cancel)()
}

// requireRelist has the collection listed again: at resourceVersion rv upstream differs from the
// cache. This happens where etcd was restored, and its resourceVersions passed those of the cache
// before the restore was noticed. The list shows what is right.
func (l *Lane) requireRelist(rv uint64) {
	if !l.breaker.relist.Swap(true) {
		l.Log.Error("The cache is not what upstream is, listing anew", "resourceVersion", rv)
	}
	l.breakWatch()
}
