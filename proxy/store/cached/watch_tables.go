package cached

import (
	"context"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/store/reflector"
)

// A watch in Tables, as kubectl's, is served from a lane that keeps events only: see
// [fanout.NewEventsOnly]. What is shared of it is what kube-apiserver sends to a watcher beside it.
// Only ages may differ, by the second that a row may be old when it is sent. request.Unserved has
// passed the other watches through: those that begin with rows, and those whose rows have no
// objects.

// mostRowAge is how long ago a row may have arrived that a watch begins with. So an age is a second
// too small at most.
const mostRowAge = time.Second

// acquireTables sets the lane and the filter of a watch in Tables, if there is one.
func (r *read) acquireTables() (o request.Outcome) {
	var ok bool
	var selection reflector.Selection
	if r.filter, ok = fanout.NewFilter(r.namespace, r.Labels, r.selector, nil); !ok || !r.filter.Fixed() {
		selection = reflector.Selection{Namespace: r.namespace, Labels: r.Labels.String(), Fields: r.Fields.String()}
		r.filter, _ = fanout.NewFilter("", nil, nil, nil) // of all that the lane has
	}
	from, _ := parseVersion(r.ResourceVersion) // request.Parse has parsed it
	var why request.Reason
	if r.lane, why = r.lanes.AcquireTables(r.info, r.form, selection, from, r); r.lane == nil {
		return request.PassThrough(why)
	}
	return o
}

// subscribeTables begins a subscription to the Tables after the watch's resourceVersion. If the
// lane began later, the events in between are fetched.
func (c *Reads) subscribeTables(ctx context.Context, r *read, want fanout.Request) (*fanout.Subscription, error) {
	rv, err := parseVersion(r.ResourceVersion)
	if err != nil {
		return nil, err
	}
	want.Start, want.ResourceVersion, want.MaxAge = fanout.FromVersion, rv, mostRowAge
	return c.subscribeFrom(ctx, r.lane, want)
}
