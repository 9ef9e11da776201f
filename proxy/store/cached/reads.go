package cached

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/audit"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/fairness"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/store/registry"
	"github.com/watchfan/watchfan/proxy/store/seed"
	"github.com/watchfan/watchfan/proxy/store/selfcheck"
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
	opts        *Options
	lane        *lane.Options
	siblings    *seed.Siblings
	discovery   *upstream.Discovery
	upstream    *upstream.Upstream
	encodings   *upstream.SupportedEncodings
	sharding    *upstream.Sharding
	crds        *registry.CRDWatcher
	aggregation *registry.Aggregation
	auth        *auth.Authorizer
	ledger      *account.Ledger
	audit       *audit.Log
	end         func(*exchange.Exchange, auth.Identity, *request.Request, request.Outcome)
	tooMany     func(message string) *metav1.Status
	lanes       *lane.Lanes
	selfcheck   *selfcheck.Checker
	passing     *passing
	compressed  compressedLists
	shared      *sharedLists // in Tables
	flusher     *fanout.Flusher
	watchers    watchers.Register
	residents   []*resident
	fairness    *fairness.Queue
	metrics     *Metrics
	log         *slog.Logger
	ctx         context.Context // ends when serving ends
}

// New returns a Reads that serves until ctx ends. The caller calls Run.
func New(ctx context.Context, cfg Config) *Reads {
	flusher := fanout.NewFlusher(runtime.GOMAXPROCS(0), cfg.Lane.FlushInterval, cfg.Metrics.flusher)
	c := &Reads{
		opts:      cfg.Options,
		lane:      cfg.Lane,
		siblings:  cfg.Siblings,
		discovery: cfg.Discovery,
		upstream:  cfg.Upstream,
		encodings: upstream.NewSupportedEncodings(cfg.Upstream, cfg.Guard),
		sharding:  upstream.NewSharding(cfg.Upstream, cfg.Guard),
		auth:      cfg.Authorizer,
		ledger:    cfg.Ledger,
		audit:     cfg.Audit,
		end:       cfg.End,
		tooMany:   cfg.TooMany,
		flusher:   flusher,
		passing:   newPassing(ctx, cfg.Options.Tuning.MostAlone, cfg.Metrics.vain),
		log:       cfg.Guard.Log,
		ctx:       ctx,
		metrics:   cfg.Metrics,
		lanes: lane.NewLanes(ctx, lane.Config{
			Options:   cfg.Lane,
			Upstream:  cfg.Upstream,
			Siblings:  cfg.Siblings,
			Discovery: cfg.Discovery,
			Flusher:   flusher,
			Memory:    cfg.Memory,
			Metrics:   cfg.Metrics.lanes,
			Guard:     cfg.Guard,
		}),
	}
	c.fairness = fairness.New(ctx, runtime.GOMAXPROCS(0), fairness.Purpose{
		Message: "this client's reads take more time than its share",
		Refused: cfg.Metrics.waitingReads,
		Waited:  cfg.Metrics.countSeatWait,
	})
	c.compressed.ledger = cfg.Ledger
	c.selfcheck = selfcheck.New(c.lanes, cfg.SelfCheck)
	c.shared = newSharedLists(c.lanes.Spawn)
	c.crds = registry.NewCRDWatcher(c.lanes, cfg.Discovery, cfg.Metrics.registry, cfg.Guard.Log)
	c.aggregation = registry.NewAggregation(c.lanes, cfg.Discovery, cfg.Lane.CacheAggregatedGroups, cfg.Guard.Log)
	for _, name := range cfg.Options.ResidentResources {
		c.residents = append(c.residents, &resident{name: name, reads: c})
	}
	return c
}

// Run runs the goroutines of Reads until the context of New ends. It leaves none behind.
func (c *Reads) Run() {
	var wg sync.WaitGroup
	wg.Go(func() { c.flusher.Run(c.ctx) })
	wg.Go(func() { c.auth.Run(c.ctx) })
	wg.Go(func() { c.lanes.Run(c.ctx) })
	wg.Go(func() { c.selfcheck.Run(c.ctx) })
	for _, r := range c.residents {
		wg.Go(r.keep)
	}
	wg.Wait()
	c.discovery.End()
	c.encodings.End()
	c.sharding.End()
	c.siblings.End()
}

// Lanes returns the lanes that reads are answered from.
func (c *Reads) Lanes() *lane.Lanes { return c.lanes }

// SelfChecks returns the comparisons of lanes with kube-apiserver.
func (c *Reads) SelfChecks() *selfcheck.Checker { return c.selfcheck }

// Flusher returns the flusher that writes to the watches.
func (c *Reads) Flusher() *fanout.Flusher { return c.flusher }

// Watchers returns the open watches.
func (c *Reads) Watchers() *watchers.Register { return &c.watchers }

// Fairness returns the queue in which reads wait for seats.
func (c *Reads) Fairness() *fairness.Queue { return c.fairness }

// Forget frees memory: it forgets compressed lists and indexes.
func (c *Reads) Forget() {
	c.compressed.forget()
	c.lanes.ForgetIndexes()
}

// StopUnused stops the lanes without clients, and returns their number.
func (c *Reads) StopUnused() int { return c.lanes.StopUnused() }

// End ends all watches that are served from a cache. No other begins after that.
func (c *Reads) End() { c.lanes.EndWatches(fanout.Ending{Reason: fanout.ShutDown}) }

// newRead returns a read that has just arrived. The caller releases it.
func (c *Reads) newRead(x *exchange.Exchange, id auth.Identity, req *request.Request) *read {
	return &read{Request: req, id: id, arrived: time.Now(), auth: c.auth, lanes: c.lanes, passing: c.passing, conn: x.Conn}
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
	if o.Open() && r.Verb == "watch" && !r.lane.Synced() {
		later = true
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
			c.audit.Served(x, r.audited())
		}
		return
	}
	if why := o.Why(); why != "" {
		if other := c.pass(x, r, why); !other.Open() {
			o = other
		}
	}
	c.end(x, r.id, r.Request, o)
	if o.Refusal() != nil {
		c.addWarnings(x, r, nil)
	}
}

// unauthorized returns the refusal of a read whose token kube-apiserver does not accept. From now on
// nobody knows whose read it is.
func (c *Reads) unauthorized(r *read) *metav1.Status {
	c.metrics.unauthorized.Inc()
	r.id = auth.Identity{Kind: auth.KindNobody, Warning: r.id.Warning}
	return apistatus.Unauthorized()
}

// prepare reviews r, and gives it a lane that may answer it. Then the outcome is open.
//
// The review comes first. Until kube-apiserver has allowed the request, no lane is looked at or
// started, no cache is read, and nothing is asked in the proxy's own name except a review that only
// the proxy can ask. The cost and the duration of a request must not depend on data that its client
// may not read.
func (c *Reads) prepare(x *exchange.Exchange, r *read) (o request.Outcome) {
	wait, cancel := context.WithTimeout(exchange.WithArrival(c.ctx, r.conn), lane.Wait)
	defer cancel()
	if why := c.neverCached(r); why != "" {
		return request.PassThrough(why)
	}
	if c.passesUnasked(x, r) {
		return request.PassThrough(request.Cheaper)
	}
	if o = c.review(wait, r); !o.Open() {
		return o
	}
	if r.listsTables() {
		return c.serveTables(wait, x, r)
	}
	if len(r.fitting()) == 0 {
		return c.unfit(r)
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
	if c.passesEasily(wait, r) {
		return request.PassThrough(request.Cheaper)
	}
	r.decided = time.Now()
	return o
}

// review asks whether the client may read. kube-apiserver words the denial itself.
func (c *Reads) review(ctx context.Context, r *read) (o request.Outcome) {
	r.decision = c.auth.Authorize(ctx, r.id, r.Request)
	switch {
	case r.decision.Allowed():
		return o
	case r.decision.Busy():
		return request.Refuse(c.auth.TooManyReviews())
	case r.decision.Unauthenticated(r.arrived): // so a bad token costs kube-apiserver one request
		return request.Refuse(c.unauthorized(r))
	}
	return request.PassThrough(request.NotAllowed)
}

// serveLane answers r from its lane, which may have to be filled first.
func (c *Reads) serveLane(x *exchange.Exchange, r *read) (o request.Outcome) {
	if o = c.awaitLane(x, r); o.Open() {
		o = c.stillAllowed(r)
	}
	if o.Open() {
		o = c.serveFrom(x, r)
	}
	return o
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
	return c.fairness.Seat(auth.FlowOf(r.id, r.conn.RemoteAddr()), limit, r.conn.Left, r.conn.EndArrival)
}

// read is a request that a lane may answer.
type read struct {
	*request.Request
	id      auth.Identity
	source  account.Source // zero until it is asked for
	arrived time.Time
	conn    exchange.Conn
	auth    *auth.Authorizer
	lanes   *lane.Lanes
	passing *passing

	// Set by resolve.
	info      upstream.ResourceInfo
	form      request.Representation // of the lane
	variant   *fanout.Variant        // what is left out of the objects, and who counts
	namespace string                 // "" for all and in cluster scope
	selector  fields.Selector

	// Set by prepare and serveLane.
	easy     bool // it counts as an easy read that passes through
	waited   bool // it has waited for its lane to be filled
	few      bool // its lane lets it through as one of a few
	decision auth.Decision
	decided  time.Time // when the decision was there

	// Set by acquire.
	lane   *lane.Lane
	filter *fanout.Filter
	kept   bool // release leaves the lane to the watch

	turn func() // gives the turn at the processors back; nil without one

	// Set by serveFrom, for gets and lists.
	seat *fairness.Seat
}

// audited returns the read as the audit log records it.
func (r *read) audited() audit.Read {
	return audit.Read{Request: r.Request, ID: r.id, Decision: r.decision, Arrived: r.arrived}
}

// startsLane reports whether the request starts a lane. A get of the current state does not.
func (r *read) startsLane() bool { return r.Verb != "get" || r.ResourceVersion != "" }

// acquire sets the lane, if there is one. It starts the lane if there is none and start is true.
func (r *read) acquire(start bool) (o request.Outcome) {
	if r.lane != nil {
		return o
	}
	if r.form.Table != "" {
		return r.acquireTables()
	}
	l, why := r.lanes.Acquire(r.info, r.form, start, r)
	if l == nil {
		return request.PassThrough(why)
	}
	if start {
		r.passing.noteLane(r.GVR, true)
	}
	var ok bool
	if r.filter, ok = fanout.NewFilter(r.namespace, r.Labels, r.selector, l.FieldLabels()); !ok {
		r.lanes.Release(l)
		return request.PassThrough(request.Selector)
	}
	r.filter = r.filter.Within(r.Shard.Part)
	r.lane = l
	return o
}

// Source implements lane.By. It is called when the client has been allowed to read.
func (r *read) Source() account.Source {
	if r.source == (account.Source{}) {
		r.source = r.auth.Source(r.id)
	}
	return r.source
}

// keep makes release leave the lane to the caller of keep.
func (r *read) keep() { r.kept = true }

// pause gives the turn at the processors back before a wait, if there is one. resume waits for another
// behind a wait that many watches share. All of them would otherwise run before the shards, and open
// watches would get their events late.
func (r *read) pause() {
	if r.turn != nil {
		r.turn()
		r.turn = nil
	}
}

func (r *read) resume() { r.turn = r.conn.Turn() }

func (r *read) release() {
	r.pause()
	if r.easy {
		r.passing.giveEasy(r.GVR)
	}
	if r.lane != nil && !r.kept {
		r.lanes.Release(r.lane)
	}
}

// resolve determines the resource, representation and scope of r, if a lane can serve them. The
// client must be allowed to read, because resolve may ask kube-apiserver in the proxy's own name.
func (c *Reads) resolve(ctx context.Context, r *read) (o request.Outcome) {
	if c.aggregation.Served(ctx, r.GVR.GroupVersion(), r.Verb == "watch") != registry.ByItself {
		return request.PassThrough(request.Aggregated)
	}
	var ok bool
	if r.info, ok = c.discovery.Lookup(ctx, r.GVR); !ok || !r.info.Watchable {
		return request.PassThrough(request.Resource)
	}
	if r.namespace, ok = r.Scope(r.info.Namespaced); !ok {
		return request.PassThrough(request.Resource)
	}
	chosen, ok := c.encodings.Choose(ctx, r.GVR, r.fitting())
	if !ok || r.indented(chosen) {
		return request.PassThrough(request.Form)
	}
	r.variant = r.variantOf(chosen)
	r.form = chosen.Representation
	if !r.startsLane() && !c.lanes.Started(lane.Key{GVR: r.GVR, Representation: r.form}) {
		c.passing.noteLane(r.GVR, false)
		return request.PassThrough(request.NoLane)
	}
	if r.info.Definition, ok = c.crds.Of(ctx, r.GVR, r.Verb == "watch"); !ok {
		return request.PassThrough(request.Definition)
	}
	r.selector, ok = upstream.FieldSelector(r.info, r.Fields)
	if !ok || r.info.Definition != nil && !c.crds.Selects(r.selector) ||
		!c.encodings.Selects(ctx, r.info, r.form, r.selector) {
		return request.PassThrough(request.Selector)
	}
	return o
}
