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
)

// cachedReads answers gets, lists and watches from the lanes' caches.
type cachedReads struct {
	opts      *Options
	discovery *discovery
	auth      *authorizer
	lanes     *lanes
	flusher   *fanout.Flusher
	conns     *connections
	log       *slog.Logger
	ctx       context.Context // ends when no more is to be served

	mu       sync.Mutex
	resident map[string]*lane // by the name in --resident-resources
}

func newCachedReads(s *Server) *cachedReads {
	flusher := fanout.NewFlusher(runtime.GOMAXPROCS(0))
	return &cachedReads{
		opts:      &s.opts,
		discovery: s.discovery,
		auth:      s.authorizer,
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
			idle:  s.opts.IdleTimeout,
			log:   s.log,
			ctx:   s.ctx,
			byGVR: make(map[schema.GroupVersionResource]*lane),
		},
	}
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
		if l, ok := c.lanes.acquire(info); ok {
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

// serve answers the request and reports true, or reports false and has done nothing.
func (c *cachedReads) serve(ctx *fasthttp.RequestCtx, id identity, req *request) bool {
	if !c.serves(req) {
		return false
	}
	wait, cancel := context.WithTimeout(c.ctx, laneWait)
	defer cancel()
	info, ok := c.discovery.lookup(wait, req.gvr)
	if !ok || !info.watchable {
		return false
	}
	namespace, ok := req.scope(info)
	if !ok {
		return false
	}
	selector, ok := fieldSelector(info, req.fields)
	if !ok {
		return false
	}
	if !c.auth.allowed(wait, id, req) {
		return false // upstream says no in its own words
	}
	l, ok := c.lanes.acquire(info)
	if !ok {
		return false
	}
	served := false
	if l.ready(wait) {
		filter, ok := fanout.NewFilter(namespace, req.labels, selector, l.fieldLabels)
		switch {
		case !ok:
		case req.verb == "watch":
			if c.serveWatch(ctx, id, req, l, filter) {
				return true // which releases the lane when it ends
			}
		case req.verb == "list":
			served = c.serveList(ctx, req, l, filter)
		default:
			served = c.serveGet(ctx, req, l, namespace)
		}
	}
	c.lanes.release(l)
	return served
}

// serves reports whether the request is of a kind that may be answered from a cache; this is decided before a lane is
// started for it.
func (c *cachedReads) serves(req *request) bool {
	switch {
	case req.verb == "watch":
		return req.timeoutSeconds == nil || *req.timeoutSeconds >= 0 // a negative one ends the watch before it begins
	case req.pretty, req.resourceVersion == "", req.continueToken != "":
		return false // pretty and consistent reads, and the pages behind the first
	case req.verb == "list" && req.resourceVersionMatch == "Exact":
		return false
	case req.verb == "list" && req.limit > 0 && req.resourceVersion != "0" && req.resourceVersionMatch == "":
		return false // a list of exactly this version
	}
	return true
}
