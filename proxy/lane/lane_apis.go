package lane

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/upstream"
)

const (
	// SettleTime is how long after a change of a definition all kube-apiservers serve the new one.
	// They wait as long for each other (customresource_handler.go, serveResource).
	SettleTime = 2 * time.Second
	// doubtTime and doubtfulFor bound when a watch can have begun on the old storage after all, and
	// how long it can last there: kube-apiserver waits for requests under way for at most twice its
	// --request-timeout, 2 minutes.
	doubtTime   = 10 * time.Second
	doubtfulFor = 3 * time.Minute
)

// Outsource makes remote the versions that another server answers for. Lanes of those that are new
// stop at once, with their clients' watches; those that are back may have lanes after settleTime.
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

// outsourcedLocked reports whether another server answers for the version, or did until just now.
func (ls *Lanes) outsourcedLocked(gv schema.GroupVersion) bool {
	until, known := ls.aggregated[gv]
	if known && !until.IsZero() && !time.Now().Before(until) {
		delete(ls.aggregated, gv)
		known = false
	}
	return known
}

// Outsourced is outsourcedLocked.
func (ls *Lanes) Outsourced(gv schema.GroupVersion) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.outsourcedLocked(gv)
}

// InUse reports whether there are lanes other than those that say how others are to be served.
func (ls *Lanes) InUse() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for key := range ls.byKey {
		if key.GVR != upstream.APIServicesResource && key.GVR != upstream.CRDResource {
			return true
		}
	}
	return false
}

// StartedVersion reports whether there are lanes of a version.
func (ls *Lanes) StartedVersion(gv schema.GroupVersion) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for key := range ls.byKey {
		if key.GVR.GroupVersion() == gv {
			return true
		}
	}
	return false
}

// Definition returns the definition that a resource has. kept is false if it is not kept up to
// date.
func (ls *Lanes) Definition(gr schema.GroupResource) (def *upstream.Definition, kept bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	def, kept = ls.defined[gr]
	return def, kept
}

// Definitions returns all that are kept; nil are those that do not exist.
func (ls *Lanes) Definitions() map[schema.GroupResource]*upstream.Definition {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return maps.Clone(ls.defined)
}

// Redefine makes def the definition of a resource. Lanes of another are left to their clients until
// upstream ends their watches, or settleTime has passed, and to nobody else.
func (ls *Lanes) Redefine(gr schema.GroupResource, def *upstream.Definition) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.defined[gr] = def
	for _, l := range ls.byKey {
		if l.GVR.GroupResource() == gr && l.Info.Definition != def {
			l.outdated.Store(true)
			time.AfterFunc(SettleTime, l.stop)
		}
	}
}

// SweepDefinitions forgets the definitions that are gone for good, and reports whether there are
// lanes of others.
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

// Undefine forgets all definitions, unless there are lanes of custom resources; it reports whether
// it did.
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

// doubtful reports whether a watch that upstream has ended properly may have been one of an earlier
// definition.
func (l *Lane) doubtful(began time.Time) bool {
	def := l.Info.Definition
	return def != nil && began.Before(def.Seen.Add(doubtTime)) && time.Since(began) < doubtfulFor
}
