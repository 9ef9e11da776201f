package registry

import (
	"context"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/fresh"
	"github.com/watchfan/watchfan/proxy/store/lane"
)

// Namespaces follows the namespaces for views that select objects by the labels of their namespaces, and for
// clients whose namespaces name their views. It tells all lanes of each change (fanout.Cache.SetNamespaces).
// It uses a lane like any other, with the proxy's own identity, for as long as such views have watches, or
// such clients may come, and for the idle timeout after that.
//
// A lane of another resource may have an event sooner than the lane of namespaces has the namespace. Its
// view lacks the object until then.
type Namespaces struct {
	follower
	asked  atomic.Int64 // when they were last asked for, a fanout.MonotonicTime
	always func() bool  // reports whether they are needed whoever asks
	told   func(map[string]labels.Set)

	// Guarded by mu.
	known   fanout.NamespaceLabels // the last that the lanes were told
	scanned *lane.Lane             // that has them
	epoch   uint64                 // of its cache
	at      uint64                 // the resourceVersion of what it had
	state   fanout.Identity        // of what it had
}

// NewNamespaces returns a Namespaces that follows nothing before the first question. From then on it goes on
// as long as always reports true. It calls told with the labels of all namespaces when they have changed, one
// call at a time.
func NewNamespaces(
	ls *lane.Lanes, discovery *upstream.Discovery, always func() bool, told func(map[string]labels.Set), log *slog.Logger,
) *Namespaces {
	n := &Namespaces{always: always, told: told}
	unknown := func(err error, retryIn time.Duration) {
		log.Error("Cannot follow namespaces, so no view selects by their labels, and they name none", "err", err, "retryIn", retryIn)
	}
	n.follower = follower{lanes: ls, discovery: discovery, resource: upstream.NamespacesResource, scan: n.scanLocked,
		failed: unknown, needed: n.needed, forget: func() bool { return true }}
	return n
}

func (n *Namespaces) needed() bool {
	return fanout.MonotonicNow()-fanout.MonotonicTime(n.asked.Load()) < fanout.MonotonicTime(followTick) ||
		n.always() || n.lanes.SelectNamespaces()
}

// Known waits until the lanes know the namespaces, and reports whether they do. If current is true, they
// know each change that was acknowledged before the call.
func (n *Namespaces) Known(ctx context.Context, current bool, patience time.Duration) bool {
	n.asked.Store(int64(fanout.MonotonicNow()))
	called := time.Now()
	n.await(ctx)
	n.mu.Lock()
	l := n.lane
	n.mu.Unlock()
	if l == nil || !current || l.FilledAfter(called) {
		return l != nil
	}
	proof, err := l.Freshness.Prove(ctx, patience, fresh.Need{})
	if err != nil || l.Cache.WaitFor(ctx, proof.At) != nil {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lane != l {
		return false // it has just ended
	}
	n.scanLocked(l.Cache.Snapshot())
	return true
}

// scanLocked tells the lanes of the namespaces, if there are others or they have other labels.
func (n *Namespaces) scanLocked(s fanout.Snapshot) {
	before, epoch := n.known, n.lane.Cache.Epoch()
	gap := n.scanned != n.lane || n.epoch != epoch
	if !gap && n.state == s.Identity() {
		return // as mostly: each read that wants the current namespaces comes here
	}
	// An etcd that was restored knows nothing of what was told before: its resourceVersions come again.
	now := &fanout.NamespaceLabels{
		ByName: make(map[string]labels.Set, s.Len()), Since: min(before.Since, s.ResourceVersion), Gap: gap}
	if n.scanned == n.lane && gap && s.ResourceVersion < n.at { // and not another lane, which a seed has filled
		now.Restored = s.ResourceVersion
	}
	n.scanned, n.epoch, n.at, n.state = n.lane, epoch, s.ResourceVersion, s.Identity()
	same := !gap && s.Len() == len(before.ByName)
	s.All(func(o *framing.Object) bool {
		was, there := before.ByName[o.Name]
		now.ByName[o.Name] = o.Labels
		if there || before.ByName == nil {
			now.Since = max(now.Since, o.ResourceVersion)
		}
		same = same && there && maps.Equal(was, labels.Set(o.Labels))
		return true
	})
	if same {
		return
	}
	n.known = *now
	n.lanes.SetNamespaces(now)
	n.told(now.ByName)
}
