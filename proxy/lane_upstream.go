package proxy

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// elsewhere has requests to come open another connection upstream, which may lead to another kube-apiserver: over HTTP/2 all go over one for as
// long as it works, whatever is behind it. What is under way goes on. It does nothing if it has just been done.
func (ls *lanes) elsewhere(ctx context.Context) {
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
	resp, err := ls.upstream.DoAs(identity{kind: kindOwn}, req)
	if err != nil {
		ls.log.Debug("Left a connection that did not answer", "err", err)
		return
	}
	resp.Body.Close()
}

// turns bounds how many lanes are listed at a time. After an outage of kube-apiserver, or of its etcd, all have to be at once, and it would have
// to hold and encode all of them.
type turns chan struct{}

// listsAtOnce is how many that are. Most lists take milliseconds.
const listsAtOnce = 4

func newTurns() turns { return make(turns, listsAtOnce) }

// turnTimeout is how long a turn lasts at most. A list that takes longer goes on, but others no longer wait for it: a resource whose conversion
// webhook does not answer must not keep the rest from being listed.
const turnTimeout = 5 * time.Second

// take waits for a turn, which ends with the first call of done.
func (t turns) take(ctx context.Context) (done func(), err error) {
	select {
	case t <- struct{}{}:
		give := sync.OnceFunc(func() { <-t })
		late := time.AfterFunc(turnTimeout, give)
		return func() { late.Stop(); give() }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
