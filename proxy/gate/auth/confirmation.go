package auth

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// A kube-apiserver that starts serves before it has read the roles and their bindings, and says no to
// everybody until then. A client that is told so asks again a little later. The watches that are open
// here would end, and with them those of every client that is asked about in that moment. So a no that
// would end open watches is believed only from a kube-apiserver that is ready, and only if it says no
// again. While it is not ready, the decision is unclear.

// confirmPause is the time between the two reviews if the proxy may not see /readyz, which nobody may
// in that moment.
const confirmPause = 2 * time.Second

// answer asks a question and remembers the decision.
func (a *Authorizer) answer(ctx context.Context, q Question, id Identity, review []byte) Decision {
	asked := time.Now()
	d := a.review(ctx, id, review)
	if d.outcome == denied && a.granted(q) {
		if d = (Decision{}); a.confirmable(ctx) {
			asked = time.Now()
			d = a.review(ctx, id, review)
		}
	}
	d.asked = asked
	a.remember(id, q, d)
	if d.outcome == allowed && len(review) <= maxRenewed {
		a.renewUsed(q, d, id, review)
	}
	return d
}

// granted reports whether open watches rely on the yes to a question.
func (a *Authorizer) granted(q Question) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.grants[q]
	return g != nil && len(g.watches) > 0
}

// confirmable reports whether kube-apiserver is ready. If it does not say so, confirmable waits for as
// long as kube-apiserver may need.
func (a *Authorizer) confirmable(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.server.URL("/readyz", "").String(), nil)
	if err != nil {
		return false
	}
	resp, err := a.server.DoAs(Identity{Kind: KindOwn}, req)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 4<<10)) // the connection can then be used again
	resp.Body.Close()
	switch {
	case resp.StatusCode < http.StatusMultipleChoices:
		return true
	case resp.StatusCode >= http.StatusInternalServerError:
		return false
	}
	return exchange.Sleep(ctx, confirmPause)
}
