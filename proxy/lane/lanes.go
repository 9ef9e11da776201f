package lane

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/auth"
	"github.com/watchfan/watchfan/proxy/request"
	"github.com/watchfan/watchfan/proxy/upstream"
)

// Lanes is all lanes of a server.
type Lanes struct {
	upstream      auth.APIServer
	discovery     *upstream.Discovery
	Flusher       *fanout.Flusher
	limits        fanout.Limits
	Idle          time.Duration
	Log           *slog.Logger
	spareLists    bool
	hang          time.Duration // LaneOptions.hangTimeout
	quarantineFor time.Duration // LaneOptions.quarantineFor
	turns         turns
	builds        upstream.Builds

	reconnected moment // when reconnect last did something

	// Short reports whether memory is: then no lane begins. full reports whether it is now: then a
	// list that is being read is given up. Both are set before the first lane is asked for; nil is
	// never.
	Short, Full func() bool

	running sync.WaitGroup // the reflectors

	mu          sync.Mutex
	ctx         context.Context // of the reflectors; nil once no more are to start
	byKey       map[Key]*Lane
	defined     map[schema.GroupResource]*upstream.Definition // see crdWatcher; nil is none
	quarantines map[Key]time.Time                             // until when; see quarantine.go

	// aggregated are the versions that another server answers for (zero), or did until just now:
	// until when there are to be no lanes; see aggregation.
	aggregated map[schema.GroupVersion]time.Time
}

// NewLanes returns no lanes yet. They live in ctx.
func NewLanes(ctx context.Context, up auth.APIServer, discovery *upstream.Discovery, flusher *fanout.Flusher, opts *Options, log *slog.Logger) *Lanes {
	return &Lanes{
		upstream:      up,
		discovery:     discovery,
		Flusher:       flusher,
		limits:        opts.limits(),
		Idle:          opts.IdleTimeout,
		Log:           log,
		ctx:           ctx,
		spareLists:    opts.Tuning.SpareLists,
		hang:          cmp.Or(opts.Tuning.HangTimeout, hangTimeout),
		quarantineFor: cmp.Or(opts.Tuning.QuarantineFor, quarantineFor),
		turns:         newTurns(),
		builds:        upstream.Builds{Upstream: up},
		byKey:         make(map[Key]*Lane),
		defined:       make(map[schema.GroupResource]*upstream.Definition),
		aggregated:    make(map[schema.GroupVersion]time.Time),
	}
}

// Acquire returns the lane of a resource in a representation, starting it if need be and start is
// true, and counts the caller as its user until it calls release. ok is false if there is none, if
// the resource has been redefined since info was had, if an aggregated server answers for it, and
// once the server stops.
func (ls *Lanes) Acquire(info upstream.ResourceInfo, rep request.Representation, start bool) (l *Lane, ok bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.ctx == nil || ls.defined[info.GVR.GroupResource()] != info.Definition || ls.outsourcedLocked(info.GVR.GroupVersion()) {
		return nil, false
	}
	key := Key{info.GVR, rep}
	l = ls.byKey[key]
	if l != nil && l.Info.Definition != info.Definition {
		ls.stopLocked(l)
		l = nil
	}
	if l == nil {
		if !start || ls.Short != nil && ls.Short() || time.Now().Before(ls.quarantines[key]) {
			return nil, false
		}
		l = NewLane(ls, key, info)
		ls.byKey[key] = l
		ctx, cancel := context.WithCancel(ls.ctx)
		l.stop = cancel
		ls.running.Go(func() {
			if d := (&reflector{lane: l, scanner: framing.NewScanner(l.Encoding, l.fields)}).run(ctx); d > 0 {
				ls.quarantine(key, d)
			}
			ls.remove(l)
		})
	}
	l.users++
	return l, true
}

// Spawn runs f on a goroutine that run waits for. It reports false, and does not, once the server
// stops.
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

// Release undoes one acquire.
func (ls *Lanes) Release(l *Lane) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.users--
	l.idleSince = time.Now()
}

// remove forgets a lane whose reflector has ended, and ends its clients.
func (ls *Lanes) remove(l *Lane) {
	ls.mu.Lock()
	if ls.byKey[l.Key] == l {
		delete(ls.byKey, l.Key)
	}
	ls.mu.Unlock()
	ending := fanout.Ending{Reason: fanout.LaneClosed}
	if l.outdated.Load() {
		ending.Reason = fanout.Redefined
	}
	l.Cache.Close(ending)
	l.Metrics.Unregister()
	ls.discovery.Forget(l.GVR.GroupVersion())
}

// Run stops idle lanes until ctx ends, then all of them, and returns when no reflector is left.
func (ls *Lanes) Run(ctx context.Context) {
	tick := time.NewTicker(max(ls.Idle/10, time.Second))
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
	ls.builds.End()
}

func (ls *Lanes) stopIdle() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.byKey {
		if l.users == 0 && time.Since(l.idleSince) >= ls.Idle {
			l.Log.Info("Stopped idle lane", "idleTimeout", ls.Idle)
			ls.stopLocked(l)
		}
	}
	for key, until := range ls.quarantines {
		if l := ls.byKey[key]; l != nil && l.Synced() || l == nil && time.Since(until) >= ls.Idle {
			delete(ls.quarantines, key)
		}
	}
}

// Shed stops all lanes that nobody uses, and returns how many that were.
func (ls *Lanes) Shed() (n int) {
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

// EndWatches ends all watches that are served from a cache, and lets no other begin.
func (ls *Lanes) EndWatches(e fanout.Ending) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.ctx = nil
	for _, l := range ls.byKey {
		l.Cache.Close(e)
	}
}

// Has reports whether the lane is still followed.
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

// Discard undoes one acquire, and stops the lane if nobody else uses it.
func (ls *Lanes) Discard(l *Lane) {
	ls.Release(l)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l.users == 0 && ls.byKey[l.Key] == l {
		ls.stopLocked(l)
	}
}

// stopLocked forgets a lane that is followed, and has its reflector end.
func (ls *Lanes) stopLocked(l *Lane) {
	delete(ls.byKey, l.Key)
	l.stop()
}

// Hold keeps whoever looks at a lane waiting until release is called. It is for tests.
func (ls *Lanes) Hold() (release func()) {
	ls.mu.Lock()
	return ls.mu.Unlock
}
