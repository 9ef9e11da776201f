package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// cachedReads answers gets, lists and watches from the lanes' caches.
type cachedReads struct {
	opts        *Options
	discovery   *discovery
	offers      *offers
	definitions *definitions
	auth        *authorizer
	pass        func(*fasthttp.RequestCtx, identity) // to kube-apiserver
	lanes       *lanes
	compressed  compressedLists
	flusher     *fanout.Flusher
	conns       *connections
	log         *slog.Logger
	ctx         context.Context // ends when no more is to be served

	mu       sync.Mutex
	resident map[string]*lane // by the name in --resident-resources
}

func newCachedReads(s *Server) *cachedReads {
	flusher := fanout.NewFlusher(runtime.GOMAXPROCS(0))
	c := &cachedReads{
		opts:      &s.opts,
		discovery: s.discovery,
		offers:    &offers{upstream: s.upstream},
		auth:      s.authorizer,
		pass:      s.passthrough.serve,
		flusher:   flusher,
		conns:     s.conns,
		log:       s.log,
		ctx:       s.ctx,
		lanes: &lanes{
			upstream:  s.upstream,
			discovery: s.discovery,
			flusher:   flusher,
			limits: fanout.Limits{
				HistoryEvents: s.opts.HistoryFrames,
				HistoryBytes:  s.opts.HistoryBytes,
				ClientFrames:  s.opts.ClientBufferFrames,
				ClientBytes:   s.opts.ClientBufferBytes,
			},
			idle:       s.opts.IdleTimeout,
			log:        s.log,
			ctx:        s.ctx,
			spareLists: s.opts.spareLists,
			byKey:      make(map[laneKey]*lane),
			defined:    make(map[schema.GroupResource]*definition),
		},
	}
	c.definitions = &definitions{lanes: c.lanes, discovery: s.discovery, log: s.log}
	return c
}

// run serves until the server's context ends and leaves no goroutine behind.
func (c *cachedReads) run() {
	var wg sync.WaitGroup
	wg.Go(func() { c.flusher.Run(c.ctx) })
	wg.Go(func() { c.auth.Run(c.ctx) })
	wg.Go(func() { c.lanes.run(c.ctx) })
	for _, name := range c.opts.Resident {
		wg.Go(func() { c.keep(name) })
	}
	wg.Wait()
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
		info, _ := c.discovery.lookup(c.ctx, gvr)
		info.definition, _ = c.definitions.of(c.ctx, gvr, true)
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

// residentSynced returns an error that names a resident resource which is not ready to be served.
func (c *cachedReads) residentSynced() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range c.opts.Resident {
		if l := c.resident[name]; l == nil || !l.synced() || !c.lanes.has(l) {
			return fmt.Errorf("%s is not synced", name)
		}
	}
	return nil
}

// end ends all watches that are served from a cache, and lets no other begin.
func (c *cachedReads) end() { c.lanes.endWatches(fanout.Ending{Reason: fanout.ShutDown}) }

// laneWait is how long a request waits for a lane that is being filled, before it is passed through.
const laneWait = 10 * time.Second

// serve answers the request, from a cache if it can be.
func (c *cachedReads) serve(ctx *fasthttp.RequestCtx, id identity, req *request) (passed bool) {
	arrived := time.Now()
	if !req.served() {
		c.pass(ctx, id)
		return true
	}
	wait, cancel := context.WithTimeout(c.ctx, laneWait)
	defer cancel()
	r, ok := c.resolve(wait, id, req)
	if !ok {
		c.pass(ctx, id)
		return true
	}
	defer r.release()
	r.arrived = arrived
	if !r.lane.ready(wait) {
		c.pass(ctx, id)
		return true
	}
	if done, ok := r.passAlone(c.opts.mostAlone); ok {
		defer done()
		c.pass(ctx, id)
		return true
	}
	served := false
	switch req.verb {
	case "watch":
		served = c.serveWatch(ctx, r)
	case "list":
		served = c.serveList(ctx, r)
	default:
		served = c.serveGet(ctx, r)
	}
	if !served {
		c.pass(ctx, id)
		return true
	}
	r.lane.metrics.served(req.verb)
	return false
}

// cachedRead is a request that a lane may answer.
type cachedRead struct {
	*request
	id        identity
	lane      *lane
	namespace string // "" for all and in cluster scope
	filter    *fanout.Filter
	arrived   time.Time
	lanes     *lanes
	kept      bool // by a watch, which releases the lane when it ends
}

// keep makes release leave the lane to whoever calls keep.
func (r *cachedRead) keep() { r.kept = true }

func (r *cachedRead) release() {
	if !r.kept {
		r.lanes.release(r.lane)
	}
}

// resolve finds the lane that answers req, and makes sure that id may read what is asked for.
func (c *cachedReads) resolve(ctx context.Context, id identity, req *request) (*cachedRead, bool) {
	info, ok := c.discovery.lookup(ctx, req.gvr)
	if !ok || !info.watchable {
		return nil, false
	}
	namespace, ok := req.scope(info)
	if !ok {
		return nil, false
	}
	form, ok := c.offers.choose(ctx, req.gvr, req.accepts)
	if !ok || req.verb != "watch" && form.encoding == framing.JSON && (req.pretty || form.pretty) {
		return nil, false
	}
	startsLane := req.verb != "get" || req.resourceVersion != ""
	if !startsLane && !c.lanes.started(laneKey{req.gvr, form.representation}) {
		return nil, false
	}
	if info.definition, ok = c.definitions.of(ctx, req.gvr, req.verb == "watch"); !ok {
		return nil, false
	}
	selector, ok := fieldSelector(info, req.fields)
	if !ok || info.definition != nil && !c.definitions.selects(selector) {
		return nil, false
	}
	if !c.auth.allowed(ctx, id, req) {
		return nil, false // upstream says no in its own words
	}
	l, ok := c.lanes.acquire(info, form.representation, startsLane)
	if !ok {
		return nil, false
	}
	filter, ok := fanout.NewFilter(namespace, req.labels, selector, l.fieldLabels)
	if !ok {
		c.lanes.release(l)
		return nil, false
	}
	return &cachedRead{request: req, id: id, lane: l, namespace: namespace, filter: filter, lanes: c.lanes}, true
}

// serves reports whether the request is of a kind that may be answered from a cache; this is decided before a lane is
// started for it.
func (req *request) served() bool {
	switch {
	case req.verb == "watch":
		return req.timeoutSeconds == nil || *req.timeoutSeconds >= 0 // a negative one ends the watch before it begins
	case req.continueToken != "" && req.selectorName != "":
		return false // a page of what may be one object
	}
	return true
}
