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
	ready = end == lane.FillReady
	if !ready && r.returns() {
		x.Recall = r.lane.Filled()
	}
	return ready, nil
}

// returns reports whether the request is a watch whose client resumes it by itself. A client that
// asks for no bookmarks may not: kubectl get --watch ends with its watch. A watch with initial
// events would have to send them again if it ended among them.
func (r *read) returns() bool { return r.Resumes() && r.AllowWatchBookmarks }

func (c *Reads) unfilled(r *read) *metav1.Status {
	return c.tooMany("this proxy has just begun to read " + request.ResourceText(r.GVR) + " from kube-apiserver, which takes long")
}
