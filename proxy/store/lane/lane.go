package lane

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/base/semaphore"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/reflector"
)

// Lane is one resource in one representation: its reflector, which follows it upstream, and its
// cache, which serves it to clients.
type Lane struct {
	// Immutable after NewLane.
	Key
	Cache      *fanout.Cache
	Log        *slog.Logger
	info       upstream.ResourceInfo
	collection *reflector.Collection
	reflector  *reflector.Reflector
	lanes      *Lanes
	metrics    laneMetrics
	started    time.Time
	number     uint64 // tells lanes with a selection apart; 0 for others

	// Each of these says who owns its fields.
	filling *filling
	prover  *prover
	history historyBackfill

	// from is the smallest resourceVersion that a first client of Tables has asked for; 0 for none.
	from atomic.Uint64

	// outdated is set when the resource has another definition than the lane, or when another
	// server answers for it.
	outdated atomic.Bool

	// checked is the last comparison with upstream; nil before the first.
	checked atomic.Pointer[Checked]

	held        atomic.Int64 // bytes of memory at the last count
	surrendered atomic.Bool  // given up, because of what the source holds that alone keeps it

	laneUse // guarded by lanes.mu
	keeping // guarded by lanes.mu
}

// laneUse says who uses a lane.
type laneUse struct {
	users     int
	idleSince time.Time          // when the last user left
	stop      context.CancelFunc // ends the reflector
}

// NewLane returns a lane that nothing fills: its reflector does not run.
func NewLane(ls *Lanes, key Key, info upstream.ResourceInfo) *Lane {
	l := &Lane{
		Key:        key,
		Cache:      ls.newCache(key.Representation),
		info:       info,
		collection: ls.source.Collection(info, key.Representation).Selected(key.Selection),
		lanes:      ls,
		started:    time.Now(),
		filling:    newFilling(),
		history:    historyBackfill{turn: semaphore.New(1), skipped: semaphore.New(mostSkipped)},
	}
	l.Cache.IndexWith(ls.indexer)
	l.Log = ls.log.With("resource", l.Resource(), "encoding", l.Representation.String())
	if l.selects() {
		ls.lastSelection++
		l.number = ls.lastSelection
		l.Log = l.Log.With("selection", l.number)
	}
	l.prover = &prover{lane: l}
	l.metrics = newLaneMetrics(l)
	l.reflector = reflector.New(reflector.Config{
		Collection: l.collection,
		Cache:      l.Cache,
		Filling:    l.filling,
		Redefined:  l.redefined,
		From:       l.from.Load,
		Metrics:    l.metrics.set,
		Series:     l.metrics.name,
		Log:        l.Log,
	})
	return l
}

// Key tells lanes apart.
type Key struct {
	GVR schema.GroupVersionResource
	request.Representation
	Selection reflector.Selection // of Tables only; see tables.go
}

// String names the lane in errors: apps/v1/deployments (protobuf).
func (l *Lane) String() string { return l.collection.String() }

// Resource is the lane's resource, as logs name it: apps/v1/deployments.
func (l *Lane) Resource() string { return request.ResourceText(l.GVR) }

// FieldLabels returns the fields that the objects can be selected by, besides those of every
// resource.
func (l *Lane) FieldLabels() []string { return l.collection.FieldLabels() }

// Form returns how upstream writes lists of the resource; nil before the lane is filled.
func (l *Lane) Form() *framing.ListForm { return l.collection.Form() }

// Warnings returns the Warning headers of the lane's responses, whoever asks. Read only.
func (l *Lane) Warnings() []string { return l.collection.Warnings() }

// WatchList reports whether upstream is known to serve sendInitialEvents (KEP-3157).
func (l *Lane) WatchList() bool { return l.reflector.WatchList() }

// Uncached reports whether kube-apiserver has no watch cache for the resource. Then its watch never
// tells how far it has come (kubernetes/pkg/kubeapiserver/default_storage_factory_builder.go).
func (l *Lane) Uncached() bool {
	g := l.GVR
	return g.Resource == "events" && (g.Group == "" || g.Group == "events.k8s.io")
}

// Synced reports whether the cache has been filled, so that the lane can serve reads.
func (l *Lane) Synced() bool { return l.filling.synced() }

// Filled returns a channel that is closed when the cache has been filled.
func (l *Lane) Filled() <-chan struct{} { return l.filling.syncedc }

// Ready waits until the lane can serve reads, and reports whether it can. It reports false if an
// attempt to fill the cache for the first time has failed, or takes longer than ctx lasts.
func (l *Lane) Ready(ctx context.Context) bool { return l.filling.ready(ctx) }

// FilledAfter reports whether the whole content of the cache is newer than t. The lane is synced.
func (l *Lane) FilledAfter(t time.Time) bool { return l.filling.listed.After(t) }

// Seeds reports whether a sibling replica may be filled from the lane: its cache is filled and not
// known to be wrong, and it has not lost upstream. build is the build of kube-apiserver that wrote
// what the cache has.
func (l *Lane) Seeds() (build upstream.Build, ok bool) {
	wrote := l.reflector.Build()
	if wrote != nil && l.Synced() && l.BrokenFor() < seedsBroken && !l.reflector.KnownWrong() && !l.outdated.Load() {
		return *wrote, true
	}
	return build, false
}

// seedsBroken is for how long a lane that has lost upstream may still fill siblings.
const seedsBroken = 10 * time.Second

// Prove returns a proof of a state at or after the call. It takes as long as ctx and timeout allow;
// see prover.
func (l *Lane) Prove(ctx context.Context, timeout time.Duration) (fanout.Proof, error) {
	return l.prover.prove(ctx, timeout)
}
