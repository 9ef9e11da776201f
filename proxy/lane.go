package proxy

import (
	"cmp"
	"context"
	"log/slog"
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
	laneKey
	info        resourceInfo
	path        string // of the whole collection
	fields      []framing.Field
	fieldLabels []string
	upstream    doer
	cache       *fanout.Cache
	log         *slog.Logger
	prover      *prover
	metrics     laneMetrics
	started     time.Time
	spawn       func(func(context.Context)) bool // lanes.spawn
	spareLists  bool                             // LaneOptions.spareLists
	hangTimeout time.Duration                    // LaneOptions.hangTimeout
	avoidFor    time.Duration                    // LaneOptions.avoidFor
	full        func() bool                      // lanes.full
	turn        turns                            // of lanes
	elsewhere   func(context.Context)            // lanes.elsewhere
	builds      *builds                          // of lanes

	// syncedc is closed when the cache is first filled; failedc when a first attempt to fill it has failed. Both are closed by the
	// reflector. filling says what becomes of requests until then.
	syncedc, failedc chan struct{}
	filling          *filling

	// filled is when the list was asked for that first filled the cache; set before syncedc is closed.
	filled time.Time
	// form is how lists of this lane are written; set before syncedc is closed.
	form atomic.Pointer[framing.ListForm]
	// warnings are the Warning headers that upstream adds to each response, as for deprecated
	// resources; set before syncedc is closed.
	warnings atomic.Pointer[[]string]
	health   upstreamHealth
	breaker  watchBreaker

	// outdated is set when the resource has another definition than info has: the lane ends when its upstream watch does.
	outdated atomic.Bool

	// watchList reports whether upstream serves sendInitialEvents (KEP-3157).
	watchList atomic.Bool

	// extending is held while the history is extended; tooOld is the largest resourceVersion for which
	// upstream had no history, and wanted the smallest that somebody waits for, 0 for none.
	extending semaphore
	tooOld    atomic.Uint64
	wanted    atomic.Uint64

	// undecided is where the history began when decide last tried.
	undecided atomic.Uint64

	// Guarded by lanes.mu.
	users     int
	idleSince time.Time
	stop      context.CancelFunc
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

// ready waits until the lane can serve reads and reports whether it can: not if a first attempt to list upstream has failed, or has not come to an
// end within the time that ctx gives. Clients' requests await it.
func (l *lane) ready(ctx context.Context) bool {
	if l.synced() {
		return true
	}
	waits(ctx)
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
	upstream   doer
	discovery  *discovery
	flusher    *fanout.Flusher
	limits     fanout.Limits
	idle       time.Duration
	log        *slog.Logger
	spareLists bool
	hang       time.Duration // LaneOptions.hangTimeout
	avoidFor   time.Duration // LaneOptions.avoidFor
	turns      turns
	builds     builds

	reconnected moment // when reconnect last did something

	// short reports whether memory is: then no lane begins. full reports whether it is now: then a list that is being read is given up. Both are
	// set before the first lane is asked for; nil is never.
	short, full func() bool

	running sync.WaitGroup // the reflectors

	mu      sync.Mutex
	ctx     context.Context // of the reflectors; nil once no more are to start
	byKey   map[laneKey]*lane
	defined map[schema.GroupResource]*definition // see definitions; nil is none
	avoided map[laneKey]time.Time                // until when there are to be no such lanes; see avoid, avoids

	// aggregated are the versions that another server answers for (zero), or did until just now: until when there are to be no
	// lanes; see aggregation.
	aggregated map[schema.GroupVersion]time.Time
}

// newLanes returns no lanes yet. They live in ctx.
func newLanes(ctx context.Context, upstream doer, discovery *discovery, flusher *fanout.Flusher, opts *LaneOptions, log *slog.Logger) *lanes {
	return &lanes{
		upstream:   upstream,
		discovery:  discovery,
		flusher:    flusher,
		limits:     opts.limits(),
		idle:       opts.IdleTimeout,
		log:        log,
		ctx:        ctx,
		spareLists: opts.spareLists,
		hang:       cmp.Or(opts.hangTimeout, hangTimeout),
		avoidFor:   cmp.Or(opts.avoidFor, avoidFor),
		turns:      newTurns(),
		builds:     builds{upstream: upstream},
		byKey:      make(map[laneKey]*lane),
		defined:    make(map[schema.GroupResource]*definition),
		aggregated: make(map[schema.GroupVersion]time.Time),
	}
}

// acquire returns the lane of a resource in a representation, starting it if need be and start is true, and counts the caller as
// its user until it calls release. ok is false if there is none, if the resource has been redefined since info was had, if an
// aggregated server answers for it, and once the server stops.
func (ls *lanes) acquire(info resourceInfo, rep representation, start bool) (l *lane, ok bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.ctx == nil || ls.defined[info.gvr.GroupResource()] != info.definition || ls.outsourcedLocked(info.gvr.GroupVersion()) {
		return nil, false
	}
	key := laneKey{info.gvr, rep}
	l = ls.byKey[key]
	if l != nil && l.info.definition != info.definition {
		ls.stopLocked(l)
		l = nil
	}
	if l == nil {
		if !start || ls.short != nil && ls.short() || time.Now().Before(ls.avoided[key]) {
			return nil, false
		}
		l = ls.newLane(key, info)
		ls.byKey[key] = l
		ctx, cancel := context.WithCancel(ls.ctx)
		l.stop = cancel
		ls.running.Go(func() {
			if avoid := (&reflector{lane: l, scanner: framing.NewScanner(l.encoding, l.fields)}).run(ctx); avoid > 0 {
				ls.avoid(key, avoid)
			}
			ls.remove(l)
		})
	}
	l.users++
	return l, true
}

func (ls *lanes) newLane(key laneKey, info resourceInfo) *lane {
	l := &lane{
		laneKey:     key,
		info:        info,
		path:        collectionPath(key.gvr),
		upstream:    ls.upstream,
		started:     time.Now(),
		cache:       fanout.NewCache(ls.limits, ls.flusher),
		syncedc:     make(chan struct{}),
		failedc:     make(chan struct{}),
		filling:     newFilling(),
		extending:   newSemaphore(),
		spawn:       ls.spawn,
		spareLists:  ls.spareLists,
		hangTimeout: ls.hang,
		avoidFor:    ls.avoidFor,
		full:        ls.full,
		turn:        ls.turns,
		elsewhere:   ls.elsewhere,
		builds:      &ls.builds,
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
	if ls.byKey[l.laneKey] == l {
		delete(ls.byKey, l.laneKey)
	}
	ls.mu.Unlock()
	ending := fanout.Ending{Reason: fanout.LaneClosed}
	if l.outdated.Load() {
		ending.Reason = fanout.Redefined
	}
	l.cache.Close(ending)
	l.metrics.unregister()
	ls.discovery.forget(l.gvr.GroupVersion())
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
	for _, l := range ls.byKey {
		if l.users == 0 && time.Since(l.idleSince) >= ls.idle {
			l.log.Info("Stopped idle lane", "idleTimeout", ls.idle)
			ls.stopLocked(l)
		}
	}
	for key, until := range ls.avoided {
		if l := ls.byKey[key]; l != nil && l.synced() || l == nil && time.Since(until) >= ls.idle {
			delete(ls.avoided, key)
		}
	}
}

// shed stops all lanes that nobody uses, and returns how many that were.
func (ls *lanes) shed() (n int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.byKey {
		if l.users == 0 {
			l.log.Info("Stopped idle lane, memory is short")
			ls.stopLocked(l)
			n++
		}
	}
	return n
}

// How long a resource is passed through: because an object can't be cached, which somebody has to change, or because it finds no room, which
// others may have left by then. A collection that never has room is listed that often for nothing.
const (
	avoidFor = 10 * time.Minute
	roomIn   = time.Minute
)

// avoid has requests for such a lane passed through for d.
func (ls *lanes) avoid(key laneKey, d time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.avoided == nil {
		ls.avoided = make(map[laneKey]time.Time)
	}
	ls.avoided[key] = time.Now().Add(d)
}

// avoids reports whether requests for such a lane are passed through because it could not be filled, or were until it is being tried again.
func (ls *lanes) avoids(key laneKey) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return !ls.avoided[key].IsZero()
}

// avoiding is how many lanes there are not to be now.
func (ls *lanes) avoiding() (n int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, until := range ls.avoided {
		if time.Now().Before(until) {
			n++
		}
	}
	return n
}

// endWatches ends all watches that are served from a cache, and lets no other begin.
func (ls *lanes) endWatches(e fanout.Ending) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.ctx = nil
	for _, l := range ls.byKey {
		l.cache.Close(e)
	}
}

// has reports whether the lane is still followed.
func (ls *lanes) has(l *lane) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.byKey[l.laneKey] == l
}

// started reports whether there is a lane.
func (ls *lanes) started(key laneKey) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.byKey[key] != nil
}

// discard undoes one acquire, and stops the lane if nobody else uses it.
func (ls *lanes) discard(l *lane) {
	ls.release(l)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l.users == 0 && ls.byKey[l.laneKey] == l {
		ls.stopLocked(l)
	}
}

// stopLocked forgets a lane that is followed, and has its reflector end.
func (ls *lanes) stopLocked(l *lane) {
	delete(ls.byKey, l.laneKey)
	l.stop()
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
