package cached

import (
	"context"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/audit"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/consumers"
	"github.com/watchfan/watchfan/proxy/gate/fairness"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/store/observe"
	"github.com/watchfan/watchfan/proxy/store/reflector"
	"github.com/watchfan/watchfan/proxy/store/registry"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// read is a request that a lane may answer.
type read struct {
	*request.Request
	reads    *Reads
	id       auth.Identity
	source   account.Source // zero until it is asked for
	arrived  time.Time
	conn     exchange.Conn
	consumer *consumers.Consumer // whom it counts for; nil is nobody
	first    bool                // it is served before others, and without limits
	judged   bool                // patient is set
	patient  bool                // too many reads of its consumer ask kube-apiserver
	client   *observe.Client     // what rules know of the client; nil until it is asked for

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
	base   *fanout.Filter // what kube-apiserver would select, of which filter selects all or, in a view or a shard, a part
	kept   bool           // release leaves the lane to the watch

	turn func() // gives the turn at the processors back; nil without one

	// Set by serveFrom, for gets and lists.
	seat *fairness.Seat
}

// audited returns the read as the audit log records it.
func (r *read) audited() audit.Read {
	return audit.Read{Request: r.Request, ID: r.id, Decision: r.decision}
}

// flow returns whose turns r takes.
func (r *read) flow() fairness.Flow { return auth.FlowOf(r.id, r.conn.RemoteAddr()) }

// startsLane reports whether the request starts a lane. A get of the current state does not, unless only
// a lane can tell whether the view has the object, or too many pass through.
func (r *read) startsLane() bool {
	return r.Verb != "get" || r.ResourceVersion != "" || r.variant.Namespaces != nil || r.patient
}

// selects reports whether the view of r has a part of the objects only.
func (r *read) selects() bool { return r.View.Selects(r.GVR.GroupResource()) }

// acquire sets the lane, if there is one. It starts the lane if there is none and start is true.
func (r *read) acquire(start bool) (o request.Outcome) {
	if r.lane != nil {
		return o
	}
	if r.form.Table != "" {
		return r.acquireTables()
	}
	l, why := r.reads.Lanes.Acquire(r.info, r.laneKey(), start, 0, r)
	if l == nil {
		return request.PassThrough(why)
	}
	if start {
		r.reads.passing.passGets(r.GVR, 0)
	}
	var ok bool
	if r.filter, ok = fanout.NewFilter(r.namespace, r.Labels, r.selector, l.Collection.FieldLabels); !ok {
		r.reads.Lanes.Release(l)
		return request.PassThrough(request.Selector)
	}
	r.base = r.filter
	r.filter = r.filter.Within(r.Shard.Part)
	if r.View != nil {
		r.filter = r.filter.In(r.variant.Trim, l.Cache.Namespaces(r.variant.Namespaces))
	}
	r.lane = l
	return o
}

// laneKey returns the key of the lane that answers r.
func (r *read) laneKey() lane.Key { return lane.Key{GVR: r.GVR, Representation: r.form} }

// acquireTables sets the lane and the filter of a watch in Tables, if there is one.
func (r *read) acquireTables() (o request.Outcome) {
	var ok bool
	key := r.laneKey()
	if r.filter, ok = fanout.NewFilter(r.namespace, r.Labels, r.selector, nil); !ok || !r.filter.Fixed() {
		key.Selection = reflector.Selection{Namespace: r.namespace, Labels: r.Labels.String(), Fields: r.Fields.String()}
		r.filter = fanout.Everything // of all that the lane has
	}
	var why request.Reason
	if r.lane, why = r.reads.Lanes.Acquire(r.info, key, true, r.version(), r); r.lane == nil {
		return request.PassThrough(why)
	}
	return o
}

// Source implements lane.By. It is called when the client has been allowed to read.
func (r *read) Source() account.Source {
	if r.source == (account.Source{}) {
		r.source = r.reads.Authorizer.Source(r.id)
	}
	return r.source
}

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
		r.reads.passing.giveEasy(r.easyKind())
	}
	if r.lane != nil && !r.kept {
		r.reads.Lanes.Release(r.lane)
	}
}

// resolve determines the resource, representation and scope of r, if a lane can serve them. The
// client must be allowed to read, because resolve may ask kube-apiserver in the proxy's own name.
func (c *Reads) resolve(ctx context.Context, r *read) (o request.Outcome) {
	if c.APIs.Served(ctx, r.GVR.GroupVersion(), r.Verb == "watch") != registry.ByItself {
		return request.PassThrough(request.Aggregated)
	}
	var ok bool
	if r.info, ok = c.Discovery.Lookup(ctx, r.GVR); !ok || !r.info.Watchable {
		return request.PassThrough(request.Resource)
	}
	if r.namespace, ok = r.Scope(r.info.Namespaced); !ok {
		return request.PassThrough(request.Resource)
	}
	forms, why := r.fitting() // of a resource that there is, because a view remembers its forms
	if len(forms) == 0 {
		return c.unfit(r, why)
	}
	chosen, ok := c.encodings.Choose(ctx, r.GVR, forms)
	if !ok || r.indented(chosen) && !r.selects() {
		return request.PassThrough(request.Form)
	}
	r.variant, _ = r.variantOf(chosen)
	if r.variant.Namespaces != nil && !c.namespaces.Known(ctx, r.ResourceVersion == "", c.Lane.FreshnessTimeout) {
		return request.PassThrough(request.Freshness)
	}
	r.form = chosen.Representation
	if !r.startsLane() && !c.Lanes.Started(r.laneKey()) {
		c.passing.passGets(r.GVR, lanelessFor)
		return request.PassThrough(request.NoLane)
	}
	if r.info.Definition, ok = c.crds.Of(ctx, r.info, r.Verb == "watch"); !ok {
		return request.PassThrough(request.Definition)
	}
	r.selector, ok = upstream.FieldSelector(r.info, r.Fields)
	if !ok || r.info.Definition != nil && !c.crds.Selects(r.selector) ||
		!c.encodings.Selects(ctx, r.info, r.form, r.selector) {
		return request.PassThrough(request.Selector)
	}
	return o
}

// variantOf returns the variant of an answer in this form. It lacks what the client asks to leave
// out in its Accept header, and what its view leaves out. Tables are whole.
func (r *read) variantOf(form request.Clause) (*fanout.Variant, error) {
	if form.Table != "" {
		return r.View.Whole(), nil
	}
	return r.View.Variant(r.GVR, form.Encoding, form.Metadata != "", form.Lean)
}

// fitting returns the forms that the client accepts and in which its view can be made, and why it can't in
// others.
func (r *read) fitting() (forms []request.Clause, why error) {
	for _, form := range r.Accepts {
		if _, err := r.variantOf(form); err != nil && r.View != nil {
			why = err
		} else {
			forms = append(forms, form)
		}
	}
	return forms, why
}

// unfit returns the Status for a client of a view that accepts no form in which its view can be made.
func (c *Reads) unfit(r *read, why error) request.Outcome {
	c.Metrics.unfitForm.Inc()
	return request.Refuse(apistatus.Failure(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, fmt.Sprintf(
		"the view %s of %s can't be made in what you accept: %v: accept application/json too",
		r.View.Name(), request.ResourceText(r.GVR), why)))
}
