package lane

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
)

const (
	// SettleTime is how long after a change of a definition all kube-apiservers serve the new one.
	// They wait as long for each other (customresource_handler.go, serveResource).
	SettleTime = 2 * time.Second
	// doubtTime and doubtfulFor say which watches may be of the old storage all the same: those
	// that began within doubtTime of the new definition, and that lasted less than doubtfulFor.
	// kube-apiserver waits for requests under way for at most twice its --request-timeout, 2
	// minutes.
	doubtTime   = 10 * time.Second
	doubtfulFor = 3 * time.Minute
)

// Outsource makes remote the versions that another server answers for. It returns those that are
// new, whose lanes stop at once with their clients' watches, and those that kube-apiserver answers
// for again, which may have lanes after SettleTime.
func (ls *Lanes) Outsource(remote map[schema.GroupVersion]bool) (taken, back []schema.GroupVersion) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for gv := range remote {
		if until, known := ls.aggregated[gv]; !known || !until.IsZero() {
			taken = append(taken, gv)
			ls.aggregated[gv] = time.Time{}
		}
	}
	for gv, until := range ls.aggregated {
		if until.IsZero() && !remote[gv] {
			back = append(back, gv)
			ls.aggregated[gv] = time.Now().Add(SettleTime)
		}
	}
	for key, l := range ls.byKey {
		if remote[key.GVR.GroupVersion()] {
			l.Log.Info("Stopped lane, an aggregated API server answers for the resource")
			l.outdated.Store(true)
			ls.stopLocked(l)
			l.Cache.Close(fanout.Ending{Reason: fanout.Redefined})
		}
	}
	return taken, back
}

// outsourcedLocked reports whether another server answers for a version, or did until just now.
func (ls *Lanes) outsourcedLocked(gv schema.GroupVersion) bool {
	until, known := ls.aggregated[gv]
	if known && !until.IsZero() && !time.Now().Before(until) {
		delete(ls.aggregated, gv)
		known = false
	}
	return known
}

// Outsourced reports whether another server answers for a version, or did until just now.
func (ls *Lanes) Outsourced(gv schema.GroupVersion) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.outsourcedLocked(gv)
}

// InUse reports whether there are lanes of other resources than APIServices and
// CustomResourceDefinitions.
func (ls *Lanes) InUse() bool {
	return ls.hasLane(func(gvr schema.GroupVersionResource) bool {
		return gvr != upstream.APIServicesResource && gvr != upstream.CRDResource
	})
}

// StartedVersion reports whether there are lanes of a version.
func (ls *Lanes) StartedVersion(gv schema.GroupVersion) bool {
	return ls.hasLane(func(gvr schema.GroupVersionResource) bool { return gvr.GroupVersion() == gv })
}

// hasLane reports whether there is a lane of such a resource.
func (ls *Lanes) hasLane(of func(schema.GroupVersionResource) bool) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for key := range ls.byKey {
		if of(key.GVR) {
			return true
		}
	}
	return false
}

// Definition returns the definition of a resource, nil for none. kept reports whether the
// definition is kept up to date.
func (ls *Lanes) Definition(gr schema.GroupResource) (def *upstream.Definition, kept bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	def, kept = ls.defined[gr]
	return def, kept
}

// Definitions returns all definitions that are kept up to date. nil stands for a resource that has
// none.
func (ls *Lanes) Definitions() map[schema.GroupResource]*upstream.Definition {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return maps.Clone(ls.defined)
}

// Redefine makes def the definition of a resource. Lanes of another definition take no more
// clients. They end when upstream ends their watches, and at the latest after SettleTime.
func (ls *Lanes) Redefine(gr schema.GroupResource, def *upstream.Definition) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.defined[gr] = def
	for _, l := range ls.byKey {
		if l.GVR.GroupResource() == gr && l.info.Definition != def {
			l.outdated.Store(true)
			time.AfterFunc(SettleTime, l.stop)
		}
	}
}

// SweepDefinitions forgets the definitions that are gone for good, and reports whether there are
// lanes of custom resources.
func (ls *Lanes) SweepDefinitions() (needed bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.byKey {
		needed = needed || upstream.MayBeCustom(l.GVR.Group)
	}
	for gr, def := range ls.defined {
		if def != nil && def.Gone && time.Since(def.Settled) > SettleTime {
			delete(ls.defined, gr)
		}
	}
	return needed
}

// Undefine forgets all definitions and reports true, unless there are lanes of custom resources.
func (ls *Lanes) Undefine() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.byKey {
		if upstream.MayBeCustom(l.GVR.Group) {
			return false
		}
	}
	clear(ls.defined)
	return true
}

// redefined reports whether the resource has another definition than the lane, now that an attempt
// to follow it has ended. A watch that upstream has ended properly may have been one of an earlier
// definition.
func (l *Lane) redefined(began time.Time, ended bool) bool {
	def := l.info.Definition
	if ended && def != nil && began.Before(def.Seen.Add(doubtTime)) && time.Since(began) < doubtfulFor {
		l.outdated.Store(true)
	}
	return l.outdated.Load()
}
