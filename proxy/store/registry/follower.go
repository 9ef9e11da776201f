package registry

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// follower follows a resource that says how others are served, by a lane like any other, with the
// proxy's own identity. It begins with a question and ends when nothing needs it any more.
type follower struct {
	lanes     *lane.Lanes
	discovery *upstream.Discovery
	resource  schema.GroupVersionResource

	// scan is called with mu held, once the objects are known and whenever one has changed.
	scan func(fanout.Snapshot)
	// failed is called with mu held when the objects cannot be followed. The next attempt comes
	// after retryIn. The error is upstream.ErrNotFound if upstream has no such resource.
	failed func(err error, retryIn time.Duration)
	// needed reports whether the objects are still needed.
	needed func() bool
	// forget forgets the content of the objects and reports true, unless it is needed.
	forget func() bool

	mu        sync.Mutex
	following bool          // follow is running
	knownc    chan struct{} // closed when lane is set or follow has failed; replaced when follow begins
	lane      *lane.Lane    // of the resource, filled; nil while the resource is not followed
	again     time.Time     // when to try again after a failure
	retry     time.Duration // how long the wait after the last failure was
}

const (
	// followWait is how long a request waits for the objects to be listed.
	followWait = 5 * time.Second
	// staleAfter is for how long the upstream watch may be broken before the objects count as
	// outdated.
	staleAfter = 5 * time.Second
	// followTick is how often follow checks whether the objects are still needed.
	followTick     = 10 * time.Second
	minFollowRetry = 2 * time.Second
)

// begin has the objects followed, and returns a channel that is closed when they are known or
// cannot be followed.
func (f *follower) begin() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.following && !time.Now().Before(f.again) {
		f.knownc = make(chan struct{})
		if f.following = f.lanes.Spawn(f.follow); !f.following {
			close(f.knownc)
		}
	}
	return f.knownc
}

// await has the objects followed, and waits until they are known or cannot be followed.
func (f *follower) await(ctx context.Context) {
	known := f.begin()
	select {
	case <-known:
		return
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, followWait)
	defer cancel()
	exchange.Waits(ctx)
	select {
	case <-known:
	case <-ctx.Done():
	}
}

// follow follows the objects for as long as they are needed.
func (f *follower) follow(ctx context.Context) {
	l, err := f.open(ctx)
	f.mu.Lock()
	f.lane = l
	if err != nil {
		f.retry = min(max(2*f.retry, minFollowRetry), upstream.DiscoveryTTL)
		f.again = time.Now().Add(f.retry)
		f.failed(err, f.retry)
	} else {
		f.retry = 0
		f.scan(l.Cache.Snapshot())
	}
	close(f.knownc)
	f.mu.Unlock()
	if l != nil {
		f.watch(ctx, l)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lane, f.following = nil, false
	if ctx.Err() == nil {
		time.AfterFunc(max(followTick, time.Until(f.again)), f.beginAgain)
	}
}

// beginAgain has the objects followed again if they are needed: their lane has ended, they could not be
// followed, or a request that came just before the end has started a lane since. An open watch asks nothing.
func (f *follower) beginAgain() {
	if f.needed() {
		f.begin()
	}
}

// open returns the lane of the objects, filled. The caller releases it.
func (f *follower) open(ctx context.Context) (*lane.Lane, error) {
	ctx, cancel := context.WithTimeout(ctx, lane.Wait)
	defer cancel()
	info, ok := f.discovery.Lookup(ctx, f.resource)
	if !ok {
		return nil, f.discovery.WhyNot(ctx, f.resource)
	}
	if !info.Watchable {
		return nil, upstream.ErrNotFound
	}
	l, _ := f.lanes.Acquire(info, lane.Key{GVR: f.resource}, true, 0, nil)
	if l == nil {
		return nil, errors.New("there is no room for them, or the server stops")
	}
	if !l.Ready(ctx) {
		f.lanes.Discard(l)
		return nil, errNotListed
	}
	return l, nil
}

var errNotListed = errors.New("upstream did not list them") // the lane's log says why

// watch scans the objects when they change, until nothing needs them or their lane ends.
func (f *follower) watch(ctx context.Context, l *lane.Lane) {
	defer f.lanes.Release(l)
	for needed := time.Now(); ; {
		tick, cancel := context.WithTimeout(ctx, followTick)
		at := l.Cache.Progress()
		f.mu.Lock()
		f.scan(l.Cache.Snapshot())
		f.mu.Unlock()
		err := l.Cache.WaitOther(tick, at)
		cancel()
		switch {
		case ctx.Err() != nil || errors.Is(err, fanout.ErrClosed):
			return
		case f.needed():
			needed = time.Now()
		case time.Since(needed) > f.lanes.IdleTimeout() && f.forget():
			return
		}
	}
}

// currentLocked reports whether the objects are followed, and their upstream watch is open or has
// not been broken for long.
func (f *follower) currentLocked() bool {
	return f.lane != nil && f.lane.BrokenFor() < staleAfter
}
