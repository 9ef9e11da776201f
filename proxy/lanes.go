package proxy

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lanes is all lanes of a server.
type lanes struct {
	upstream      doer
	discovery     *discovery
	flusher       *fanout.Flusher
	limits        fanout.Limits
	idle          time.Duration
	log           *slog.Logger
	spareLists    bool
	hang          time.Duration // LaneOptions.hangTimeout
	quarantineFor time.Duration // LaneOptions.quarantineFor
	turns         turns
	builds        builds

	reconnected moment // when reconnect last did something

	// short reports whether memory is: then no lane begins. full reports whether it is now: then a list that is being read is given up. Both are
	// set before the first lane is asked for; nil is never.
	short, full func() bool

	running sync.WaitGroup // the reflectors

	mu          sync.Mutex
	ctx         context.Context // of the reflectors; nil once no more are to start
	byKey       map[laneKey]*lane
	defined     map[schema.GroupResource]*definition // see crdWatcher; nil is none
	quarantines map[laneKey]time.Time                // until when; see quarantine.go

	// aggregated are the versions that another server answers for (zero), or did until just now: until when there are to be no
	// lanes; see aggregation.
	aggregated map[schema.GroupVersion]time.Time
}

// newLanes returns no lanes yet. They live in ctx.
func newLanes(ctx context.Context, up doer, discovery *discovery, flusher *fanout.Flusher, opts *LaneOptions, log *slog.Logger) *lanes {
	return &lanes{
		upstream:      up,
		discovery:     discovery,
		flusher:       flusher,
		limits:        opts.limits(),
		idle:          opts.IdleTimeout,
		log:           log,
		ctx:           ctx,
		spareLists:    opts.spareLists,
		hang:          cmp.Or(opts.hangTimeout, hangTimeout),
		quarantineFor: cmp.Or(opts.quarantineFor, quarantineFor),
		turns:         newTurns(),
		builds:        builds{upstream: up},
		byKey:         make(map[laneKey]*lane),
		defined:       make(map[schema.GroupResource]*definition),
		aggregated:    make(map[schema.GroupVersion]time.Time),
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
		if !start || ls.short != nil && ls.short() || time.Now().Before(ls.quarantines[key]) {
			return nil, false
		}
		l = newLane(ls, key, info)
		ls.byKey[key] = l
		ctx, cancel := context.WithCancel(ls.ctx)
		l.stop = cancel
		ls.running.Go(func() {
			if d := (&reflector{lane: l, scanner: framing.NewScanner(l.encoding, l.fields)}).run(ctx); d > 0 {
				ls.quarantine(key, d)
			}
			ls.remove(l)
		})
	}
	l.users++
	return l, true
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
	for key, until := range ls.quarantines {
		if l := ls.byKey[key]; l != nil && l.synced() || l == nil && time.Since(until) >= ls.idle {
			delete(ls.quarantines, key)
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

// Hold keeps whoever looks at a lane waiting until release is called. It is for tests.
func (ls *lanes) Hold() (release func()) {
	ls.mu.Lock()
	return ls.mu.Unlock
}
