package cached

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/apistatus"
	"github.com/watchfan/watchfan/proxy/exchange"
	"github.com/watchfan/watchfan/proxy/lane"
	"github.com/watchfan/watchfan/proxy/request"
)

// awaitLane waits until the lane can serve r, and reports whether it can. A client that has waited
// too long, or has left, gets refused.
func (c *Reads) awaitLane(x *exchange.Exchange, r *read) (ready bool, refused *metav1.Status) {
	end, slot := r.lane.Await(request.WithArrival(c.ctx, r.conn), lane.Waiter{
		Verb:     r.Verb,
		Arrived:  r.arrived,
		Patience: r.Patience(lane.FillWait),
		Left:     r.conn.Left,
	})
	if slot != nil {
		x.Until = slot
	}
	switch end {
	case lane.FillFailed:
		return false, c.unfilled(r)
	case lane.FillLeft:
		return false, apistatus.Failure(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "the client left before its request could be answered")
	}
	return end == lane.FillReady, nil
}

func (c *Reads) unfilled(r *read) *metav1.Status {
	return c.tooMany("this proxy has just begun to read " + request.ResourceText(r.GVR) + " from kube-apiserver, which takes long")
}
