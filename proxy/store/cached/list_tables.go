package cached

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/registry"
	"github.com/watchfan/watchfan/proxy/store/sharedlist"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// A list in Tables can't be answered from a cache, because only kube-apiserver knows the ages in its
// rows. But many kubectls may ask for the same list at the same instant:
//
//	the first            passes through in its own name, without a review
//	those who come then  share the next list, in the proxy's name, once each has been allowed
//
// The list is the same for all who may read it: what kube-apiserver answers depends on the request,
// and on its user only by yes or no. Whatever is not an answer of 200 is not shared. Then each
// client passes through.

// listsTables reports whether r is a list in Tables.
func (r *read) listsTables() bool { return r.Verb == "list" && r.AsTable() }

// tablesQuestion identifies the answer to a list in Tables by all of the request that it depends on.
func tablesQuestion(x *exchange.Exchange, r *read) auth.Question {
	return sha256.Sum256(fmt.Appendf(nil, "%q %q %t", x.Target, x.Header.Get("Accept"), r.Gzip))
}

// serveTables answers a list in Tables with an answer that it shares with other clients. The client
// has been allowed to read.
func (c *Reads) serveTables(ctx context.Context, x *exchange.Exchange, r *read) request.Outcome {
	own := func() bool { return c.APIs.Served(ctx, r.GVR.GroupVersion(), false) == registry.ByItself }
	if !own() {
		return request.PassThrough(request.Aggregated)
	}
	r.decided = time.Now()
	answer, ok := c.shared.Get(ctx, tablesQuestion(x, r), r.flow(), c.askTables(x, r))
	switch {
	case !ok:
		return request.PassThrough(request.Form)
	case !own(): // another server may have answered meanwhile
		return request.PassThrough(request.Aggregated)
	}
	if o := c.stillAllowed(r); !o.Open() {
		return o
	}
	body := exchange.BodySlices{answer.Body}
	o := c.share(x, r, answer.Held)
	if o.Open() {
		o = c.holdAnswer(x, r, body)
	}
	if !o.Open() {
		return o
	}
	apistatus.AddCommonHeader(x)
	for _, name := range []string{"Content-Encoding", "Content-Type", "Vary"} {
		for _, value := range answer.Header.Values(name) {
			x.Response.Header.Add(name, value)
		}
	}
	c.addWarnings(x, r, answer.Warnings)
	r.seat = c.seat(r)
	x.Response.Body, x.Response.Turn = body, r.seat
	c.Metrics.sharedLists.Inc()
	return request.Answered()
}

// askTables returns the request of r in the proxy's own name.
func (c *Reads) askTables(x *exchange.Exchange, r *read) sharedlist.Ask {
	target, _ := exchange.CutTarget(x.Target)
	header := http.Header{"Accept": {x.Header.Get("Accept")}}
	if r.Gzip {
		header.Set("Accept-Encoding", "gzip")
	}
	return func(ctx context.Context) (answer sharedlist.Answer) {
		req := &http.Request{Method: http.MethodGet, URL: c.Upstream.URL(target.Path, target.Query), Header: header}
		resp, err := c.Upstream.DoAs(auth.Identity{Kind: auth.KindOwn}, req.WithContext(ctx))
		if err != nil {
			return answer
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, sharedlist.MaxBytes+1))
		if err != nil || resp.StatusCode != http.StatusOK || len(body) > sharedlist.MaxBytes {
			return answer
		}
		warnings, err := upstream.WithoutOwn(ctx, c.Upstream, resp.Header.Values("Warning"))
		if err != nil {
			return answer
		}
		held := c.Ledger.Share(account.Answers, int64(len(body)))
		return sharedlist.Answer{Header: resp.Header, Warnings: warnings, Body: body, Held: held}
	}
}
