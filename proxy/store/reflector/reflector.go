package reflector

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"golang.org/x/time/rate"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/seed"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Reflector follows one collection upstream. It fills a cache from a list, then applies the events
// of a watch to it.
type Reflector struct {
	// Immutable after New.
	Config
	source  *Source
	metrics reflectorMetrics

	// Used by any goroutine.
	health  health
	breaker breaker

	// The rest is owned by Run.

	scanner framing.Scanner
	backoff time.Duration // least time before the next attempt
	relist  bool          // no watch can bring the cache up to date
	filled  bool          // the cache has been filled once
	endless bool          // upstream may send initial events without an end
	began   time.Time     // when the list that is under way was requested
	slow    int           // questions for the current resourceVersion, in a row, that were not answered in time
	unseen  int           // bytes listed since memory was last looked at
	banned  time.Time     // since when upstream has answered 401 or 403 to all attempts; zero if it has not
	accept  func()        // called with each event of a watch that upstream may refuse at once; nil for others

	diskRead bool        // the file of --cache-dir has been read, or there is none
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
	From   func() uint64
	Series Series // gets the reflector's metrics
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

var (
	// ErrRedefined stops a reflector whose resource has another definition.
	ErrRedefined = errors.New("the resource has been redefined")
	// ErrNotServed stops a reflector whose resource upstream does not know, or does not write in the
	// collection's representation.
	ErrNotServed = errors.New("upstream does not serve the resource")
	// ErrForbidden stops a reflector that upstream has not let follow its resource for forbiddenFor, or whose
	// credential it has not accepted.
	ErrForbidden = errors.New("upstream does not let the proxy list and watch the resource")

	errEndedAtOnce = errors.New("watch ended at once")
)

const (
	minBackoff   = 100 * time.Millisecond
	maxBackoff   = 5 * time.Second
	beginTimeout = 3 * time.Second // for which requests wait while upstream says that it is busy
	// forbiddenFor is how long a filled cache outlives the right to follow its resource. Its clients can read at
	// upstream, which goes on without it. A kube-apiserver that starts forbids much for some seconds.
	forbiddenFor = 5 * time.Minute
)

// New returns a reflector, which does nothing before Run.
func New(c Config) *Reflector {
	return &Reflector{
		Config: c,
		source: c.Collection.source,
		metrics: reflectorMetrics{
			watches:    c.Series.Gauge(upstreamWatches, nil),
			events:     c.Series.Counter(upstreamEvents),
			eventBytes: c.Series.Counter(upstreamEventBytes),
			breaks:     c.Series.Counter(upstreamWatchBreaks),
			relists:    c.Series.Counter(upstreamRelists),
			resets:     c.Series.Counter(upstreamResets),
			reencoded:  c.Series.Counter(upstreamReencodings),
		},
		breaker: breaker{last: rate.NewLimiter(rate.Every(breakInterval), 1)},
		scanner: c.Collection.scanner(),
		backoff: minBackoff,
	}
}

// Run follows the collection until ctx ends, when it returns nil, or until one of these stops it:
// ErrRedefined, ErrNotServed, ErrForbidden, ErrNoRoom, or the error of an object that cannot be cached. It is called
// once.
func (r *Reflector) Run(ctx context.Context) error {
	started := time.Now()
	for {
		a := attempt{began: time.Now(), progress: r.Cache.Progress(), relisting: r.relist}
		a.err = r.follow(ctx)
		if ctx.Err() != nil {
			r.Filling.Fail(false)
			return nil
		}
		busy := statusCode(a.err) == http.StatusTooManyRequests // upstream may still be filling its own cache
		if !busy || time.Since(started) > beginTimeout {
			r.Filling.Fail(troubled(a.err))
		}
		if err := r.stops(a); err != nil {
			r.Filling.Fail(false) // there is no next attempt
			return err
		}
		r.pause(ctx, a)
	}
}

// attempt is one attempt of the reflector to follow its collection, which has ended.
type attempt struct {
	began     time.Time
	progress  uint64 // of the cache before the attempt
	relisting bool   // the attempt had to list the collection
	err       error  // nil if the watch came to a proper end
}

// stops returns the error that ends Run after an attempt; nil if another attempt follows.
func (r *Reflector) stops(a attempt) error {
	switch {
	case uncachable(a.err) && (a.relisting || !r.filled), errors.Is(a.err, ErrNoRoom), errors.Is(a.err, framing.ErrNoTable):
		return a.err
	case r.Redefined(a.began, a.err == nil):
		return ErrRedefined
	case notServed(a.err):
		return ErrNotServed
	case r.forbidden(a.err):
		return ErrForbidden
	}
	return nil
}

// forbidden reports whether upstream has answered 401 or 403 to all attempts for forbiddenFor; err is how the last
// ended.
func (r *Reflector) forbidden(err error) bool {
	if code := statusCode(err); code != http.StatusUnauthorized && code != http.StatusForbidden {
		r.banned = time.Time{}
		return false
	}
	if r.banned.IsZero() {
		r.banned = time.Now()
	}
	return r.filled && time.Since(r.banned) >= forbiddenFor
}

// pause notes why an attempt broke and waits before the next one. There is nothing to note and no
// wait if the watch came to its timeout.
func (r *Reflector) pause(ctx context.Context, a attempt) {
	took := time.Since(a.began)
	if took > 10*time.Second || r.Cache.Progress() > a.progress {
		r.backoff = minBackoff
	}
	if a.err == nil && took > time.Second {
		return
	}
	err, wait := cmp.Or(a.err, errEndedAtOnce), r.retryIn(a)
	r.metrics.breaks.Inc()
	last := &Break{Kind: errorKind(err), Time: time.Now(), Relist: r.relist}
	r.health.note(func(s *Status) { s.LastBreak = last })
	r.Log.Warn("Upstream watch broke", "err", err, "relist", r.relist, "retryIn", wait.Round(time.Millisecond))
	r.backoff = min(r.backoff*2, maxBackoff)
	exchange.Sleep(ctx, wait)
	if hangs(err) {
		r.source.reconnect(ctx)
	}
}

// retryIn returns how long the reflector waits before the next attempt.
func (r *Reflector) retryIn(a attempt) time.Duration {
	if r.relist && !a.relisting {
		return rand.N(minBackoff) // upstream answers, and the cache is old until the collection is listed
	}
	wait := r.backoff + rand.N(r.backoff)
	if status, ok := errors.AsType[*statusError](a.err); ok && status.retryAfter > wait {
		wait = status.retryAfter + rand.N(r.backoff)
	}
	return wait
}

// follow brings the cache up to date and applies one upstream watch. nil means that the watch came
// to a proper end.
func (r *Reflector) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.breaker.cancel.Store(&cancel)
	defer r.breaker.lists.Store(false)
	if err := r.Collection.learn(ctx); err != nil {
		return err
	}
	if r.Collection.Table != "" {
		return r.followTables(ctx)
	}
	if r.breaker.relist.Swap(false) {
		r.relist = true
	}
	if r.Cache.Progress() != 0 && !r.relist {
		if r.relist = r.reencoded(ctx); !r.relist {
			return r.resume(ctx)
		}
	}
	if followed, err := r.followSeed(ctx); followed {
		return err
	}
	r.breaker.lists.Store(true)
	r.Filling.InLine(true)
	listed, err := r.source.turn(ctx)
	r.Filling.InLine(false)
	if err != nil {
		return err
	}
	defer listed()
	r.began = time.Now()
	build := r.source.builds.Of(ctx, r.Collection.info)
	if r.filled && build.Differs(r.build) {
		r.Collection.learnWarnings(ctx) // another version may have deprecated the resource
	}
	r.build = build
	err = r.fillByWatch(ctx, listed)
	if !errors.Is(err, ErrNoWatchList) {
		return err
	}
	if err := r.fillByList(ctx); err != nil {
		return err
	}
	r.health.note(func(s *Status) {
		if s.BrokenSince.IsZero() { // no watch follows the list yet
			s.BrokenSince = time.Now()
		}
	})
	listed()
	return r.watch(ctx, r.Cache.Progress())
}
