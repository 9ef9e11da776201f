package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
)

// cachedReads answers gets, lists and watches from the lanes' caches.
type cachedReads struct {
	opts        *Options
	discovery   *discovery
	encodings   *supportedEncodings
	crds        *crdWatcher
	aggregation *aggregation
	auth        *authorizer
	audit       *auditLog
	pass        func(*fasthttp.RequestCtx, identity)   // to kube-apiserver
	refuse      func(rejection, string) *metav1.Status // admission.refuse; set before the first request
	lanes       *lanes
	alone       *aloneReads
	little      answers[struct{}] // lists that were small; see passesUnasked
	compressed  compressedLists
	flusher     *fanout.Flusher
	conns       *connections
	poller      *poller
	watchers    watchers
	fairness    *fairness
	log         *slog.Logger
	ctx         context.Context // ends when no more is to be served

	mu       sync.Mutex
	resident map[string]*lane  // by the name in --resident-resources
	passed   map[string]server // of those that are passed through for it; likewise
}

func newCachedReads(s *Server, p *poller) *cachedReads {
	flusher := fanout.NewFlusher(runtime.GOMAXPROCS(0), s.opts.Lane.FlushInterval)
	c := &cachedReads{
		opts:      &s.opts,
		discovery: s.discovery,
		encodings: newSupportedEncodings(s.upstream),
		auth:      s.authorizer,
		audit:     s.audit,
		pass:      s.passthrough.serve,
		flusher:   flusher,
		conns:     s.conns,
		alone:     newAloneReads(s.opts.mostAlone),
		poller:    p,
		log:       s.log,
		ctx:       s.ctx,
		lanes:     newLanes(s.ctx, s.upstream, s.discovery, flusher, &s.opts.Lane, s.log),
	}
	c.fairness = newFairness(s.ctx, runtime.GOMAXPROCS(0), seatPurpose{
		message: "this client's reads take more time than its share",
		refused: readsRefused,
		waited:  countSeatWait,
	})
	c.crds = newCRDWatcher(c.lanes, s.discovery, s.log)
	c.aggregation = newAggregation(c.lanes, s.discovery, s.opts.Lane.CacheAggregatedGroups, s.log)
	return c
}

// run serves until the server's context ends and leaves no goroutine behind.
func (c *cachedReads) run() {
	var wg sync.WaitGroup
	wg.Go(func() { c.flusher.Run(c.ctx) })
	wg.Go(func() { c.poller.run(c.ctx) })
	wg.Go(func() { c.auth.Run(c.ctx) })
	wg.Go(func() { c.lanes.run(c.ctx) })
	for _, name := range c.opts.ResidentResources {
		wg.Go(func() { c.keep(name) })
	}
	wg.Wait()
}

// shed gives up what is only there to be asked for again, and returns how many lanes that were.
func (c *cachedReads) shed() int {
	c.compressed.forget()
	return c.lanes.shed()
}

// keep starts the lane of a resident resource, as soon as upstream has the resource, and again whenever it has ended.
func (c *cachedReads) keep(name string) {
	var kept *lane
	for wait := time.Duration(0); ; wait = 2 * time.Second {
		select {
		case <-time.After(wait):
		case <-c.ctx.Done():
			return
		}
		if kept != nil && c.lanes.has(kept) {
			continue
		}
		gvr, err := c.discovery.resolve(c.ctx, name)
		if err != nil {
			c.log.Warn("Waited for resident resource", "resource", name, "err", err)
			continue
		}
		if c.opts.excluded(gvr) { // which its name alone did not tell
			c.log.Error("Excluded resource is resident too, and will never be ready", "resource", name)
			return
		}
		if c.passesResident(name, gvr) {
			continue
		}
		info, _ := c.discovery.lookup(c.ctx, gvr)
		info.definition, _ = c.crds.of(c.ctx, gvr, true)
		if l, ok := c.lanes.acquire(info, representation{}, true); ok {
			kept = l
			c.setResident(name, l)
		}
	}
}

// setResident notes the lane of a resident resource.
func (c *cachedReads) setResident(name string, l *lane) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.resident == nil {
		c.resident = make(map[string]*lane)
	}
	c.resident[name] = l
}

// passesResident reports whether a resident resource is passed through, because another server answers for it or may do so, and says
// why when that is new.
func (c *cachedReads) passesResident(name string, gvr schema.GroupVersionResource) bool {
	by := c.aggregation.served(c.ctx, gvr.GroupVersion(), true)
	c.mu.Lock()
	defer c.mu.Unlock()
	was, known := c.passed[name]
	if c.passed == nil {
		c.passed = make(map[string]server)
	}
	c.passed[name] = by
	switch {
	case by == byItself || known && was == by:
	case by == byOthers:
		c.log.Error("Passed resident resource through, an aggregated API server answers for it: see --cache-aggregated-groups", "resource", name)
	default:
		c.log.Warn("Waited for resident resource, because it is not known whether an aggregated API server answers for it", "resource", name)
	}
	return by != byItself
}

// residentSynced returns an error that names a resident resource which is not ready to be served. One that can't be cached is passed through,
// and does not keep the others from being served: else whoever may write one object too large for it could end the service, on all replicas.
func (c *cachedReads) residentSynced() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range c.opts.ResidentResources {
		if l := c.resident[name]; c.passed[name] == byOthers {
			continue
		} else if l == nil || (!l.synced() || !c.lanes.has(l)) && !c.lanes.quarantined(l.laneKey) {
			return fmt.Errorf("%s is not synced", name)
		}
	}
	return nil
}

// end ends all watches that are served from a cache, and lets no other begin.
func (c *cachedReads) end() { c.lanes.endWatches(fanout.Ending{Reason: fanout.ShutDown}) }

// serve answers the request, from a cache if it can be.
func (c *cachedReads) serve(ctx *fasthttp.RequestCtx, id identity, req *request) (passed bool) {
	r := &cachedRead{request: req, id: id, arrived: time.Now(), lanes: c.lanes, counts: c.alone, arrival: arrivalOf(accepted(ctx.Conn()))}
	defer r.release()
	served, refused := c.serveCached(ctx, r)
	if refused != nil {
		writeStatus(ctx, refused)
		c.audit.refused(ctx, id, refused)
		return false
	}
	if !served {
		c.pass(ctx, id)
		return true
	}
	r.lane.metrics.served(req.verb)
	if req.verb != "watch" {
		c.audit.served(ctx, r.audited())
	}
	return false
}

// serveCached answers the request from a cache. It reports false, having done nothing, if the request is to be passed through, or with
// refused if it is to be refused.
//
// Whether the client may read comes first. Before kube-apiserver has said yes to this request no lane is looked at or started, nothing that
// is cached is read, and nothing is asked in the proxy's own name, but for the review itself where only the proxy can ask it: what a request
// costs, and how long it takes, must not depend on what its client may not see.
func (c *cachedReads) serveCached(ctx *fasthttp.RequestCtx, r *cachedRead) (served bool, refused *metav1.Status) {
	wait, cancel := context.WithTimeout(withArrival(c.ctx, r.arrival), laneWait)
	defer cancel()
	if !c.mayBeCached(r) || c.passesUnasked(r) {
		return false, nil
	}
	r.decision = c.auth.authorize(wait, r.id, r.request)
	switch r.decision.verdict {
	case verdictYes:
	case verdictBusy:
		return false, tooManyReviews()
	default:
		return false, nil // upstream says no in its own words
	}
	if !c.resolve(wait, r) || !r.acquire(r.startsLane()) || c.passesAlone(wait, r) {
		return false, nil
	}
	decided := time.Now()
	ready, refused := c.awaitLane(ctx, r)
	if !ready || !c.stillAllowed(r, decided) {
		return false, refused
	}
	return c.serveFrom(ctx, r)
}

// stillAllowed reports whether the client may still read, for which it is asked again if the answer is older than answers are believed.
func (c *cachedReads) stillAllowed(r *cachedRead, decided time.Time) bool {
	if time.Since(decided) <= max(c.auth.yesTTL, time.Second) {
		return true
	}
	wait, cancel := context.WithTimeout(c.ctx, reviewTimeout)
	defer cancel()
	r.decision = c.auth.authorize(wait, r.id, r.request)
	return r.decision.verdict == verdictYes
}

// serveFrom answers the request from its lane. It reports false, having done nothing, if it can't, and with refused if it is to be refused.
func (c *cachedReads) serveFrom(ctx *fasthttp.RequestCtx, r *cachedRead) (served bool, refused *metav1.Status) {
	if r.verb == "watch" {
		return c.serveWatch(ctx, r), nil
	}
	r.seat = c.seat(ctx, r)
	defer r.seat.Give()
	if r.verb == "list" {
		served = c.serveList(ctx, r)
	} else {
		served = c.serveGet(ctx, r)
	}
	return served, r.seat.refused
}

// seat returns the seat in which r is answered, not yet taken.
func (c *cachedReads) seat(ctx *fasthttp.RequestCtx, r *cachedRead) *seat {
	conn := accepted(ctx.Conn())
	limit := maxSeatWait
	if r.timeout > 0 {
		limit = max(1, r.timeout-time.Since(r.arrived))
	}
	return c.fairness.seat(flowOf(r.id, conn.RemoteAddr()), limit, func() bool { return hasLeft(tcpConn(conn)) }, r.arrival.end)
}

// cachedRead is a request that a lane may answer.
type cachedRead struct {
	*request
	id      identity
	arrived time.Time
	arrival *arrival // nil is none
	lanes   *lanes
	counts  *aloneReads

	// Set by resolve.
	info      resourceInfo
	form      representation
	namespace string // "" for all and in cluster scope
	selector  fields.Selector

	// Set by serveCached.
	alone    bool // it is counted in counts
	decision decision

	// Set by acquire.
	lane   *lane
	filter *fanout.Filter
	kept   bool // by a watch, which releases the lane when it ends

	// Set by serveFrom, for gets and lists.
	seat *seat
}

// audited returns what the audit log says of the read.
func (r *cachedRead) audited() auditedRead {
	return auditedRead{request: r.request, id: r.id, decision: r.decision, arrived: r.arrived}
}

// startsLane reports whether the request is reason enough to follow the resource upstream: one object's current state is not.
func (r *cachedRead) startsLane() bool { return r.verb != "get" || r.resourceVersion != "" }

// acquire sets the lane, starting it if need be and start is true, and reports whether there is one.
func (r *cachedRead) acquire(start bool) bool {
	if r.lane != nil {
		return true
	}
	l, ok := r.lanes.acquire(r.info, r.form, start)
	if !ok {
		return false
	}
	if start {
		r.counts.noteFollowed(r.gvr)
	}
	if r.filter, ok = fanout.NewFilter(r.namespace, r.labels, r.selector, l.fieldLabels); !ok {
		r.lanes.release(l)
		return false
	}
	r.lane = l
	return true
}

// keep makes release leave the lane to whoever calls keep.
func (r *cachedRead) keep() { r.kept = true }

func (r *cachedRead) release() {
	if r.alone {
		r.counts.give(r.gvr)
	}
	if r.lane != nil && !r.kept {
		r.lanes.release(r.lane)
	}
}

// resolve finds out what r asks for, and reports whether that is something lanes have. Only for a client that may read: it may ask kube-apiserver
// in the proxy's own name.
func (c *cachedReads) resolve(ctx context.Context, r *cachedRead) (ok bool) {
	if c.aggregation.served(ctx, r.gvr.GroupVersion(), r.verb == "watch") != byItself {
		return false
	}
	if r.info, ok = c.discovery.lookup(ctx, r.gvr); !ok || !r.info.watchable {
		return false
	}
	if r.namespace, ok = r.scope(r.info.namespaced); !ok {
		return false
	}
	chosen, ok := c.encodings.choose(ctx, r.gvr, r.accepts)
	if !ok || r.indented(chosen) {
		return false
	}
	r.form = chosen.representation
	if !r.startsLane() && !c.lanes.started(laneKey{r.gvr, r.form}) {
		c.alone.noteUnfollowed(r.gvr)
		return false
	}
	if r.info.definition, ok = c.crds.of(ctx, r.gvr, r.verb == "watch"); !ok {
		return false
	}
	r.selector, ok = fieldSelector(r.info, r.fields)
	return ok && (r.info.definition == nil || c.crds.selects(r.selector))
}
