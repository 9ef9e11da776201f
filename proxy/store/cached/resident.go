package cached

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/store/registry"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// resident is a resource of --resident-resources, which has a lane from the start and always.
type resident struct {
	name  string // as in the flag
	reads *Reads

	lane atomic.Pointer[lane.Lane] // the newest; nil before the first

	mu         sync.Mutex
	unresolved error           // why the resource is not known to exist; nil if it is
	server     registry.Server // the API server that answers for it
	asked      bool            // server is known
}

// keep starts the lane as soon as upstream has the resource. It starts the lane again when it has
// ended. It returns when serving ends.
func (r *resident) keep() {
	c := r.reads
	for wait := time.Duration(0); ; wait = 2 * time.Second {
		if !exchange.Sleep(c.ctx, wait) {
			return
		}
		if l := r.lane.Load(); l != nil && c.Lanes.Has(l) {
			continue
		}
		gvr, err := c.Discovery.Resolve(c.ctx, r.name)
		if r.setUnresolved(err); err != nil {
			continue
		}
		if c.Options.excluded(gvr) { // Options.Check knows only the name
			c.log.Error("Excluded resource is resident too, and will never be ready", "resource", r.name)
			return
		}
		if r.passesThrough(gvr) {
			continue
		}
		info, _ := c.Discovery.Lookup(c.ctx, gvr)
		info.Definition, _ = c.crds.Of(c.ctx, gvr, true)
		if l, _ := c.Lanes.Acquire(info, request.Representation{}, true, nil); l != nil {
			r.lane.Store(l)
		}
	}
}

// setUnresolved notes why the resource is not known to exist, or that it is. It logs the reason when
// the reason changes.
func (r *resident) setUnresolved(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.unresolved
	r.unresolved = err
	if err != nil && (was == nil || was.Error() != err.Error()) && r.reads.ctx.Err() == nil {
		r.reads.log.Warn("Waited for resident resource", "resource", r.name, "err", err)
	}
}

// passesThrough reports whether the resource is passed through because an aggregated API server
// answers for it, or may do so. It logs the reason when the reason changes.
func (r *resident) passesThrough(gvr schema.GroupVersionResource) bool {
	by := r.reads.aggregation.Served(r.reads.ctx, gvr.GroupVersion(), true)
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := !r.asked || r.server != by
	r.server, r.asked = by, true
	switch {
	case by == registry.ByItself || !changed:
	case by == registry.ByOthers:
		r.reads.log.Error("Passed resident resource through, an aggregated API server answers for it: see --cache-aggregated-groups", "resource", r.name)
	default:
		r.reads.log.Warn("Waited for resident resource, because it is not known whether an aggregated API server answers for it", "resource", r.name)
	}
	return by != registry.ByItself
}

// synced returns an error if the resource is not ready to be served.
func (r *resident) synced() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	lanes := r.reads.Lanes
	switch l := r.lane.Load(); {
	case r.asked && r.server == registry.ByOthers:
		return nil
	case l == nil && errors.Is(r.unresolved, upstream.ErrNotFound):
		return fmt.Errorf("%s is not synced: kube-apiserver has no such resource; see --resident-resources", r.name)
	case l == nil, (!l.Synced() || !lanes.Has(l)) && !lanes.Quarantined(l.Key):
		return fmt.Errorf("%s is not synced", r.name)
	}
	return nil
}

// ResidentSynced returns an error if a resident resource is not ready to be served. A resource that
// can't be cached is passed through, and is no error. Otherwise a client could end the service on
// all replicas with one object that is too large to cache.
func (c *Reads) ResidentSynced() error {
	for _, r := range c.residents {
		if err := r.synced(); err != nil {
			return err
		}
	}
	return nil
}
