package proxy

import (
	"net/http"
	"time"

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
		patience: r.patience(),
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

// patience is how long r waits for a lane: the client's own timeout less the time to answer,
// at most fillWait.
func (r *cachedRead) patience() time.Duration {
	own := r.timeout
	if r.verb == "watch" && r.timeoutSeconds != nil {
		own = time.Duration(min(*r.timeoutSeconds, int64(fillWait/time.Second)*2)) * time.Second
	}
	if own <= 0 {
		return fillWait
	}
	return min(fillWait, own/10*9)
}
