package cached

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/store/registry"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// resident is a resource of --resident-resources, which has a lane from the start and always.
type resident struct {
	name  string // as in the flag
	reads *Reads

	lane       atomic.Pointer[lane.Lane] // the newest; nil before the first
	missing    atomic.Bool               // kube-apiserver has said that there is no such resource
	outsourced atomic.Bool               // an aggregated API server answers for it
}

// keep starts the lane as soon as upstream has the resource. It starts the lane again when it has
// ended. It returns when serving ends. It logs why there is no lane when the reason changes.
func (r *resident) keep() {
	c := r.reads
	unresolved, server := "", registry.Server(-1) // not asked yet
	for wait := time.Duration(0); exchange.Sleep(c.ctx, wait); wait = 2 * time.Second {
		if l := r.lane.Load(); l != nil && c.Lanes.Has(l) {
			continue
		}
		gvr, err := c.Discovery.Resolve(c.ctx, r.name)
		r.missing.Store(errors.Is(err, upstream.ErrNotFound))
		if err != nil {
			if err.Error() != unresolved && c.ctx.Err() == nil {
				c.log.Warn("Waited for resident resource", "resource", r.name, "err", err)
			}
			unresolved = err.Error()
			continue
		}
		unresolved = ""
		if c.Options.excluded(gvr) { // Options.Check knows only the name
			c.log.Error("Excluded resource is resident too, and will never be ready", "resource", r.name)
			return
		}
		was := server
		server = c.APIs.Served(c.ctx, gvr.GroupVersion(), true)
		r.outsourced.Store(server == registry.ByOthers)
		switch server {
		case registry.ByItself:
			r.start(gvr)
		case was: // has been logged
		case registry.ByOthers:
			c.log.Error("Passed resident resource through, an aggregated API server answers for it: see --cache-aggregated-groups", "resource", r.name)
		default:
			c.log.Warn("Waited for resident resource, because it is not known whether an aggregated API server answers for it", "resource", r.name)
		}
	}
}

// start starts the lane, if it may have one.
func (r *resident) start(gvr schema.GroupVersionResource) {
	c := r.reads
	info, ok := c.Discovery.Lookup(c.ctx, gvr)
	if !ok {
		return // it has just been forgotten, and kube-apiserver does not answer
	}
	info.Definition, _ = c.crds.Of(c.ctx, info, true)
	if l, _ := c.Lanes.Acquire(info, lane.Key{GVR: gvr}, true, 0, nil); l != nil {
		r.lane.Store(l)
	}
}

// synced returns an error if the resource is not ready to be served.
func (r *resident) synced() error {
	lanes := r.reads.Lanes
	switch l := r.lane.Load(); {
	case r.outsourced.Load():
		return nil
	case l == nil && r.missing.Load():
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
