package proxy

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lane is one resource in one representation: its reflector, which follows it upstream, and its cache, which serves
// it to clients. It starts with its first client and stops when it has had none for a while.
type lane struct {
	// Immutable after newLane.
	laneKey
	info        resourceInfo
	path        string // of the whole collection
	fields      []framing.Field
	fieldLabels []string
	lanes       *lanes
	cache       *fanout.Cache
	log         *slog.Logger
	metrics     laneMetrics
	started     time.Time

	// Each of these has owners of its own; see its type.
	filling *filling
	prover  *prover
	health  upstreamHealth
	breaker watchBreaker
	history historyBackfill

	// Set by the reflector; form and warnings before the cache is first filled.
	form      atomic.Pointer[framing.ListForm] // how upstream writes lists of the resource
	warnings  atomic.Pointer[[]string]         // the Warning headers that upstream adds to each response, as for deprecated resources
	watchList atomic.Bool                      // upstream serves sendInitialEvents (KEP-3157)

	// outdated is set when the resource has another definition than info has. The lane ends when its upstream watch does.
	outdated atomic.Bool

	laneUse // guarded by lanes.mu
}

// laneUse says who uses a lane.
type laneUse struct {
	users     int
	idleSince time.Time          // when the last user left
	stop      context.CancelFunc // ends the reflector
}

// newLane returns a lane without a reflector.
func newLane(ls *lanes, key laneKey, info resourceInfo) *lane {
	l := &lane{
		laneKey: key,
		info:    info,
		path:    collectionPath(key.gvr),
		lanes:   ls,
		cache:   fanout.NewCache(ls.limits, ls.flusher),
		started: time.Now(),
		filling: newFilling(),
		history: historyBackfill{turn: newSemaphore()},
	}
	if l.metadata == "" {
		l.fields = selectableFields(info)
	}
	for _, f := range l.fields {
		l.fieldLabels = append(l.fieldLabels, f.Label)
	}
	l.log = ls.log.With("resource", l.resource(), "encoding", l.representation.String())
	l.prover = &prover{lane: l}
	l.metrics = newLaneMetrics(l)
	return l
}

// laneKey tells lanes apart.
type laneKey struct {
	gvr schema.GroupVersionResource
	representation
}

// String names the lane in errors: apps/v1/deployments (protobuf).
func (l *lane) String() string { return l.resource() + " (" + l.representation.String() + ")" }

// resource is the lane's resource, as logs name it: apps/v1/deployments.
func (l *lane) resource() string { return resourceText(l.gvr) }

// uncached reports whether kube-apiserver has no watch cache for the resource, so that its watch never tells how
// far it has come (kubernetes/pkg/kubeapiserver/default_storage_factory_builder.go).
func (l *lane) uncached() bool {
	g := l.gvr
	return g.Resource == "events" && (g.Group == "" || g.Group == "events.k8s.io")
}

// synced reports whether the cache has been filled, so that the lane can serve reads.
func (l *lane) synced() bool { return l.filling.synced() }
