package registry

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/base/exposition"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// CRDWatcher watches CustomResourceDefinitions. It knows by which fields custom resources can be
// selected (KEP-4358), and notices when a definition changes. It uses a lane like any other, with
// the proxy's own identity, for as long as custom resources have lanes. The lane's cache holds all
// definitions, whole. If the definitions cannot be read, custom resources are served without them:
// requests that select by custom fields are passed through, and a change of a definition looks like
// a broken watch.
//
// # What happens when a definition changes
//
// kube-apiserver serves each definition from a storage of its own (k8s.io/apiextensions-apiserver
// pkg/apiserver/customresource_handler.go). When its informer sees another spec, other accepted
// names or another UID, requests go to a new storage at once. The old storage serves its watches
// for another second, or longer while other requests read from it, and then ends them properly.
// History begins again in the new storage, so it answers 410 to older resourceVersions.
//
// A lane holds the bytes of the storage that filled it, and must never hold the bytes of two. As
// soon as our own watch of the definitions brings the change:
//
//  1. No request gets a lane of the old definition any more. This and 2 hold because
//     lane.Lanes.Acquire compares, under a lock, the definition that the request was checked
//     against with the current one.
//  2. For SettleTime no lane of the new definition starts. The informer of this kube-apiserver, or
//     of another one, may be behind ours, and the old storage would fill the lane. New watches
//     wait; all other requests are passed through.
//  3. The old lane's clients get what its upstream watch still brings, such as the deletions when a
//     definition is deleted. They end properly when upstream ends that watch, or after SettleTime.
//  4. A watch that began within doubtTime of when we first saw the definition, and that upstream
//     ends early, may have been a watch of the old storage all the same. Its lane is stopped too.
//
// Our watch sees a change one event later than kube-apiserver, and later still if it hangs (see
// package registry). In between, clients can get lists, gets and new watches in the old form from us
// after they have got the new form from kube-apiserver itself. Two kube-apiservers behind one address
// differ in the same way. A watch that begins in that time ends within SettleTime. While our watch is
// known to be broken, no request is served by a custom field.
type CRDWatcher struct {
	follower
	changes *metrics.Counter
	log     *slog.Logger
}

var definitionChanges = exposition.Describe("counter", "watchfan_definition_changes_total",
	"Changes of the definitions of custom resources. Each change ends the watches of its resource.")

// NewCRDWatcher returns a CRDWatcher that follows nothing before the first question. set gets its metric.
func NewCRDWatcher(ls *lane.Lanes, discovery *upstream.Discovery, set *metrics.Set, log *slog.Logger) *CRDWatcher {
	w := &CRDWatcher{changes: set.NewCounter(definitionChanges), log: log}
	w.follower = follower{lanes: ls, discovery: discovery, resource: upstream.CRDResource, scan: w.scanLocked,
		failed: w.unknown, needed: ls.SweepDefinitions, forget: ls.Undefine}
	return w
}

// Of returns the definition of a resource that exists, nil if it has none or definitions cannot be
// read. ok is false if the request must be passed through, because upstream does not serve the
// version yet, or at all, or because discovery has described another scope. If wait is true, Of waits
// until upstream serves it, for as long as ctx lasts.
func (w *CRDWatcher) Of(
	ctx context.Context, info upstream.ResourceInfo, wait bool,
) (def *upstream.Definition, ok bool) {
	gvr := info.GVR
	if !upstream.MayBeCustom(gvr.Group) {
		return nil, true
	}
	w.await(ctx)
	for {
		def := w.current(gvr.GroupResource())
		if def == nil {
			return nil, true
		}
		if def.Gone || !def.Versions[gvr.Version].Served {
			return nil, false
		}
		if !def.Fits(info) {
			w.discovery.Forget(gvr.GroupVersion())
			return nil, false
		}
		left := time.Until(def.Settled)
		if left <= 0 {
			return def, true
		}
		if !wait || !exchange.Sleep(ctx, left) {
			return nil, false
		}
	}
}

// current returns the resource's definition as far as it is known. From then on the definition is
// kept up to date.
func (w *CRDWatcher) current(gr schema.GroupResource) *upstream.Definition {
	w.mu.Lock()
	defer w.mu.Unlock()
	def, kept := w.lanes.Definition(gr)
	if kept || w.lane == nil {
		return def
	}
	if o, ok := w.lane.Cache.Snapshot().Get(gr.String()); ok {
		def = w.read(o)
	}
	w.lanes.Redefine(gr, def)
	return def
}

// Selects reports whether a selector may be answered from a cache. A selector with custom fields
// may only be answered while what is known of the definitions is up to date.
func (w *CRDWatcher) Selects(sel fields.Selector) bool {
	custom := func(r fields.Requirement) bool { return !strings.HasPrefix(r.Field, "metadata.") }
	if !slices.ContainsFunc(sel.Requirements(), custom) {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.currentLocked()
}

// unknown notes that the definitions cannot be followed.
func (w *CRDWatcher) unknown(_ error, retryIn time.Duration) {
	w.log.Warn("Served custom resources without their definitions, which could not be listed and watched",
		"retryIn", retryIn)
}

// scanLocked looks for changes among the definitions that are kept up to date.
func (w *CRDWatcher) scanLocked(snapshot fanout.Snapshot) {
	for gr, def := range w.lanes.Definitions() {
		o, _ := snapshot.Get(gr.String())
		switch {
		case def == nil && o == nil, def != nil && def.Object == o:
			continue
		case def == nil:
			def = &upstream.Definition{}
		}
		next := w.read(o)
		if next.Equal(def) {
			def.Object = o
			continue
		}
		w.change(gr, def, next)
	}
}

// change has the resource served by another definition, as soon as all kube-apiservers serve it.
func (w *CRDWatcher) change(gr schema.GroupResource, from, to *upstream.Definition) {
	w.changes.Inc()
	w.log.Info("A custom resource's definition changed",
		"definition", gr.String(), "generation", to.Generation, "served", !to.Gone)
	to.Settled = to.Seen.Add(lane.SettleTime)
	w.lanes.Redefine(gr, to)
	forget := func() {
		for _, versions := range []map[string]upstream.DefinedVersion{from.Versions, to.Versions} {
			for version := range versions {
				w.discovery.Forget(schema.GroupVersion{Group: gr.Group, Version: version})
			}
		}
	}
	forget()
	time.AfterFunc(lane.SettleTime, forget) // discovery may be a little behind
}

// read reads a definition. A definition that is gone, or that cannot be read, is returned as Gone;
// o is nil for one that is gone.
func (w *CRDWatcher) read(o *framing.Object) *upstream.Definition {
	def := &upstream.Definition{Gone: true}
	if o != nil {
		var err error
		if def, err = upstream.ParseDefinition(o.Bytes()); err != nil {
			w.log.Warn("Passed custom resource through", "definition", o.Name, "err", err)
			def = &upstream.Definition{Gone: true}
		}
	}
	def.Seen, def.Object = time.Now(), o
	return def
}
