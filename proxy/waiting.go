package proxy

import (
	"net/http"

	"github.com/valyala/fasthttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// throughKey is the user value of a request's throughSlot.
type throughKey struct{}

// awaitLane waits until the lane can serve r, and reports whether it can. refused answers a client
// that has waited too long.
func (c *cachedReads) awaitLane(ctx *fasthttp.RequestCtx, r *cachedRead) (ready bool, refused *metav1.Status) {
	end, slot := r.lane.await(withArrival(c.ctx, r.arrival), waiter{
		verb:     r.verb,
		arrived:  r.arrived,
		patience: r.patience(fillWait),
		left:     func() bool { return hasLeft(tcpConn(accepted(ctx.Conn()))) },
	})
	if slot != nil {
		ctx.SetUserValue(throughKey{}, slot)
	}
	switch end {
	case fillFailed:
		return false, c.unfilled(r)
	case fillLeft:
		return false, failure(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "the client left before its request could be answered")
	}
	return end == fillReady, nil
}

func (c *cachedReads) unfilled(r *cachedRead) *metav1.Status {
	return c.refuse(rejectedFilling, "this proxy has just begun to read "+resourceText(r.gvr)+" from kube-apiserver, which takes long")
}
