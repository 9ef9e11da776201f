package proxy

import (
	"maps"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// settleTime is how long after a change of a definition all kube-apiservers serve the new one. They wait as long
	// for each other (customresource_handler.go, serveResource).
	settleTime = 2 * time.Second
	// doubtTime and doubtfulFor bound when a watch can have begun on the old storage after all, and how long it can last there:
	// kube-apiserver waits for requests under way for at most twice its --request-timeout, 2 minutes.
	doubtTime   = 10 * time.Second
	doubtfulFor = 3 * time.Minute
)

// outsource makes remote the versions that another server answers for. Lanes of those that are new stop at once, with their clients'
// watches; those that are back may have lanes after settleTime.
func (ls *lanes) outsource(remote map[schema.GroupVersion]bool) (taken, back []schema.GroupVersion) {
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
			ls.aggregated[gv] = time.Now().Add(settleTime)
		}
	}
	for key, l := range ls.byKey {
		if remote[key.gvr.GroupVersion()] {
			l.log.Info("Stopped lane, an aggregated API server answers for the resource")
			l.outdated.Store(true)
			ls.stopLocked(l)
			l.cache.Close(fanout.Ending{Reason: fanout.Redefined})
		}
	}
	return taken, back
}

// outsourcedLocked reports whether another server answers for the version, or did until just now.
func (ls *lanes) outsourcedLocked(gv schema.GroupVersion) bool {
	until, known := ls.aggregated[gv]
	if known && !until.IsZero() && !time.Now().Before(until) {
		delete(ls.aggregated, gv)
		known = false
	}
	return known
}

// outsourced is outsourcedLocked.
func (ls *lanes) outsourced(gv schema.GroupVersion) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.outsourcedLocked(gv)
}

// inUse reports whether there are lanes other than those that say how others are to be served.
func (ls *lanes) inUse() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for key := range ls.byKey {
		if key.gvr != apiServicesResource && key.gvr != crdResource {
			return true
		}
	}
	return false
}

// startedVersion reports whether there are lanes of a version.
func (ls *lanes) startedVersion(gv schema.GroupVersion) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for key := range ls.byKey {
		if key.gvr.GroupVersion() == gv {
			return true
		}
	}
	return false
}

// definition returns the definition that a resource has. kept is false if it is not kept up to date.
func (ls *lanes) definition(gr schema.GroupResource) (def *definition, kept bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	def, kept = ls.defined[gr]
	return def, kept
}

// definitions returns all that are kept; nil are those that do not exist.
func (ls *lanes) definitions() map[schema.GroupResource]*definition {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return maps.Clone(ls.defined)
}

// redefine makes def the definition of a resource. Lanes of another are left to their clients until upstream ends their watches, or
// settleTime has passed, and to nobody else.
func (ls *lanes) redefine(gr schema.GroupResource, def *definition) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.defined[gr] = def
	for _, l := range ls.byKey {
		if l.gvr.GroupResource() == gr && l.info.definition != def {
			l.outdated.Store(true)
			time.AfterFunc(settleTime, l.stop)
		}
	}
}

// sweepDefinitions forgets the definitions that are gone for good, and reports whether there are lanes of others.
func (ls *lanes) sweepDefinitions() (needed bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.byKey {
		needed = needed || mayBeCustom(l.gvr.Group)
	}
	for gr, def := range ls.defined {
		if def != nil && def.gone && time.Since(def.settled) > settleTime {
			delete(ls.defined, gr)
		}
	}
	return needed
}

// undefine forgets all definitions, unless there are lanes of custom resources; it reports whether it did.
func (ls *lanes) undefine() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.byKey {
		if mayBeCustom(l.gvr.Group) {
			return false
		}
	}
	clear(ls.defined)
	return true
}

// doubtful reports whether a watch that upstream has ended properly may have been one of an earlier definition.
func (l *lane) doubtful(began time.Time) bool {
	def := l.info.definition
	return def != nil && began.Before(def.seen.Add(doubtTime)) && time.Since(began) < doubtfulFor
}
