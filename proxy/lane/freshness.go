package lane

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/request"
	"github.com/watchfan/watchfan/proxy/upstream"
)

// prover proves that a lane's cache is as new as upstream was at some instant after the question;
// the package comment says how. One proof serves all who asked before it began.
type prover struct {
	lane *Lane

	mu      sync.Mutex
	next    *proof // begins when the one under way has ended; nil if nobody waits
	running bool

	// Owned by loop.
	served    []*proof      // those that the run under way is for
	listTook  time.Duration // the last list of a large collection
	listAgain time.Time     // when it may be listed again
}

// proof is what those share who ask at the same time.
type proof struct {
	donec  chan struct{} // closed when result and err are set; never sent on
	result fanout.Proof
	err    error
}

const (
	// smallCollection is the size of a collection, in bytes, that is always listed.
	smallCollection = 256 << 10
	// mostListed is how many objects a larger one may have to be listed, and listShare the part of
	// the time, as a divisor, that its lists may take: kube-apiserver is to be spared them. If that
	// is a matter of listWait or more, a watch is sooner.
	mostListed = 25_000
	listShare  = 4
	listWait   = time.Second
	// busyFor is how long after a change a resource counts as busy, and busyWait how long its
	// stream is given.
	busyFor  = time.Second
	busyWait = 30 * time.Millisecond
)

// Prove returns a proof of a state at or after the call, made within the time that ctx and the
// freshness timeout give.
func (p *prover) Prove(ctx context.Context, timeout time.Duration) (fanout.Proof, error) {
	p.mu.Lock()
	if p.next == nil {
		p.next = &proof{donec: make(chan struct{})}
	}
	pr := p.next
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

// loop makes proofs for as long as somebody waits for one.
func (p *prover) loop(ctx context.Context, timeout time.Duration) {
	for {
		p.mu.Lock()
		if p.next == nil { // from here on another loop may run
			p.running = false
			p.mu.Unlock()
			return
		}
		p.admitLocked()
		p.mu.Unlock()
		once, cancel := context.WithTimeout(ctx, timeout)
		started := time.Now()
		result, method, err := p.provedState(once)
		cancel()
		p.lane.Metrics.proved(method, err, time.Since(started))
		for _, pr := range p.served {
			pr.result, pr.err = result, err
			close(pr.donec)
		}
		p.served = nil
	}
}

// admitLocked has the run under way serve those who have asked until now. Everything that it shows
// from here on must be newer.
func (p *prover) admitLocked() {
	if p.next != nil {
		p.served, p.next = append(p.served, p.next), nil
	}
}

// provedState makes one proof and tells by which method.
func (p *prover) provedState(ctx context.Context) (fanout.Proof, string, error) {
	l := p.lane
	if l.Cache.Stats().Bytes <= smallCollection {
		pr, err := l.proveByList(ctx)
		return pr, "list", err
	}
	epoch := l.Cache.Epoch()
	rv, err := l.currentVersion(ctx)
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

// mayList reports whether a large collection is rather listed, in a while, than watched.
func (p *prover) mayList(wait time.Duration) bool {
	return !p.lane.lanes.spareLists && p.lane.Cache.Stats().Objects <= mostListed && wait+p.listTook < listWait
}

// busy reports whether the resource has changed lately.
func (l *Lane) busy() bool { return time.Since(l.Health.lastChange.time()) < busyFor }

// waitFor reports whether the lane's own stream has passed rv within d.
func (l *Lane) waitFor(ctx context.Context, rv uint64, d time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return l.Cache.WaitFor(ctx, rv) == nil
}

// proveByList lists the collection and waits until the cache holds the same, or is newer.
func (l *Lane) proveByList(ctx context.Context) (fanout.Proof, error) {
	before := l.Cache.Progress()
	versions, asOf, err := l.listVersions(ctx)
	if err != nil {
		return fanout.Proof{}, fmt.Errorf("prove freshness of %s: %w", l, err)
	}
	if asOf < before {
		l.breakWatch() // which finds out whether upstream went back in time
		return fanout.Proof{}, fmt.Errorf("prove freshness of %s: upstream is at %d, the cache at %d", l, asOf, before)
	}
	for {
		epoch := l.Cache.Epoch()
		snapshot := l.Cache.Snapshot()
		if then, ok := l.Cache.SnapshotAt(asOf); ok && !sameVersions(then, versions) {
			l.requireRelist(asOf)
			return fanout.Proof{}, fmt.Errorf("prove freshness of %s: the cache is not what upstream was at %d", l, asOf)
		}
		if snapshot.ResourceVersion >= asOf || sameVersions(snapshot, versions) {
			return fanout.Proof{Epoch: epoch, At: snapshot.ResourceVersion, AsOf: asOf}, nil
		}
		if err := l.Cache.WaitFor(ctx, snapshot.ResourceVersion+1); err != nil {
			l.breakWatch()
			return fanout.Proof{}, fmt.Errorf("prove freshness of %s: at %d, upstream at %d: %w",
				l, snapshot.ResourceVersion, asOf, err)
		}
	}
}

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

// metadataOnly is the Accept header of a list whose objects' versions are all that matters. Whoever
// has not the first has the last.
const metadataOnly = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

// proveByWatch shows that there is nothing between what the lane's stream has brought and a
// bookmark of at least rv, and tells the cache.
func (l *Lane) proveByWatch(ctx context.Context, epoch, rv uint64) error {
	// Should our own stream come there first, that will do.
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

	last := l.Cache.Progress() // of the changes that the second watch has shown
	var bookmark uint64
	err := l.readWatch(ctx, upstream.Query(
		"watch", "true",
		"resourceVersion", strconv.FormatUint(last, 10),
		"allowWatchBookmarks", "true",
		"timeoutSeconds", strconv.Itoa(request.ProbeSeconds),
	), func(ev framing.Event) bool {
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
			l.breakWatch()
		}
	}
	if err == nil && !l.Cache.AdvanceFrom(epoch, last, bookmark) {
		err = errors.New("listed anew meanwhile")
	}
	cancel()
	own.Wait()
	if passed || err == nil {
		return nil
	}
	return fmt.Errorf("prove freshness of %s: %w", l, err)
}
