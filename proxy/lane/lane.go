package lane

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/request"
	"github.com/watchfan/watchfan/proxy/upstream"
)

// Lane is one resource in one representation: its reflector, which follows it upstream, and its
// cache, which serves it to clients. It starts with its first client and stops when it has had none
// for a while.
type Lane struct {
	// Immutable after newLane.
	Key
	Info        upstream.ResourceInfo
	path        string // of the whole collection
	fields      []framing.Field
	FieldLabels []string
	lanes       *Lanes
	Cache       *fanout.Cache
	Log         *slog.Logger
	Metrics     laneMetrics
	started     time.Time

	// Each of these has owners of its own; see its type.
	Filling *filling
	Prover  *prover
	Health  upstreamHealth
	breaker watchBreaker
	history historyBackfill

	// Set by the reflector; form and warnings before the cache is first filled.
	Form      atomic.Pointer[framing.ListForm] // how upstream writes lists of the resource
	warnings  atomic.Pointer[[]string]         // the Warning headers that upstream adds to each response, as for deprecated resources
	WatchList atomic.Bool                      // upstream serves sendInitialEvents (KEP-3157)

	// outdated is set when the resource has another definition than info has. The lane ends when
	// its upstream watch does.
	outdated atomic.Bool

	laneUse // guarded by lanes.mu
}

// laneUse says who uses a lane.
type laneUse struct {
	users     int
	idleSince time.Time          // when the last user left
	stop      context.CancelFunc // ends the reflector
}

// NewLane returns a lane without a reflector.
func NewLane(ls *Lanes, key Key, info upstream.ResourceInfo) *Lane {
	l := &Lane{
		Key:     key,
		Info:    info,
		path:    upstream.CollectionPath(key.GVR),
		lanes:   ls,
		Cache:   fanout.NewCache(ls.limits, ls.Flusher),
		started: time.Now(),
		Filling: newFilling(),
		history: historyBackfill{turn: newSemaphore()},
	}
	if l.Metadata == "" {
		l.fields = upstream.SelectableFields(info)
	}
	for _, f := range l.fields {
		l.FieldLabels = append(l.FieldLabels, f.Label)
	}
	l.Log = ls.Log.With("resource", l.Resource(), "encoding", l.Representation.String())
	l.Prover = &prover{lane: l}
	l.Metrics = newLaneMetrics(l)
	return l
}

// Key tells lanes apart.
type Key struct {
	GVR schema.GroupVersionResource
	request.Representation
}

// String names the lane in errors: apps/v1/deployments (protobuf).
func (l *Lane) String() string { return l.Resource() + " (" + l.Representation.String() + ")" }

// Resource is the lane's resource, as logs name it: apps/v1/deployments.
func (l *Lane) Resource() string { return request.ResourceText(l.GVR) }

// Uncached reports whether kube-apiserver has no watch cache for the resource, so that its watch
// never tells how far it has come
// (kubernetes/pkg/kubeapiserver/default_storage_factory_builder.go).
func (l *Lane) Uncached() bool {
	g := l.GVR
	return g.Resource == "events" && (g.Group == "" || g.Group == "events.k8s.io")
}

// Synced reports whether the cache has been filled, so that the lane can serve reads.
func (l *Lane) Synced() bool { return l.Filling.synced() }
