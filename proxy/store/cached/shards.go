package cached

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// unknownShard ends a list or watch whose shardSelector is not understood here. It passes through if
// kube-apiserver serves shardSelector: that may understand more, and words its own refusal. Any other
// kube-apiserver would ignore the selector and send everything.
func (c *Reads) unknownShard(ctx context.Context, r *read) request.Outcome {
	if c.sharding.Served(ctx) {
		return request.PassThrough(request.Parameters)
	}
	c.Metrics.invalidShard.Inc()
	return request.Refuse(apistatus.Failure(http.StatusInternalServerError, metav1.StatusReasonUnknown,
		"invalid shard selector: "+r.Shard.Err.Error()))
}

// withholds reports whether a list or watch with a shardSelector, or in a view that has a part of the
// objects, must not pass through. A lane answers such reads, but not this one now. kube-apiserver ignores
// the parameter and knows no view. It would send all other objects too, to a client that may rely on
// earlier answers from here. (Package passthrough takes care of gets, and of what no lane answers.)
func (c *Reads) withholds(r *read, why request.Reason) bool {
	if r.selects() && r.Verb != "get" {
		return why == request.LaneFilling || why == request.LaneBound || why == request.NoLane || c.relies(r, why)
	}
	if !r.Sharded() || r.Shard.Err != nil || !c.relies(r, why) {
		return false
	}
	ctx, cancel := context.WithTimeout(exchange.WithArrival(c.ctx, r.conn), lane.Wait)
	defer cancel()
	return !c.sharding.Served(ctx)
}

// relies reports whether the client may rely on earlier answers from a lane, although no lane answers
// this one for a reason.
func (c *Reads) relies(r *read, why request.Reason) bool {
	if why == request.Resource {
		return c.Discovery.Unclear(r.GVR)
	}
	switch {
	case r.lane == nil:
		return r.selects() && why == request.Freshness // of the namespaces that its view selects
	case r.neverProved(why): // a list of everything is seen to be one, or is small enough to be selected
		return r.Verb == "watch"
	}
	switch why {
	case request.LaneFilling:
		return r.few // otherwise the lane can't be filled
	case request.Freshness, request.Selector, request.NoLane: // the lane has just ended
		return true
	case request.History: // kube-apiserver may refuse sendInitialEvents
		return r.Verb != "watch" || r.SendInitialEvents == nil || r.lane.WatchList()
	}
	return false
}

// neverProved reports whether there is no answer because nothing proves that this lane is current, now or later.
func (r *read) neverProved(why request.Reason) bool {
	return why == request.Freshness && r.lane != nil && r.lane.Collection.Uncached()
}

// withhold answers a read that withholds reports. Each answer makes a client list again, or try again:
//
//	a watch from a resourceVersion, or a list as of one, whose history is not known    410
//	the lane is being filled or ends, a proof has failed, or filters cost too much     429
//	discovery has not said whether there is such a resource                            429
//	a watch that begins with the current state, which will never be known              503
func (c *Reads) withhold(x *exchange.Exchange, r *read, why request.Reason) request.Outcome {
	if r.selects() {
		c.Metrics.withheldView.Inc()
	} else {
		c.Metrics.withheldShard.Inc()
	}
	x.Recall = nil
	watch := r.Verb == "watch"
	switch past := why == request.History && (!watch || r.Resumes()); {
	case past && watch && !r.WebSocket: // whose handshake has not been made
		return c.serveExpired(x, r)
	case past:
		return gone("The resourceVersion for the provided list is too old.")
	}
	by := "by hash ranges"
	if r.selects() {
		by = "for the view " + r.View.Name()
	}
	what := "this proxy can't select " + request.ResourceText(r.GVR) + " " + by
	if r.neverProved(why) { // client-go would repeat what gets 429, and lists after 503
		return request.Refuse(apistatus.ServiceUnavailable(what + " as of now, and kube-apiserver can't at all: list any state"))
	}
	return request.Refuse(apistatus.TooManyRequests(what + " yet, and kube-apiserver can't at all"))
}
