package cached

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/audit"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/consumers"
	"github.com/watchfan/watchfan/proxy/gate/fairness"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/store/observe"
	"github.com/watchfan/watchfan/proxy/store/registry"
	"github.com/watchfan/watchfan/proxy/store/seed"
	"github.com/watchfan/watchfan/proxy/store/selfcheck"
	"github.com/watchfan/watchfan/proxy/store/sharedlist"
	"github.com/watchfan/watchfan/proxy/store/watchers"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Config holds the dependencies of Reads. All fields are required.
type Config struct {
	Options    *Options
	Lane       *lane.Options
	SelfCheck  *selfcheck.Options
	Memory     lane.Memory
	Upstream   *upstream.Upstream
	Siblings   *seed.Siblings
	Discovery  *upstream.Discovery
	Authorizer *auth.Authorizer
	Ledger     *account.Ledger
	Audit      *audit.Log
	Observer   *observe.Observer
	Consumers  *consumers.Register
	// End writes the end of a read that no cache answers: it is refused, or passes through.
	End func(*exchange.Exchange, auth.Identity, *request.Request, request.Outcome)
	// TooMany returns the 429 for a client that has waited too long for a lane to be filled. message
	// gives the reason.
	TooMany func(message string) *metav1.Status
	Metrics *Metrics
	Guard   *exchange.Guard
}

// Reads answers gets, lists and watches from the lanes' caches. Its methods may be called from any
// goroutine.
type Reads struct {
	Config
	Lanes      *lane.Lanes // that reads are answered from
	SelfChecks *selfcheck.Checker
	Flusher    *fanout.Flusher   // writes to the watches
	Watchers   watchers.Register // of the open watches
	Fairness   *fairness.Queue   // in which reads wait for seats
	APIs       *registry.Aggregation
	first      *fairness.Queue // as Fairness, for those who are served first

	encodings  *upstream.SupportedEncodings
	sharding   *upstream.Sharding
	crds       *registry.CRDWatcher
	namespaces *registry.Namespaces
	passing    *passing
	compressed *compressedLists
	shared     *sharedlist.Lists // in Tables
	residents  []*resident
	log        *slog.Logger
	ctx        context.Context // ends when serving ends
}

// New returns a Reads that serves until ctx ends. The caller calls Run.
func New(ctx context.Context, cfg Config) *Reads {
	flusher := fanout.NewFlusher(runtime.GOMAXPROCS(0), cfg.Lane.FlushInterval, cfg.Metrics.flusher)
	lanes := lane.NewLanes(ctx, lane.Config{
		Options:   cfg.Lane,
		Upstream:  cfg.Upstream,
		Siblings:  cfg.Siblings,
		Discovery: cfg.Discovery,
		Flusher:   flusher,
		Memory:    cfg.Memory,
		Metrics:   cfg.Metrics.lanes,
		Guard:     cfg.Guard,
	})
	log := cfg.Guard.Log
	c := &Reads{
		Config:     cfg,
		Lanes:      lanes,
		SelfChecks: selfcheck.New(lanes, cfg.SelfCheck),
		Flusher:    flusher,
		encodings:  upstream.NewSupportedEncodings(cfg.Upstream, cfg.Guard),
		sharding:   upstream.NewSharding(cfg.Upstream, cfg.Guard),
		crds:       registry.NewCRDWatcher(lanes, cfg.Discovery, cfg.Metrics.lanes, log),
		APIs:       registry.NewAggregation(lanes, cfg.Discovery, cfg.Lane.CacheAggregatedGroups, log),
		passing:    newPassing(ctx, cfg.Options.Tuning.MostAlone, cfg.Metrics.vain),
		compressed: newCompressedLists(cfg.Ledger),
		shared:     sharedlist.New(lanes.Spawn),
		log:        log,
		ctx:        ctx,
	}
	c.namespaces = registry.NewNamespaces(lanes, cfg.Discovery, c.Observer.AsksNamespaces, c.setNamespaces, log)
	c.first, c.Fairness = fairness.NewPair(ctx, runtime.GOMAXPROCS(0), fairness.Purpose{
		Message: "this client's reads take more time than its share",
		Refused: cfg.Metrics.waitingReads,
		Waited: func(d time.Duration) {
			cfg.Metrics.seatWaits.Inc()
			cfg.Metrics.seatWaitSeconds.Add(d.Seconds())
		},
	})
	for _, name := range cfg.Options.ResidentResources {
		c.residents = append(c.residents, &resident{name: name, reads: c})
	}
	return c
}

// Run runs the goroutines of Reads until the context of New ends. It leaves none behind.
func (c *Reads) Run() {
	var wg sync.WaitGroup
	wg.Go(func() { c.Flusher.Run(c.ctx) })
	wg.Go(func() { c.Authorizer.Run(c.ctx) })
	wg.Go(func() { c.Lanes.Run(c.ctx) })
	wg.Go(func() { c.SelfChecks.Run(c.ctx) })
	for _, r := range c.residents {
		wg.Go(r.keep)
	}
	wg.Wait()
	c.Discovery.End()
	c.encodings.End()
	c.sharding.End()
	c.Siblings.End()
	c.Observer.Wait()
}

// Forget frees memory: it forgets compressed lists and indexes.
func (c *Reads) Forget() {
	c.compressed.forget()
	c.Lanes.ForgetIndexes()
}

// StopUnused stops the lanes without clients, and returns their number.
func (c *Reads) StopUnused() int { return c.Lanes.StopUnused() }

// OpenWatches returns the open watches of each consumer.
func (c *Reads) OpenWatches() map[consumers.Name]consumers.Watches {
	return c.Watchers.ByConsumer(c.Flusher)
}

// drainPace is the longest time between the ends of two watches. It keeps the drain of a few
// watches short, for any --drain-duration.
const drainPace = 20 * time.Millisecond

// shutDown ends a watch whose client is to continue elsewhere, because the proxy stops.
var shutDown = fanout.Ending{Reason: fanout.ShutDown, Graceful: true}

// Drain ends the watches that are served from a cache. The ends are spread evenly over at most d,
// and each follows a bookmark. If all clients came back at once, the other replica would be busy
// with them and not with its events. The order is random, because the watches of one process mostly
// began together. Drain returns when all watches have been asked to end; see AwaitEnds. Those that
// begin meanwhile end at once in the same way. Reads that wait for a lane get 429.
func (c *Reads) Drain(ctx context.Context, d time.Duration) {
	c.Lanes.EndWaits()
	open := c.Watchers.All()
	if len(open) == 0 {
		return
	}
	rand.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	begin := time.Now()
	c.log.Info("Draining", "watches", len(open), "drain", d)
	spread(ctx, len(open), d, func(i int) {
		open[i].Sub.End(shutDown)
		if n := (len(open) + 3) / 4; i > 0 && i%n == 0 {
			c.log.Info("Draining", "watches", c.Watchers.Count(), "elapsed", time.Since(begin).Round(time.Millisecond))
		}
	})
	c.log.Info("Drained", "watches", c.Watchers.Count(), "elapsed", time.Since(begin).Round(time.Millisecond))
}

// spread calls f for 0 to n-1, evenly over at most d and with at most drainPace in between.
func spread(ctx context.Context, n int, d time.Duration, f func(i int)) {
	d = min(d, time.Duration(n)*drainPace)
	begin := time.Now()
	for i := range n {
		exchange.Sleep(ctx, time.Until(begin.Add(d*time.Duration(i)/time.Duration(n))))
		f(i)
	}
}

// AwaitEnds waits for the ends of the watches that Drain asked to end, for at most d. A client that
// does not read in this time gets no bookmark.
func (c *Reads) AwaitEnds(d time.Duration) {
	ctx, cancel := context.WithTimeout(c.ctx, d)
	defer cancel()
	for c.Watchers.Count() > 0 && ctx.Err() == nil {
		exchange.Sleep(ctx, 10*time.Millisecond)
	}
}

// newRead returns a read that has just arrived. The caller releases it.
func (c *Reads) newRead(x *exchange.Exchange, id auth.Identity, req *request.Request) *read {
	r := &read{Request: req, reads: c, id: id, arrived: time.Now(), conn: x.Conn}
	r.consumer, r.first = c.Consumers.Of(x, id)
	return r
}

// Serve answers req from a cache if possible. Otherwise it ends req with Config.End, perhaps after it
// has returned.
func (c *Reads) Serve(x *exchange.Exchange, id auth.Identity, req *request.Request) {
	r := c.newRead(x, id, req)
	later := false
	defer func() {
		if !later {
			r.release()
		}
	}()
	o := c.prepare(x, r)
	if later = o.Open() && r.Verb == "watch" && !r.lane.Synced(); later {
		x.Response.Later = func(x *exchange.Exchange) {
			defer r.release()
			c.finish(x, r, c.serveLane(x, r))
		}
		return
	}
	if o.Open() {
		o = c.serveLane(x, r)
	}
	c.finish(x, r, o)
}

// finish ends r with o.
func (c *Reads) finish(x *exchange.Exchange, r *read, o request.Outcome) {
	if o.Answered() {
		if r.lane != nil { // the answer is not shared with others
			r.lane.CountServed(r.Verb)
		}
		if r.Verb != "watch" {
			c.Audit.Served(x, r.audited())
		}
		return
	}
	if why := o.Why(); why != "" {
		o = c.pass(x, r, why)
	}
	c.End(x, r.id, r.Request, o)
	if o.Refusal() != nil {
		c.addWarnings(x, r, nil)
	}
}

// prepare reviews r, and gives it a lane that may answer it. Then the outcome is open. The review comes
// first: the package's documentation says why, and which reads pass through without one.
func (c *Reads) prepare(x *exchange.Exchange, r *read) (o request.Outcome) {
	if why := c.neverCached(r); why != "" {
		return request.PassThrough(why)
	}
	if why := c.ruledOut(x, r); why != "" {
		return request.PassThrough(why)
	}
	if c.passesUnasked(x, r) {
		return request.PassThrough(request.Cheaper)
	}
	wait, cancel := context.WithTimeout(exchange.WithArrival(c.ctx, r.conn), lane.Wait)
	defer cancel()
	if o = c.review(wait, r); !o.Open() {
		return o
	}
	if r.listsTables() {
		return c.serveTables(wait, x, r)
	}
	if o = c.resolve(wait, r); !o.Open() {
		return o
	}
	if r.Shard.Err != nil {
		return c.unknownShard(wait, r)
	}
	if o = r.acquire(r.startsLane()); !o.Open() {
		return o
	}
	if r.passesEasily() {
		return request.PassThrough(request.Cheaper)
	}
	r.decided = time.Now()
	return o
}

// review asks whether the client may read. kube-apiserver words the denial itself.
func (c *Reads) review(ctx context.Context, r *read) (o request.Outcome) {
	r.decision = c.Authorizer.Authorize(ctx, r.id, r.Request)
	switch {
	case r.decision.Allowed():
		return o
	case r.decision.Busy():
		return request.Refuse(c.Authorizer.TooManyReviews())
	case r.decision.Unauthenticated(r.arrived): // so a bad token costs kube-apiserver one request
		c.Metrics.unauthorized.Inc()
		r.id = auth.Identity{Kind: auth.KindNobody, Warning: r.id.Warning} // from now on nobody knows whose read it is
		return request.Refuse(apistatus.Unauthorized())
	}
	return request.PassThrough(request.NotAllowed)
}

// serveLane answers r from its lane, which may have to be filled first.
func (c *Reads) serveLane(x *exchange.Exchange, r *read) (o request.Outcome) {
	if o = c.awaitLane(x, r); !o.Open() {
		return o
	}
	if o = c.stillAllowed(r); !o.Open() {
		return o
	}
	return c.serveFrom(x, r)
}

// serveFrom answers r from its lane, which is filled.
func (c *Reads) serveFrom(x *exchange.Exchange, r *read) request.Outcome {
	if r.Verb == "watch" {
		return c.serveWatch(x, r)
	}
	r.seat = c.seat(r)
	defer r.seat.Give()
	if r.Verb == "list" {
		return c.serveList(x, r)
	}
	return c.serveGet(x, r)
}

// seat returns the seat for r, which r has not taken yet.
func (c *Reads) seat(r *read) *fairness.Seat {
	limit := fairness.MaxSeatWait
	if r.Timeout > 0 {
		limit = max(1, r.Timeout-time.Since(r.arrived))
	}
	queue := c.Fairness
	if r.first {
		queue = c.first
	}
	seat := queue.Seat(r.flow(), limit, r.conn.Left, r.conn.EndArrival)
	seat.Worker = r.consumer
	return seat
}
