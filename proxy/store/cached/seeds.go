package cached

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// ServeSeed answers a sibling replica that asks for the content of a lane; see package seed. It
// answers from the cache or refuses: nothing is passed through, no lane starts, and nobody waits
// for a lane. cacheable is as for Serve, but requests of all clients come here.
func (c *Reads) ServeSeed(x *exchange.Exchange, id auth.Identity, req *request.Request, cacheable bool) {
	r := c.newRead(x, id, req)
	defer r.release()
	identity, o := "", notSeeded()
	switch {
	case id.Kind == auth.KindAnonymous:
		o = request.Refuse(apistatus.Unauthorized())
	case cacheable && req.Verb == "watch" && !req.WebSocket && req.ResourceVersion == "0" &&
		req.SendInitialEvents != nil && *req.SendInitialEvents: // a watch of any state that begins with its objects
		identity, o = c.serveSeed(x, r)
	}
	if o.Answered() {
		r.lane.CountServed(req.Verb)
	} else {
		c.End(x, id, req, o)
	}
	if identity != "" {
		x.Response.Header.Add(request.SeedHeader, identity)
	}
}

// serveSeed answers or refuses the request. The review comes first, as in prepare. identity is that of
// the lane's content, "" if it was not looked at.
func (c *Reads) serveSeed(x *exchange.Exchange, r *read) (identity string, o request.Outcome) {
	wait, cancel := context.WithTimeout(exchange.WithArrival(c.ctx, r.conn), lane.Wait)
	defer cancel()
	if c.neverCached(r) != "" {
		return "", notSeeded()
	}
	switch o = c.review(wait, r); {
	case o.Refusal() != nil:
		return "", o
	case !o.Open():
		return "", request.Refuse(apistatus.Failure(http.StatusForbidden, metav1.StatusReasonForbidden,
			"kube-apiserver has not allowed the sibling replica to watch "+request.ResourceText(r.GVR)))
	}
	// Without a lane of the version, resolve might start lanes of definitions and APIServices.
	// Tables are not seeded, and a replica asks for no view.
	if !c.Lanes.StartedVersion(r.GVR.GroupVersion()) || !c.resolve(wait, r).Open() || r.form.Table != "" || r.View != nil ||
		!r.acquire(false).Open() {
		return "", notSeeded()
	}
	identity, err := r.lane.SeedIdentity(wait)
	switch {
	case err != nil:
		r.lane.Log.Debug("Refused a sibling", "err", err)
		return "", notSeeded()
	case identity != r.Seed:
		return identity, request.Refuse(apistatus.Failure(http.StatusPreconditionFailed, metav1.StatusReasonUnknown,
			"this replica has the objects of another cluster, or from another build of kube-apiserver"))
	}
	if o = c.serveWatch(x, r); !o.Answered() {
		return "", notSeeded()
	}
	return identity, o
}

// notSeeded refuses a sibling that asks for what is not here.
func notSeeded() request.Outcome {
	return request.Refuse(apistatus.ServiceUnavailable("this replica has not cached what a sibling replica asks for"))
}
