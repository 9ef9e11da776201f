package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// prover proves that a lane's cache is as new as upstream was at some instant after the question, which is what a
// WatchList without a resourceVersion promises (KEP-3157, KEP-2340). One proof serves all who asked before it began.
//
// A resourceVersion R that is current upstream is had easily; that our own stream has brought everything up to R is not, because a
// quiet resource's stream says nothing. Three things prove it:
//
//   - the stream itself passes R: what a busy resource does within milliseconds;
//   - a small collection is listed, and holds the same objects in the same versions as the cache. What may have
//     happened between the cache's resourceVersion and the list's undid itself, and who subscribes on this proof is not
//     shown it (see fanout.Proof);
//   - a second watch from the cache's resourceVersion with a timeout of 3 s, which has kube-apiserver send a bookmark B after about
//     a second. The bookmark means that the second watch has brought every change up to B. It is on another connection, so it
//     proves nothing about ours; but it has shown which changes there are up to B, and once our own stream has
//     brought the last of those, there is nothing between that one and B.
type prover struct {
	lane *lane

	mu      sync.Mutex
	next    *proof // begins when the one under way has ended; nil if nobody waits
	running bool
}

// proof is one run of a prover.
type proof struct {
	donec  chan struct{} // closed when result and err are set; never sent on
	result fanout.Proof
	err    error
}

const (
	// smallCollection is the size of a collection, in bytes, that is rather listed than waited for.
	smallCollection = 256 << 10
	// busyWait is how long a busy resource's own stream is given.
	busyWait = 30 * time.Millisecond
)

// prove returns a proof of a state at or after the call, made within the time that ctx and the freshness
// timeout give.
func (p *prover) prove(ctx context.Context, timeout time.Duration) (fanout.Proof, error) {
	p.mu.Lock()
	if p.next == nil {
		p.next = &proof{donec: make(chan struct{})}
	}
	pr := p.next
	if !p.running {
		p.running = p.lane.spawn(func(ctx context.Context) { p.loop(ctx, timeout) })
	}
	running := p.running
	p.mu.Unlock()
	if !running {
		return fanout.Proof{}, fanout.ErrClosed
	}
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
		pr := p.next
		p.next = nil
		p.running = pr != nil
		p.mu.Unlock()
		if pr == nil {
			return
		}
		once, cancel := context.WithTimeout(ctx, timeout)
		started := time.Now()
		var method string
		pr.result, method, pr.err = p.lane.provedState(once)
		cancel()
		p.lane.metrics.proved(method, pr.err, time.Since(started))
		close(pr.donec)
	}
}

// provedState makes one proof and tells by which method.
func (l *lane) provedState(ctx context.Context) (fanout.Proof, string, error) {
	if l.cache.Stats().Bytes <= smallCollection {
		pr, err := l.proveByList(ctx)
		return pr, "list", err
	}
	epoch := l.cache.Epoch()
	rv, err := l.currentVersion(ctx)
	if err != nil {
		return fanout.Proof{}, "watch", err
	}
	pr := fanout.Proof{Epoch: epoch, At: rv, AsOf: rv}
	if l.waitFor(ctx, rv, busyWait) {
		return pr, "stream", nil
	}
	return pr, "watch", l.proveByWatch(ctx, epoch, rv)
}

// waitFor reports whether the lane's own stream has passed rv within d.
func (l *lane) waitFor(ctx context.Context, rv uint64, d time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return l.cache.WaitFor(ctx, rv) == nil
}

// proveByList lists the collection and waits until the cache holds the same, or is newer.
func (l *lane) proveByList(ctx context.Context) (fanout.Proof, error) {
	before := l.cache.Progress()
	resp, err := l.get(ctx, "")
	if err != nil {
		return fanout.Proof{}, fmt.Errorf("prove freshness of %s: %w", l, err)
	}
	defer resp.Body.Close()
	versions := make(map[string]uint64)
	list := framing.NewListReader(resp.Body)
	scanner := framing.NewScanner(nil)
	for {
		raw, err := list.Next()
		if err == io.EOF {
			break
		}
		var o *framing.Object
		if err == nil {
			o, err = scanner.Item(raw, nil)
		}
		if err != nil {
			return fanout.Proof{}, fmt.Errorf("prove freshness of %s: %w", l, err)
		}
		versions[o.Key] = o.ResourceVersion
	}
	meta, err := list.Metadata()
	if err != nil {
		return fanout.Proof{}, fmt.Errorf("prove freshness of %s: %w", l, err)
	}
	if meta.ResourceVersion < before {
		l.suspect() // which finds out whether upstream went back in time
		return fanout.Proof{}, fmt.Errorf("prove freshness of %s: upstream is at %d, the cache at %d", l, meta.ResourceVersion, before)
	}
	for {
		epoch := l.cache.Epoch()
		snapshot := l.cache.Snapshot()
		if snapshot.ResourceVersion >= meta.ResourceVersion || sameVersions(snapshot, versions) {
			return fanout.Proof{Epoch: epoch, At: snapshot.ResourceVersion, AsOf: meta.ResourceVersion}, nil
		}
		if err := l.cache.WaitFor(ctx, snapshot.ResourceVersion+1); err != nil {
			l.suspect()
			return fanout.Proof{}, fmt.Errorf("prove freshness of %s: at %d, upstream at %d: %w",
				l, snapshot.ResourceVersion, meta.ResourceVersion, err)
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

// currentVersion asks upstream for its current resourceVersion: the bookmark of a consistent WatchList that matches nothing.
func (l *lane) currentVersion(ctx context.Context) (uint64, error) {
	var rv uint64
	err := l.readWatch(ctx, query(
		"watch", "true",
		"sendInitialEvents", "true",
		"resourceVersionMatch", "NotOlderThan",
		"allowWatchBookmarks", "true",
		"fieldSelector", matchesNothing,
		"timeoutSeconds", "5",
	), func(ev framing.Event) bool {
		rv = ev.ResourceVersion
		return ev.Type != framing.Bookmark
	})
	if err != nil {
		return 0, fmt.Errorf("prove freshness of %s: %w", l, err)
	}
	return rv, nil
}

// proveByWatch shows that there is nothing between what the lane's stream has brought and a bookmark of at least
// rv, and tells the cache.
func (l *lane) proveByWatch(ctx context.Context, epoch, rv uint64) error {
	// Should our own stream come there first, that will do.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var own sync.WaitGroup
	passed := false
	own.Go(func() {
		if l.cache.WaitFor(ctx, rv) == nil {
			passed = true
			cancel()
		}
	})

	last := l.cache.Progress() // of the changes that the second watch has shown
	var bookmark uint64
	err := l.readWatch(ctx, query(
		"watch", "true",
		"resourceVersion", strconv.FormatUint(last, 10),
		"allowWatchBookmarks", "true",
		"timeoutSeconds", "3",
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
		if err = l.cache.WaitFor(ctx, last); err != nil {
			l.suspect()
		}
	}
	if err == nil && !l.cache.AdvanceFrom(epoch, last, bookmark) {
		err = errors.New("listed anew meanwhile")
	}
	cancel()
	own.Wait()
	if passed || err == nil {
		return nil
	}
	return fmt.Errorf("prove freshness of %s: %w", l, err)
}

// readWatch calls f for each event of a watch of the lane's collection until f returns false. The stream's
// end before that, or an ERROR event, is an error.
func (l *lane) readWatch(ctx context.Context, query string, f func(framing.Event) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := l.get(ctx, query)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := framing.NewLineReader(resp.Body)
	scanner := framing.NewScanner(l.fields)
	for {
		line, err := lines.Next()
		if err == io.EOF {
			return errors.New("watch ended before it told how far it had come")
		}
		if err != nil {
			return err
		}
		ev, err := scanner.Event(line)
		if err != nil {
			return err
		}
		if ev.Type == framing.Error {
			return eventError(ev)
		}
		if !f(ev) {
			return nil
		}
	}
}
