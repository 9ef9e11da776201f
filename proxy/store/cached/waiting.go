package cached

import (
	"context"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// awaitLane waits until the lane can serve r. A client that has waited too long, or has left, is
// refused.
func (c *Reads) awaitLane(x *exchange.Exchange, r *read) (o request.Outcome) {
	r.waited = !r.lane.Synced()
	end, slot := r.lane.Await(exchange.WithArrival(c.ctx, r.conn), lane.Waiter{
		Verb:     r.Verb,
		User:     r.flow(),
		Arrived:  r.arrived,
		Patience: c.patience(r),
		Left:     r.conn.Left,
	})
	if slot != nil {
		x.Until = slot
	}
	switch end {
	case lane.FillReady:
		return o
	case lane.FillFailed:
		return request.Refuse(c.TooMany(
			"this proxy has just begun to read " + request.ResourceText(r.GVR) + " from kube-apiserver, which takes long"))
	case lane.FillLeft:
		return request.Refuse(apistatus.Failure(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "the client left before its request could be answered"))
	case lane.FillPassed:
		r.few = true
	}
	if r.returns() {
		x.Recall = r.lane.Filled()
	}
	return request.PassThrough(request.LaneFilling)
}

// patience returns how long r may wait for its answer. A get or a list waits for a part of
// kube-apiserver's own limit, and a watch for a part of its duration; see request.Request.Patience.
func (c *Reads) patience(r *read) time.Duration {
	if r.Verb == "watch" {
		return r.Patience(c.Options.MinRequestTimeout)
	}
	return r.Patience(lane.AnswerWait)
}

// returns reports whether the request is a watch whose client resumes it by itself. A client that
// asks for no bookmarks may not: kubectl get --watch ends with its watch. A watch with initial
// events would have to send them again if it ended among them.
func (r *read) returns() bool { return r.Resumes() && r.AllowWatchBookmarks }

// reviewTries is how often the review of a read that has waited for its lane is asked for, if
// kube-apiserver does not answer in time. All that have waited ask at once.
const reviewTries = 3

// stillAllowed lets a client that has waited for its lane, or for an answer that others share, go on
// if it may still read. It repeats the review unless the decision is still believed, or younger than
// a second.
func (c *Reads) stillAllowed(r *read) (o request.Outcome) {
	if time.Since(r.decided) <= max(c.Authorizer.BelievedFor(r.Request), time.Second) {
		return o
	}
	for range reviewTries {
		asked := time.Now()
		wait, cancel := context.WithTimeout(c.ctx, auth.ReviewTimeout)
		o = c.review(wait, r)
		cancel()
		if o.Open() || time.Since(asked) < auth.ReviewTimeout/2 || r.conn.Left() {
			break
		}
	}
	return o
}
