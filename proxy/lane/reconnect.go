package lane

import (
	"context"
	"net/http"
	"time"

	"github.com/watchfan/watchfan/proxy/auth"
)

// reconnect makes the next requests use a new upstream connection, which may lead to another
// kube-apiserver. Over HTTP/2 all requests share one connection for as long as it works, even if
// the kube-apiserver behind it does not. Requests under way go on. It does nothing within 5 s of
// the last time.
func (ls *Lanes) reconnect(ctx context.Context) {
	const interval, patience = 5 * time.Second, time.Second
	if !ls.reconnected.once(interval) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req := (&http.Request{
		Method: http.MethodGet,
		URL:    ls.upstream.URL("/readyz", ""),
		Header: make(http.Header),
		Close:  true, // the connection takes no other request from here on
	}).WithContext(ctx)
	resp, err := ls.upstream.DoAs(auth.Identity{Kind: auth.KindOwn}, req)
	if err != nil {
		ls.Log.Debug("Left a connection that did not answer", "err", err)
		return
	}
	resp.Body.Close()
}
