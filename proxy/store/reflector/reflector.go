package reflector

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/seed"
)

// Reflector follows one collection upstream. It fills a cache from a list, then applies the events
// of a watch to it.
type Reflector struct {
	// Immutable after New.
	source     *Source
	collection *Collection
	cache      *fanout.Cache
	filling    Filling
	redefined  func(began time.Time, ended bool) bool
	from       func() uint64
	metrics    reflectorMetrics
	log        *slog.Logger

	// Used by any goroutine.
	health    health
	breaker   breaker
	watchList atomic.Bool                    // upstream serves sendInitialEvents (KEP-3157)
	wrote     atomic.Pointer[upstream.Build] // that wrote what the cache was last filled with; nil before that
	first     atomic.Pointer[Filled]         // how the cache was filled for the first time; nil before that

	// The rest is owned by Run.

	scanner framing.Scanner
	backoff time.Duration // least time before the next attempt
	relist  bool          // no watch can bring the cache up to date
	filled  bool          // the cache has been filled once
	began   time.Time     // when the list that is under way was requested
	slow    int           // questions for the current resourceVersion, in a row, that were not answered in time
	unseen  int           // bytes listed since memory was last looked at
	accept  func()        // called with each event of a watch that upstream may refuse at once; nil for others
	asked   bool          // siblings have been asked

	unseeded seed.Reason // why no sibling has filled the cache; "" if none was asked

	// See reencoded.
	build    upstream.Build // that writes what the cache is filled with
	compared time.Time      // when the cache was last compared with what upstream writes
	refilled time.Time      // when the collection was last listed because of a comparison
}

// Config is what a reflector is made of. All fields are required.
type Config struct {
	Collection *Collection   // what is followed
	Cache      *fanout.Cache // holds it
	Filling    Filling       // is told about the first list
	// Redefined reports whether the resource has been redefined, which ends Run. It is asked after
	// each attempt to follow the collection: when that began, and whether upstream ended its watch
	// properly.
	Redefined func(began time.Time, ended bool) bool
	// From returns the resourceVersion where the first watch in Tables begins, 0 for the current one.
	// Other collections are listed.
	From    func() uint64
	Metrics *metrics.Set // gets the reflector's metrics
	// Series returns the name of a metric's time series: the metric's name with the lane's labels
	// and more, which are pairs of name and value.
	Series func(metric string, more ...string) string
	Log    *slog.Logger
}

// Filling is told how the reflector gets on with the first list, or with the beginning of the first
// watch in Tables. The goroutine of Run calls it, but a timer may call End.
type Filling interface {
	InLine(waits bool) // the reflector waits for its turn to list, or has got it
	Progress()         // a list has brought something
	// End says that the cache has been filled for the first time, by a list that was requested
	// then. The zero time is that of a sibling's state, which may be older than any read that
	// waits.
	End(listed time.Time)
	Fail(troubled bool) // an attempt has ended; troubled says that the next may succeed soon
}

// New returns a reflector, which does nothing before Run.
func New(c Config) *Reflector {
	return &Reflector{
		source:     c.Collection.source,
		collection: c.Collection,
		cache:      c.Cache,
		filling:    c.Filling,
		redefined:  c.Redefined,
		from:       c.From,
		metrics:    newReflectorMetrics(c.Metrics, c.Series),
		log:        c.Log,
		scanner:    c.Collection.scanner(),
		backoff:    minBackoff,
	}
}

// WatchList reports whether upstream is known to serve sendInitialEvents. It may be called from any
// goroutine.
func (r *Reflector) WatchList() bool { return r.watchList.Load() }

// Changes returns how many changes upstream has sent. It may be called from any goroutine.
func (r *Reflector) Changes() uint64 { return r.metrics.events.Get() }

// Build returns the build of kube-apiserver that wrote what the cache was last filled with; nil
// before that. It may be called from any goroutine.
func (r *Reflector) Build() *upstream.Build { return r.wrote.Load() }

// Run follows the collection until ctx ends, when it returns nil, or until one of these stops it:
// ErrRedefined, ErrNotServed, ErrNoRoom, or the error of an object that cannot
// be cached. It is called once.
func (r *Reflector) Run(ctx context.Context) error {
	started := time.Now()
	for {
		a := attempt{began: time.Now(), progress: r.cache.Progress(), relisting: r.relist}
		a.err = r.follow(ctx)
		if ctx.Err() != nil {
			r.filling.Fail(false)
			return nil
		}
		if !a.status().beginning() || time.Since(started) > beginTimeout {
			r.filling.Fail(troubled(a.err))
		}
		switch o := r.outcome(a); o.next {
		case nextStop:
			r.filling.Fail(false) // there is no next attempt
			return o.err
		case nextRetry:
			r.pause(ctx, o)
		}
	}
}

// pause notes why an attempt broke and waits before the next one.
func (r *Reflector) pause(ctx context.Context, o outcome) {
	r.metrics.breaks.Inc()
	r.health.broke(o.err, r.relist)
	r.log.Warn("Upstream watch broke", "err", o.err, "relist", r.relist, "retryIn", o.wait.Round(time.Millisecond))
	r.backoff = min(r.backoff*2, maxBackoff)
	select {
	case <-time.After(o.wait):
	case <-ctx.Done():
	}
	if hangs(o.err) {
		r.source.reconnect(ctx)
	}
}

// follow brings the cache up to date and applies one upstream watch. nil means that the watch came
// to a proper end.
func (r *Reflector) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.breaker.arm(cancel)
	if err := r.collection.learn(ctx); err != nil {
		return err
	}
	if r.collection.Table != "" {
		return r.followTables(ctx)
	}
	if r.breaker.relist.Swap(false) {
		r.relist = true
	}
	if r.cache.Progress() != 0 && !r.relist {
		if r.relist = r.reencoded(ctx); !r.relist {
			return r.resume(ctx)
		}
	}
	if followed, err := r.followSeed(ctx); followed {
		return err
	}
	r.filling.InLine(true)
	listed, err := r.source.turn(ctx)
	r.filling.InLine(false)
	if err != nil {
		return err
	}
	defer listed()
	r.began = time.Now()
	r.build = r.source.builds.Of(ctx, r.collection.info.GVR.GroupVersion())
	err = r.fillByWatch(ctx, listed)
	if !errors.Is(err, ErrNoWatchList) {
		return err
	}
	if err := r.fillByList(ctx); err != nil {
		return err
	}
	r.health.unwatched()
	listed()
	return r.watch(ctx, r.cache.Progress())
}
