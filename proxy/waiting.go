package proxy

import (
	"net/http"

	"github.com/valyala/fasthttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/apistatus"
	"github.com/watchfan/watchfan/proxy/downstream"
	"github.com/watchfan/watchfan/proxy/lane"
	"github.com/watchfan/watchfan/proxy/request"
)

// throughKey is the user value of a request's throughSlot.
type throughKey struct{}

// awaitLane waits until the lane can serve r, and reports whether it can. refused answers a client
// that has waited too long.
func (c *cachedReads) awaitLane(ctx *fasthttp.RequestCtx, r *cachedRead) (ready bool, refused *metav1.Status) {
	end, slot := r.lane.Await(downstream.WithArrival(c.ctx, r.arrival), lane.Waiter{
		Verb:     r.Verb,
		Arrived:  r.arrived,
		Patience: r.Patience(lane.FillWait),
		Left:     downstream.Left(ctx.Conn()),
	})
	if slot != nil {
		ctx.SetUserValue(throughKey{}, slot)
	}
	switch end {
	case lane.FillFailed:
		return false, c.unfilled(r)
	case lane.FillLeft:
		return false, apistatus.Failure(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "the client left before its request could be answered")
	}
	return end == lane.FillReady, nil
}

func (c *cachedReads) unfilled(r *cachedRead) *metav1.Status {
	return c.refuse(rejectedFilling, "this proxy has just begun to read "+request.ResourceText(r.GVR)+" from kube-apiserver, which takes long")
}
