package cached

import (
	"github.com/watchfan/watchfan/proxy/auth"
	"github.com/watchfan/watchfan/proxy/exchange"
)

// addWarnings adds the Warning headers of the answer to r: those that concern the client, which
// nobody else is sent, and then those that concern the resource, as kube-apiserver orders them.
func (c *Reads) addWarnings(x *exchange.Exchange, r *read, resource []string) {
	h := &x.Response.Header
	if r.id.Warning != "" {
		h.Add("Warning", r.id.Warning)
	}
	client := r.decision.Warnings()
	if r.id.Kind == auth.KindOwn {
		client = c.upstream.OwnWarnings()
	}
	for _, w := range client {
		h.Add("Warning", w)
	}
	for _, w := range resource {
		h.Add("Warning", w)
	}
}
