package lane

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/remember"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/reflector"
	"github.com/watchfan/watchfan/proxy/store/seed"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Lanes is all lanes of a server.
type Lanes struct {
	cfg     Config
	source  *reflector.Source
	indexer *fanout.Indexer

	running  sync.WaitGroup // the reflectors, and what Spawn runs
	draining latch          // set by EndWaits

	mu          sync.Mutex
	ctx         context.Context // of the reflectors; nil once no more may start
	byKey       map[Key]*Lane
	defined     map[schema.GroupResource]*upstream.Definition // see registry.CRDWatcher; nil is none
	quarantines map[Key]time.Time                             // until when
	givenUp     remember.TTLCache[keptBy, struct{}]           // see keepers.go
	mistrusted  map[schema.GroupVersionResource]Mistrusted    // see mistrust.go

	namespaces *fanout.NamespaceLabels // nil until they are followed; see registry.Namespaces
	lastLane   uint64                  // order of the last lane

	// aggregated are the versions that another server answers for, with the zero time, and those
	// that it answered for until just now, with the time before which they have no lanes. See
	// registry.Aggregation.
	aggregated map[schema.GroupVersion]time.Time
}

// Memory says how short memory is, and counts it. nil is never, and counts nothing.
type Memory struct {
	Short  func() bool // then no lane begins
	Full   func() bool // then a list that is being read is given up
	Ledger *account.Ledger
}

func (m Memory) short() bool { return m.Short != nil && m.Short() }
func (m Memory) full() bool  { return m.Full != nil && m.Full() }

// Config holds the dependencies of Lanes.
type Config struct {
	Options   *Options
	Upstream  auth.APIServer
	Siblings  *seed.Siblings // nil if no replica can fill lanes
	Discovery *upstream.Discovery
	Flusher   *fanout.Flusher
	Memory    Memory
	Metrics   *metrics.Set // gets the metrics of the lanes
	Guard     *exchange.Guard
}

// NewLanes returns no lanes yet. They live in ctx.
func NewLanes(ctx context.Context, cfg Config) *Lanes {
	ls := &Lanes{
		cfg:         cfg,
		source:      reflector.NewSource(cfg.Upstream, cfg.Siblings, cfg.Memory.full, cfg.Metrics, cfg.Guard),
		indexer:     fanout.NewIndexer(),
		draining:    newLatch(),
		ctx:         ctx,
		byKey:       make(map[Key]*Lane),
		defined:     make(map[schema.GroupResource]*upstream.Definition),
		quarantines: make(map[Key]time.Time),
		mistrusted:  make(map[schema.GroupVersionResource]Mistrusted),
		aggregated:  make(map[schema.GroupVersion]time.Time),
	}
	cfg.Metrics.RegisterMetricsWriter(ls.writeMetrics)
	return ls
}

// all returns the lanes, the eldest first.
func (ls *Lanes) all() []*Lane {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.allLocked()
}

func (ls *Lanes) allLocked() []*Lane {
	return slices.SortedFunc(maps.Values(ls.byKey), byOrder)
}

// ofLocked returns the lanes of a resource, the eldest first. There may be thousands of others.
func (ls *Lanes) ofLocked(gvr schema.GroupVersionResource) (lanes []*Lane) {
	for key, l := range ls.byKey {
		if key.GVR == gvr {
			lanes = append(lanes, l)
		}
	}
	slices.SortFunc(lanes, byOrder)
	return lanes
}

func byOrder(a, b *Lane) int { return cmp.Compare(a.order, b.order) }

// Changes returns how many changes upstream has sent to all lanes, also to those that have ended.
func (ls *Lanes) Changes() uint64 { return ls.source.Changes() }

// IdleTimeout returns how long a resource is still watched upstream after its last client.
func (ls *Lanes) IdleTimeout() time.Duration { return ls.cfg.Options.IdleTimeout }

// Acquire returns the lane with a key, which is of a resource, and counts the caller as its user
// until it calls Release, or Leave if the caller has called Keep. It starts the lane if there is none
// and start is true; the lane then counts for by, until others keep it. A lane of Tables that is starting
// begins at resourceVersion from, unless another client wants to begin earlier; 0 for others.
//
// It returns nil, and why, if there is no lane, if the resource has been redefined since the caller
// looked info up, if an aggregated server answers for it, and once the server stops.
func (ls *Lanes) Acquire(info upstream.ResourceInfo, key Key, start bool, from uint64, by By) (*Lane, request.Reason) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.ctx == nil || ls.defined[info.GVR.GroupResource()] != info.Definition ||
		ls.outsourcedLocked(info.GVR.GroupVersion()) {
		return nil, request.NoLane
	}
	if time.Now().Before(ls.mistrusted[key.GVR].Until) {
		return nil, request.Mistrusted
	}
	l := ls.byKey[key]
	if l != nil && (l.info.Definition != info.Definition || l.surrendered.Load()) {
		if l.surrendered.Load() {
			ls.surrenderLocked(l)
		}
		ls.stopLocked(l)
		l = nil
	}
	if l == nil {
		if !start || ls.cfg.Memory.short() || time.Now().Before(ls.quarantines[key]) {
			return nil, request.NoLane
		}
		var source account.Source
		if by != nil {
			if source = by.Source(); !ls.mayKeepLocked(key, source) {
				return nil, request.LaneBound
			}
		}
		l = ls.startLocked(key, info, from, source)
	}
	if by == nil && !l.own {
		l.own = true
		ls.attributeLocked(l)
	}
	if first := l.from.Load(); from != 0 && from < first {
		l.from.Store(from)
	}
	l.users++
	return l, ""
}

// startLocked starts a lane for a source. A lane of Tables begins at resourceVersion from.
func (ls *Lanes) startLocked(key Key, info upstream.ResourceInfo, from uint64, by account.Source) *Lane {
	l := NewLane(ls, key, info)
	l.setNamespaces(ls.namespaces)
	l.from.Store(from)
	ls.byKey[key] = l
	ctx, cancel := context.WithCancel(ls.ctx)
	l.stop = cancel
	l.last = by
	ls.copiesLocked(key)
	ls.running.Go(func() { ls.remove(l, ls.follow(ctx, l)) })
	if l.Collection.File() != "" {
		ls.running.Go(func() { l.keepOnDisk(ctx) })
	}
	return l
}

// follow runs a lane's reflector, and returns why that has ended. If the resource cannot be cached, it puts
// the lane in quarantine.
func (ls *Lanes) follow(ctx context.Context, l *Lane) (err error) {
	l.Log.Info("Started lane")
	err = l.reflector.Run(ctx)
	switch {
	case l.surrendered.Load(): // remove logs it
	case err == nil:
		l.Log.Info("Stopped lane", "elapsed", time.Since(l.started).Round(time.Second))
	case errors.Is(err, reflector.ErrRedefined):
		l.Log.Info("Stopped lane, the resource's definition changed")
	case errors.Is(err, reflector.ErrNotServed):
		l.Log.Info("Stopped lane, upstream does not serve the resource, or not in this encoding")
	case errors.Is(err, reflector.ErrForbidden):
		l.Log.Error("Stopped lane, this proxy may not list and watch the resource any more, so its requests are passed through",
			"retryIn", forbiddenQuarantine)
		ls.quarantine(l.Key, forbiddenQuarantine)
	case errors.Is(err, reflector.ErrNoRoom):
		l.Log.Error("Stopped lane, memory is full, so its requests are passed through", "retryIn", memoryQuarantine)
		ls.quarantine(l.Key, memoryQuarantine)
	default:
		l.Log.Error("Stopped lane, an object is too large or too deep to be cached, or has a name that JSON cannot express, or is no Table, so its requests are passed through",
			"err", err, "retryIn", quarantineFor)
		ls.quarantine(l.Key, quarantineFor)
	}
	return err
}

// remove forgets a lane whose reflector has ended because of err, and ends its clients.
func (ls *Lanes) remove(l *Lane, err error) {
	ls.mu.Lock()
	if ls.byKey[l.Key] == l {
		ls.stopLocked(l)
	}
	if l.surrendered.Load() {
		source := ls.surrenderLocked(l)
		defer l.Log.Warn("Gave lane up, one source alone used it, and holds most", "source", source.Name,
			"bytes", l.held.Load(), "retryIn", memoryQuarantine)
	}
	ls.mu.Unlock()
	ending := fanout.Ending{Reason: fanout.LaneClosed}
	switch {
	case l.mistrusted.Load():
		ending = l.Expired(fanout.Mistrusted)
	case l.outdated.Load():
		ending.Reason = fanout.Redefined
	}
	l.Cache.Close(ending)
	// Any other end says nothing of the resource. While upstream is away, discovery would not find the others of
	// its version again, and their caches would serve nobody.
	if errors.Is(err, reflector.ErrNotServed) || l.outdated.Load() {
		ls.cfg.Discovery.Forget(l.GVR.GroupVersion())
	}
}

// A resource in quarantine has no lane, and its requests are passed through.
const (
	// quarantineFor is how long a resource stays in quarantine because of an object that cannot be
	// cached. Somebody has to change the object.
	quarantineFor = 10 * time.Minute
	// memoryQuarantine is how long a resource stays in quarantine because memory has no room for
	// it. A resource that never has room is listed that often for nothing.
	memoryQuarantine = time.Minute
	// forbiddenQuarantine is how long a resource stays in quarantine that this proxy may not follow. An attempt
	// is one request. Definitions, API servers and namespaces are known again behind it.
	forbiddenQuarantine = time.Minute
)

// quarantine passes requests for such a lane through for d.
func (ls *Lanes) quarantine(key Key, d time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.quarantines[key] = time.Now().Add(d)
}

// Quarantined reports whether requests for such a lane are passed through because it could not be
// filled, or is mistrusted. After the quarantine it goes on to report true until the lane has been filled, or until
// nobody has asked for it for the idle timeout.
func (ls *Lanes) Quarantined(key Key) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return !ls.quarantines[key].IsZero() || time.Now().Before(ls.mistrusted[key.GVR].Until)
}

// QuarantinedCount returns how many lanes are in quarantine now.
func (ls *Lanes) QuarantinedCount() (n int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, until := range ls.quarantines {
		if time.Now().Before(until) {
			n++
		}
	}
	return n
}

// Spawn runs f on a goroutine that Run waits for. Once the server stops, it does not run f and
// reports false.
func (ls *Lanes) Spawn(f func(context.Context)) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.ctx == nil {
		return false
	}
	ctx := ls.ctx
	ls.running.Go(func() { f(ctx) })
	return true
}

// Release undoes one Acquire.
func (ls *Lanes) Release(l *Lane) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.releaseLocked(l, l.selects())
}

// Discard undoes one Acquire, and stops the lane if nobody else uses it.
func (ls *Lanes) Discard(l *Lane) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.releaseLocked(l, true)
}

// releaseLocked undoes one Acquire. stop says that a lane without users stops at once.
func (ls *Lanes) releaseLocked(l *Lane, stop bool) {
	l.users--
	l.idleSince = time.Now()
	if stop && l.users == 0 && ls.byKey[l.Key] == l {
		ls.stopLocked(l)
	}
}

// Run stops idle lanes and builds indexes until ctx ends, then lets no other lane begin, and
// returns when no reflector is left. The lanes themselves end with the context of NewLanes.
func (ls *Lanes) Run(ctx context.Context) {
	ls.running.Go(func() { ls.indexer.Run(ctx) })
	for exchange.Sleep(ctx, countEvery) {
		ls.stopIdle()
		ls.count()
	}
	ls.mu.Lock()
	ls.ctx = nil
	ls.mu.Unlock()
	ls.running.Wait()
	ls.source.End()
}

// stopIdle stops lanes that nobody has used for the idle timeout, and forgets quarantines that are
// over.
func (ls *Lanes) stopIdle() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.byKey {
		if l.users == 0 && time.Since(l.idleSince) >= ls.IdleTimeout() {
			l.Log.Info("Stopped idle lane", "idleTimeout", ls.IdleTimeout())
			ls.stopLocked(l)
		}
	}
	maps.DeleteFunc(ls.quarantines, func(key Key, until time.Time) bool {
		if time.Now().Before(until) { // the lane that there is has just ended
			return false
		}
		l := ls.byKey[key]
		return l != nil && l.Synced() || l == nil && time.Since(until) >= ls.IdleTimeout()
	})
	maps.DeleteFunc(ls.mistrusted, func(_ schema.GroupVersionResource, m Mistrusted) bool { return !time.Now().Before(m.Until) })
}

// ForgetIndexes gives up the indexes of all lanes.
func (ls *Lanes) ForgetIndexes() { ls.indexer.Shed() }

// StopUnused stops all lanes that nobody uses, and returns how many those were.
func (ls *Lanes) StopUnused() (n int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.byKey {
		if l.users == 0 {
			l.Log.Info("Stopped idle lane, memory is short")
			ls.stopLocked(l)
			n++
		}
	}
	return n
}

// EndWaits refuses all requests that wait for a lane to be filled, and those that would. Another
// replica may serve them sooner than this one, which is stopping.
func (ls *Lanes) EndWaits() { ls.draining.set() }

// Draining reports whether EndWaits has been called.
func (ls *Lanes) Draining() bool { return ls.draining.isSet() }

// EndWatches ends all watches that are served from a cache, and lets no other begin.
func (ls *Lanes) EndWatches() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.ctx = nil
	for _, l := range ls.byKey {
		l.Cache.Close(fanout.Ending{Reason: fanout.ShutDown})
	}
}

// Collections returns the lanes that hold the objects of a resource and have been filled, by
// resource. Lanes of one resource hold the same objects in different representations.
func (ls *Lanes) Collections() map[schema.GroupVersionResource][]*Lane {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	collections := make(map[schema.GroupVersionResource][]*Lane)
	for key, l := range ls.byKey {
		if key.Table == "" && l.Synced() && !l.outdated.Load() {
			collections[key.GVR] = append(collections[key.GVR], l)
		}
	}
	return collections
}

// SetNamespaces tells all lanes which namespaces there are. One goroutine at a time calls it.
func (ls *Lanes) SetNamespaces(known *fanout.NamespaceLabels) {
	ls.mu.Lock()
	ls.namespaces = known
	lanes := ls.allLocked()
	ls.mu.Unlock()
	for _, l := range lanes {
		l.setNamespaces(known)
	}
}

func (l *Lane) setNamespaces(known *fanout.NamespaceLabels) {
	if known != nil {
		l.Cache.SetNamespaces(known, l.Expired(fanout.Expired))
	}
}

// Progress returns up to which resourceVersion lanes may have told clients of each resource.
func (ls *Lanes) Progress() map[schema.GroupResource]uint64 {
	progress := make(map[schema.GroupResource]uint64)
	for _, l := range ls.all() {
		of := l.GVR.GroupResource()
		progress[of] = max(progress[of], l.Cache.Shown())
	}
	return progress
}

// SelectNamespaces reports whether a view that selects namespaces by their labels has watches.
func (ls *Lanes) SelectNamespaces() bool {
	return slices.ContainsFunc(ls.all(), func(l *Lane) bool { return l.Cache.SelectsNamespaces() })
}

// MemoryShort reports whether memory is so short that no lane begins.
func (ls *Lanes) MemoryShort() bool { return ls.cfg.Memory.short() }

// Has reports whether the lane has neither ended nor been told to.
func (ls *Lanes) Has(l *Lane) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.byKey[l.Key] == l
}

// Started reports whether there is a lane.
func (ls *Lanes) Started(key Key) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.byKey[key] != nil
}

// stopLocked forgets a lane, and ends its reflector.
func (ls *Lanes) stopLocked(l *Lane) {
	delete(ls.byKey, l.Key)
	l.stop()
	ls.attributeLocked(l)
	ls.copiesLocked(l.Key)
}
