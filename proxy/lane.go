package proxy

import (
	"context"
	"log/slog"
	"net/url"
	"sync"
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
	info        resourceInfo
	path        string // of the whole collection
	fields      []framing.Field
	fieldLabels []string
	upstream    doer
	cache       *fanout.Cache
	log         *slog.Logger
	prover      *prover
	metrics     laneMetrics
	spawn       func(func(context.Context)) bool // lanes.spawn

	// syncedc is closed when the cache is first filled; failedc when a first attempt to fill it has failed,
	// from when on requests no longer wait for it. Both are closed by the reflector.
	syncedc, failedc chan struct{}

	// form is how lists of this lane are written; set before syncedc is closed.
	form atomic.Pointer[framing.ListForm]
	// warnings are the Warning headers that upstream adds to each response, as for deprecated
	// resources; set before syncedc is closed.
	warnings atomic.Pointer[[]string]
	// cut breaks the upstream watch that is under way; see suspect.
	cut atomic.Pointer[context.CancelFunc]
	// suspected is when that was last done, in nanoseconds since the Unix epoch.
	suspected atomic.Int64

	// watchList reports whether upstream serves sendInitialEvents (KEP-3157).
	watchList atomic.Bool

	// extending is held while the history is extended; tooOld is the largest resourceVersion for which
	// upstream had no history, and wanted the smallest that somebody waits for, 0 for none.
	extending semaphore
	tooOld    atomic.Uint64
	wanted    atomic.Uint64

	// Guarded by lanes.mu.
	users     int
	idleSince time.Time
	stop      context.CancelFunc
}

// collectionPath is where a resource's whole collection stands: /api/v1/pods, /apis/apps/v1/deployments.
func collectionPath(gvr schema.GroupVersionResource) string {
	if gvr.Group == "" {
		return "/api/" + gvr.Version + "/" + gvr.Resource
	}
	return "/apis/" + gvr.Group + "/" + gvr.Version + "/" + gvr.Resource
}

// String names the lane in errors: apps/v1/deployments.
func (l *lane) String() string {
	if l.info.gvr.Group == "" {
		return l.info.gvr.Version + "/" + l.info.gvr.Resource
	}
	return l.info.gvr.Group + "/" + l.info.gvr.Version + "/" + l.info.gvr.Resource
}

// uncached reports whether kube-apiserver has no watch cache for the resource, so that its watch never tells how
// far it has come (kubernetes/pkg/kubeapiserver/default_storage_factory_builder.go).
func (l *lane) uncached() bool {
	g := l.info.gvr
	return g.Resource == "events" && (g.Group == "" || g.Group == "events.k8s.io")
}

// ready waits until the lane can serve reads and reports whether it can: not if upstream can't be listed, or has not been
// within the time that ctx gives.
func (l *lane) ready(ctx context.Context) bool {
	select {
	case <-l.syncedc:
		return true
	default:
	}
	select {
	case <-l.syncedc:
		return true
	case <-l.failedc:
		return l.synced()
	case <-ctx.Done():
		return false
	}
}

func (l *lane) synced() bool {
	select {
	case <-l.syncedc:
		return true
	default:
		return false
	}
}

// lanes is all lanes of a server.
type lanes struct {
	upstream  doer
	discovery *discovery
	flusher   *fanout.Flusher
	limits    fanout.Limits
	idle      time.Duration
	log       *slog.Logger

	running sync.WaitGroup // the reflectors

	mu    sync.Mutex
	ctx   context.Context // of the reflectors; nil once no more are to start
	byGVR map[schema.GroupVersionResource]*lane
}

// acquire returns the lane of a resource, starting it if need be, and counts the caller as its user until it
// calls release. ok is false once the server stops.
func (ls *lanes) acquire(info resourceInfo) (l *lane, ok bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.ctx == nil {
		return nil, false
	}
	l = ls.byGVR[info.gvr]
	if l == nil {
		l = ls.newLane(info)
		ls.byGVR[info.gvr] = l
		ctx, cancel := context.WithCancel(ls.ctx)
		l.stop = cancel
		ls.running.Go(func() {
			(&reflector{lane: l, scanner: framing.NewScanner(l.fields)}).run(ctx)
			ls.remove(l)
		})
	}
	l.users++
	return l, true
}

func (ls *lanes) newLane(info resourceInfo) *lane {
	l := &lane{
		info:      info,
		path:      collectionPath(info.gvr),
		fields:    selectableFields(info),
		upstream:  ls.upstream,
		cache:     fanout.NewCache(ls.limits, ls.flusher),
		syncedc:   make(chan struct{}),
		failedc:   make(chan struct{}),
		extending: newSemaphore(),
		spawn:     ls.spawn,
	}
	for _, f := range l.fields {
		l.fieldLabels = append(l.fieldLabels, f.Label)
	}
	l.log = ls.log.With("resource", l.String())
	l.prover = &prover{lane: l}
	l.metrics = newLaneMetrics(l)
	return l
}

// spawn runs f on a goroutine that run waits for. It reports false, and does not, once the server stops.
func (ls *lanes) spawn(f func(context.Context)) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.ctx == nil {
		return false
	}
	ctx := ls.ctx
	ls.running.Go(func() { f(ctx) })
	return true
}

// release undoes one acquire.
func (ls *lanes) release(l *lane) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.users--
	l.idleSince = time.Now()
}

// remove forgets a lane whose reflector has ended, and ends its clients.
func (ls *lanes) remove(l *lane) {
	ls.mu.Lock()
	if ls.byGVR[l.info.gvr] == l {
		delete(ls.byGVR, l.info.gvr)
	}
	ls.mu.Unlock()
	l.cache.Close(fanout.Ending{Reason: fanout.LaneClosed})
	l.metrics.unregister()
	ls.discovery.forget(l.info.gvr.GroupVersion())
}

// run stops idle lanes until ctx ends, then all of them, and returns when no reflector is left.
func (ls *lanes) run(ctx context.Context) {
	tick := time.NewTicker(max(ls.idle/10, time.Second))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			ls.stopIdle()
			continue
		case <-ctx.Done():
		}
		break
	}
	ls.mu.Lock()
	ls.ctx = nil
	ls.mu.Unlock()
	ls.running.Wait()
}

func (ls *lanes) stopIdle() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for gvr, l := range ls.byGVR {
		if l.users == 0 && time.Since(l.idleSince) >= ls.idle {
			l.log.Info("Stopped idle lane", "idleTimeout", ls.idle)
			delete(ls.byGVR, gvr)
			l.stop()
		}
	}
}

// endWatches ends all watches that are served from a cache, and lets no other begin.
func (ls *lanes) endWatches(e fanout.Ending) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.ctx = nil
	for _, l := range ls.byGVR {
		l.cache.Close(e)
	}
}

// has reports whether the lane is still followed.
func (ls *lanes) has(l *lane) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.byGVR[l.info.gvr] == l
}

// suspect breaks the lane's upstream watch, to begin another where it stands: upstream has shown changes in time that this one did
// not bring, so it may hang. At most twice a minute, for upstream may just be slow.
func (l *lane) suspect() {
	const interval = 30 * time.Second
	now, last := time.Now().UnixNano(), l.suspected.Load()
	cut := l.cut.Load()
	if cut == nil || now-last < int64(interval) || !l.suspected.CompareAndSwap(last, now) {
		return
	}
	l.log.Warn("Broke off an upstream watch that does not bring what upstream has", "resourceVersion", l.cache.Progress())
	(*cut)()
}

// semaphore is a mutex that can be waited for with a context.
type semaphore chan struct{}

func newSemaphore() semaphore { return make(semaphore, 1) }

func (s semaphore) acquire(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s semaphore) release() { <-s }

// query builds the query of an upstream request from pairs of key and value.
func query(pairs ...string) string {
	q := make(url.Values)
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return q.Encode()
}
