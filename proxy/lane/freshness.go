package lane

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/request"
)

// prover proves that a lane's cache is as new as upstream was at some time after the request. The
// package comment says how. One proof serves all requests that came before it began.
type prover struct {
	lane *Lane

	mu      sync.Mutex
	next    *proof // begins when the proof under way has ended; nil if nobody waits for it
	running bool

	// Owned by loop.
	ended     time.Time     // the last proof
	served    []*proof      // that the run under way is for
	listTook  time.Duration // the last list of a large collection
	listAgain time.Time     // when it may be listed again
}

// proof is shared by the requests that come while another proof is under way.
type proof struct {
	since   time.Time     // of the first request
	hurryc  chan struct{} // closed when a request does not wait for others; never sent on
	hurried bool          // hurryc is closed; guarded by prover.mu
	donec   chan struct{} // closed when result and err are set; never sent on
	result  fanout.Proof
	err     error
}

func newProof() *proof {
	return &proof{since: time.Now(), hurryc: make(chan struct{}), donec: make(chan struct{})}
}

const (
	// smallCollection is the size, in bytes, up to which a collection is always listed.
	smallCollection = 256 << 10
	// A larger collection is listed if it has at most mostListed objects. Its lists take at most
	// 1/listShare of the time, to spare kube-apiserver. If the wait for the next list and the list
	// take listWait or more together, a watch is sooner.
	mostListed = 25_000
	listShare  = 4
	listWait   = time.Second
	// busyFor is how long after a change a resource counts as busy, and busyWait how long a proof
	// waits for the stream of a busy resource.
	busyFor  = time.Second
	busyWait = 30 * time.Millisecond
	// A proof that only patient requests wait for begins gatherFor after the first of them came, if
	// the last proof ended less than crowdFor ago. An informer of each namespace of a cache begins
	// with a proof, one shortly after the other.
	gatherFor = 50 * time.Millisecond
	crowdFor  = time.Second
)

// prove returns a proof of a state at or after the call, made within the time that ctx and timeout
// allow. A patient request may wait for others that share its proof.
func (p *prover) prove(ctx context.Context, timeout time.Duration, patient bool) (fanout.Proof, error) {
	p.mu.Lock()
	if p.next == nil {
		p.next = newProof()
	}
	pr := p.next
	if !patient && !pr.hurried {
		pr.hurried = true
		close(pr.hurryc)
	}
	if !p.running {
		p.running = p.lane.lanes.Spawn(func(ctx context.Context) { p.loop(ctx, timeout) })
	}
	running := p.running
	p.mu.Unlock()
	if !running {
		return fanout.Proof{}, fanout.ErrClosed
	}
	request.Waits(ctx)
	select {
	case <-pr.donec:
		return pr.result, pr.err
	case <-ctx.Done():
		return fanout.Proof{}, context.Cause(ctx)
	}
}

// loop makes proofs for as long as a request waits for one.
func (p *prover) loop(ctx context.Context, timeout time.Duration) {
	for {
		p.mu.Lock()
		next := p.next
		if next == nil { // from here on another loop may run
			p.running = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		p.gather(ctx, next)
		p.mu.Lock()
		p.admitLocked()
		p.mu.Unlock()
		once, cancel := context.WithTimeout(ctx, timeout)
		started := time.Now()
		result, method, err := p.provedState(once)
		cancel()
		p.ended = time.Now()
		p.lane.metrics.proved(method, err, p.ended.Sub(started))
		for _, pr := range p.served {
			pr.result, pr.err = result, err
			close(pr.donec)
		}
		p.served = nil
	}
}

// gather waits until the next proof begins. Nothing has been asked yet, so the proof serves the
// requests that come meanwhile.
func (p *prover) gather(ctx context.Context, next *proof) {
	if p.ended.IsZero() || time.Since(p.ended) >= crowdFor {
		return
	}
	over := time.NewTimer(time.Until(next.since.Add(gatherFor)))
	defer over.Stop()
	select {
	case <-over.C:
	case <-next.hurryc:
	case <-ctx.Done():
	}
}

// admitLocked has the run under way serve the requests that have come until now. What it shows from
// here on must be newer than they are.
func (p *prover) admitLocked() {
	if p.next != nil {
		p.served, p.next = append(p.served, p.next), nil
	}
}

// provedState makes one proof, and returns the method.
func (p *prover) provedState(ctx context.Context) (fanout.Proof, string, error) {
	l := p.lane
	if l.Cache.Stats().Bytes <= smallCollection {
		pr, err := l.proveByList(ctx)
		return pr, "list", err
	}
	epoch := l.Cache.Epoch()
	rv, err := l.collection.CurrentVersion(ctx)
	if err != nil {
		return fanout.Proof{}, "stream", fmt.Errorf("prove freshness of %s: %w", l, err)
	}
	pr := fanout.Proof{Epoch: epoch, At: rv, AsOf: rv}
	if l.Cache.Progress() >= rv || l.busy() && l.waitFor(ctx, rv, busyWait) {
		return pr, "stream", nil
	}
	if wait := time.Until(p.listAgain); p.mayList(wait) {
		if wait > 0 && l.waitFor(ctx, rv, wait) {
			return pr, "stream", nil
		}
		p.mu.Lock()
		p.admitLocked()
		p.mu.Unlock()
		began := time.Now()
		pr, err := l.proveByList(ctx)
		p.listTook = time.Since(began)
		p.listAgain = time.Now().Add((listShare - 1) * p.listTook)
		return pr, "list", err
	}
	return pr, "watch", l.proveByWatch(ctx, epoch, rv)
}

// mayList reports whether a large collection is listed after a wait, and not watched.
func (p *prover) mayList(wait time.Duration) bool {
	return !p.lane.lanes.spareLists && p.lane.Cache.Stats().Objects <= mostListed && wait+p.listTook < listWait
}

// busy reports whether the resource has changed lately.
func (l *Lane) busy() bool { return time.Since(l.reflector.Status().LastChange) < busyFor }

// waitFor waits until the lane's own stream has reached rv, for d at most, and reports whether it
// has.
func (l *Lane) waitFor(ctx context.Context, rv uint64, d time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return l.Cache.WaitFor(ctx, rv) == nil
}

// proveByList lists the collection, and waits until the cache holds the same objects or is newer.
func (l *Lane) proveByList(ctx context.Context) (fanout.Proof, error) {
	before := l.Cache.Progress()
	versions, asOf, err := l.collection.ListVersions(ctx)
	if err != nil {
		return fanout.Proof{}, fmt.Errorf("prove freshness of %s: %w", l, err)
	}
	if asOf < before {
		l.reflector.BreakWatch() // resuming it shows whether upstream went back in time
		return fanout.Proof{}, fmt.Errorf("prove freshness of %s: upstream is at %d, the cache at %d", l, asOf, before)
	}
	for {
		epoch := l.Cache.Epoch()
		snapshot := l.Cache.Snapshot()
		if then, ok := l.Cache.SnapshotAt(asOf); ok && !sameVersions(then, versions) {
			l.reflector.RequireRelist(asOf)
			return fanout.Proof{}, fmt.Errorf("prove freshness of %s: the cache differs from upstream at %d", l, asOf)
		}
		if snapshot.ResourceVersion >= asOf || sameVersions(snapshot, versions) {
			return fanout.Proof{Epoch: epoch, At: snapshot.ResourceVersion, AsOf: asOf}, nil
		}
		if err := l.Cache.WaitFor(ctx, snapshot.ResourceVersion+1); err != nil {
			l.reflector.BreakWatch()
			return fanout.Proof{}, fmt.Errorf("prove freshness of %s: at %d, upstream at %d: %w",
				l, snapshot.ResourceVersion, asOf, err)
		}
	}
}

// sameVersions reports whether a snapshot has the same objects in the same versions.
func sameVersions(s fanout.Snapshot, versions map[string]uint64) bool {
	if s.Len() != len(versions) {
		return false
	}
	same := true
	s.All(func(o *framing.Object) bool {
		same = versions[o.Key] == o.ResourceVersion
		return same
	})
	return same
}

// proveByWatch shows that no change is missing between what the lane's stream has brought and a
// bookmark of at least rv. Then it advances the cache to the bookmark.
func (l *Lane) proveByWatch(ctx context.Context, epoch, rv uint64) error {
	// If the lane's own stream reaches rv first, that is proof enough.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var own sync.WaitGroup
	passed := false
	own.Go(func() {
		if l.Cache.WaitFor(ctx, rv) == nil {
			passed = true
			cancel()
		}
	})

	last := l.Cache.Progress() // of the second watch's changes
	var bookmark uint64
	err := l.collection.ReadWatch(ctx, last, func(ev framing.Event) bool {
		if ev.Type == framing.Bookmark {
			bookmark = ev.ResourceVersion
			return false
		}
		last = ev.ResourceVersion
		return true
	})
	if err == nil && bookmark < rv {
		err = fmt.Errorf("bookmark %d is older than %d", bookmark, rv)
	}
	if err == nil {
		if err = l.Cache.WaitFor(ctx, last); err != nil {
			l.reflector.BreakWatch()
		}
	}
	if err == nil && !l.Cache.AdvanceFrom(epoch, last, bookmark) {
		err = errors.New("listed again meanwhile")
	}
	cancel()
	own.Wait()
	if passed || err == nil {
		return nil
	}
	return fmt.Errorf("prove freshness of %s: %w", l, err)
}
