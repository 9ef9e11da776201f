package lane

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/base/semaphore"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/fresh"
	"github.com/watchfan/watchfan/proxy/store/reflector"
)

// Lane is one resource in one representation: its reflector, which follows it upstream, and its
// cache, which serves it to clients.
type Lane struct {
	// Immutable after NewLane.
	Key
	Cache      *fanout.Cache
	Collection *reflector.Collection
	Freshness  *fresh.Prover
	Log        *slog.Logger
	info       upstream.ResourceInfo
	reflector  *reflector.Reflector
	lanes      *Lanes
	metrics    laneMetrics
	started    time.Time
	order      uint64 // of the starts of all lanes; tells those with a selection apart

	// Each of these says who owns its fields.
	filling *filling
	history historyBackfill

	// from is the smallest resourceVersion that a first client of Tables has asked for; 0 for none.
	from atomic.Uint64

	// outdated is set when the resource has another definition than the lane, or when another
	// server answers for it.
	outdated atomic.Bool

	// checked is the last comparison with upstream; nil before the first.
	checked atomic.Pointer[Checked]

	// different is how often the lane had been listed again when a comparison found it different; nil
	// while it is not known to be. It is owned by the caller of NoteChecked.
	different *uint64

	mistrusted  atomic.Bool  // see mistrust.go
	held        atomic.Int64 // bytes of memory at the last count
	surrendered atomic.Bool  // given up, because of what the source holds that alone keeps it

	laneUse // guarded by lanes.mu
}

// NewLane returns a lane that nothing fills: its reflector does not run.
func NewLane(ls *Lanes, key Key, info upstream.ResourceInfo) *Lane {
	l := &Lane{
		Key:        key,
		Cache:      ls.newCache(key.Representation),
		info:       info,
		Collection: ls.source.Collection(info, key.Representation, key.Selection),
		lanes:      ls,
		started:    time.Now(),
		laneUse:    laneUse{keepers: make(map[account.Source]*Keeper)},
		filling:    newFilling(),
		history:    historyBackfill{turn: semaphore.New(1)},
	}
	ls.lastLane++
	l.order = ls.lastLane
	l.Cache.IndexWith(ls.indexer)
	if l.Collection.Uncached() { // the only resource that is known to have an etcd of its own in many clusters
		l.Cache.SetApart()
	}
	l.Log = ls.cfg.Guard.Log.With("resource", l.Resource(), "encoding", l.Representation.String())
	if l.selects() {
		l.Log = l.Log.With("selection", l.order)
	}
	l.metrics = newLaneMetrics(l)
	l.reflector = reflector.New(reflector.Config{
		Collection: l.Collection,
		Cache:      l.Cache,
		Filling:    l.filling,
		Redefined:  l.redefined,
		From:       l.from.Load,
		Series:     l.metrics.Series,
		Log:        l.Log,
	})
	l.Freshness = fresh.New(l.reflector, ls.Spawn, ls.cfg.Options.Tuning.SpareLists)
	return l
}

// Key tells lanes apart.
type Key struct {
	GVR schema.GroupVersionResource
	request.Representation
	Selection reflector.Selection // of Tables only; see tables.go
}

// Resource is the lane's resource, as logs name it: apps/v1/deployments.
func (l *Lane) Resource() string { return request.ResourceText(l.GVR) }

// WatchList reports whether upstream is known to serve sendInitialEvents (KEP-3157).
func (l *Lane) WatchList() bool { return l.reflector.Status().WatchList }

// SeedIdentity returns what a sibling replica must have in common with this one to be filled from the lane (package
// seed). It returns an error unless the cache is filled and not known to be wrong, and has not lost upstream.
func (l *Lane) SeedIdentity(ctx context.Context) (string, error) {
	up := l.reflector.Status()
	if up.Build == nil || !l.Synced() || l.BrokenFor() >= seedsBroken || up.KnownWrong || l.outdated.Load() {
		return "", errNoSeed
	}
	return l.lanes.cfg.Siblings.Identity(ctx, *up.Build)
}

var errNoSeed = errors.New("the lane has nothing for a sibling now")

// seedsBroken is for how long a lane that has lost upstream may still fill siblings.
const seedsBroken = 10 * time.Second
