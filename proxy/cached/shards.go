package cached

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/apistatus"
	"github.com/watchfan/watchfan/proxy/exchange"
	"github.com/watchfan/watchfan/proxy/lane"
	"github.com/watchfan/watchfan/proxy/request"
)

// unknownShard ends a list or watch whose shardSelector is not understood here. It passes through if
// kube-apiserver serves shardSelector: that may understand more, and words its own refusal. Any other
// kube-apiserver would ignore the selector and send everything.
func (c *Reads) unknownShard(ctx context.Context, r *read) request.Outcome {
	if c.sharding.Served(ctx) {
		return request.PassThrough(request.Parameters)
	}
	c.metrics.invalidShard.Inc()
	return request.Refuse(apistatus.Failure(http.StatusInternalServerError, metav1.StatusReasonUnknown,
		"invalid shard selector: "+r.Shard.Err.Error()))
}

// withhold ends a list or watch with a shardSelector that must not pass through. A lane answers
// such reads, but not this one now. kube-apiserver ignores the parameter. It would send all other
// objects too, to a client that may rely on earlier answers from here. The outcome is open for any
// other read. Each answer makes a client list again, or try again:
//
//	a watch from a resourceVersion, or a list as of one, whose history is not known    410
//	the lane is being filled or ends, a proof has failed, or filters cost too much     429
//	discovery has not said whether there is such a resource                            429
func (c *Reads) withhold(x *exchange.Exchange, r *read, why request.Reason) (o request.Outcome) {
	if !r.Sharded() || r.Shard.Err != nil {
		return o
	}
	watch, past := r.Verb == "watch", false
	switch {
	case why == request.Resource:
		if !c.discovery.Unclear(r.GVR) {
			return o
		}
	case r.lane == nil || r.lane.Uncached():
		return o
	case why == request.LaneFilling:
		if !r.through {
			return o // the lane can't be filled
		}
	case why == request.Freshness, why == request.Selector, why == request.NoLane: // the lane has just ended
	case why == request.History:
		if watch && r.SendInitialEvents != nil && !r.lane.WatchList() {
			return o // kube-apiserver refuses sendInitialEvents
		}
		past = !watch || r.Resumes()
	default:
		return o
	}
	ctx, cancel := context.WithTimeout(exchange.WithArrival(c.ctx, r.conn), lane.Wait)
	defer cancel()
	if c.sharding.Served(ctx) {
		return o
	}
	c.metrics.withheldShard.Inc()
	x.Recall = nil
	switch {
	case past && watch && !r.WebSocket: // whose handshake has not been made
		return c.serveExpired(x, r)
	case past:
		return request.Refuse(apistatus.Failure(http.StatusGone, metav1.StatusReasonExpired,
			"The resourceVersion for the provided list is too old."))
	}
	return request.Refuse(apistatus.TooManyRequests("this proxy can't select " + request.ResourceText(r.GVR) +
		" by hash ranges yet, and kube-apiserver can't at all"))
}
