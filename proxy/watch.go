package proxy

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/watchfan/watchfan/fanout"
)

// serveWatch answers a watch from the lane's cache. It reports false, having done nothing, if the watch is to be
// passed through: always right, and what happens whenever something can't be had, or proved, in time.
func (c *cachedReads) serveWatch(ctx *fasthttp.RequestCtx, r *cachedRead) bool {
	l := r.lane
	want := fanout.Request{Filter: r.filter, Bookmarks: r.allowWatchBookmarks, Timeout: c.watchTimeout(r.request), Gzip: c.compresses(r)}
	if d, ok := c.conns.remaining(ctx.Conn()); ok && d < want.Timeout {
		want.Timeout, want.Aging = d, true
	}
	wait, cancel := context.WithTimeout(withArrival(c.ctx, r.arrival), c.opts.Lane.FreshnessTimeout)
	defer cancel()

	sub, err := c.subscribe(wait, r, want)
	if errors.Is(err, fanout.ErrLeapt) {
		c.serveExpired(ctx, r)
		return true
	}
	if errors.Is(err, fanout.ErrUndecidable) {
		returnSoon(ctx, r.request)
	}
	if err != nil {
		l.log.Debug("Passed watch through", "err", err)
		return false
	}
	r.keep()
	w := newWatcher(ctx, r, sub, want.Gzip)
	last := ctx.Request.Header.ConnectionClose() // the connection's last request
	id := auditID(ctx)
	head := watchHead(id, l.contentType(true), l.responseWarnings(), want.Gzip, last)
	event, refused := c.audit.watchBegan(ctx, r.audited(), id)
	if refused != nil {
		sub.Cancel()
		c.lanes.release(l)
		writeStatus(ctx, refused)
		return true
	}
	c.conns.hijack(ctx, func(h *hijacked) {
		c.stream(h, r, w, head, func(reason fanout.Reason, because string, complete bool) {
			c.lanes.release(l)
			c.audit.watchEnded(event, reason, because)
			if complete && !last {
				h.Resume()
			} else {
				h.Close()
			}
		})
	})
	return true
}

// compresses reports whether the watch is sent as gzip. Secrets are not: what compresses well tells who can write some of it, and sees
// how long the records are, of the rest.
func (c *cachedReads) compresses(r *cachedRead) bool {
	return r.gzip && c.opts.Lane.CompressWatches && !isSecrets(r.gvr.GroupResource())
}

// serveExpired answers a watch from a resourceVersion that only a list can follow: a stream that holds nothing but the ERROR event, as
// kube-apiserver answers a resourceVersion from before its cache was filled.
func (c *cachedReads) serveExpired(ctx *fasthttp.RequestCtx, r *cachedRead) {
	l := r.lane
	rv, _ := parseVersion(r.resourceVersion) // it has been parsed before
	commonHeaders(ctx)
	ctx.Response.Header.SetContentType(l.contentType(true))
	l.writeWarnings(ctx)
	event := l.errorFrame(expired(rv, l.cache.Progress())).Payload(nil)
	ctx.Response.SetBodyStream(bytes.NewReader(event), -1)
	began, refused := c.audit.watchBegan(ctx, r.audited(), string(ctx.Response.Header.Peek("Audit-Id")))
	if refused != nil {
		writeStatus(ctx, refused)
		return
	}
	c.audit.watchEnded(began, fanout.Forgotten, "")
}

// subscribe begins the subscription that a watch's parameters ask for, as kube-apiserver understands them
// (k8s.io/apiserver/pkg/storage/cacher/cacher.go and
// k8s.io/apimachinery/pkg/apis/meta/internalversion/defaults.go).
//
//	resourceVersion  sendInitialEvents  begins with
//	""               true, or unset     the state, proved to be current, and the end bookmark
//	"0"              true, or unset     the state as it is, and the end bookmark
//	N                true               the state, not older than N, and the end bookmark
//	N                false or unset     what happened behind N
//	""               false              what happens behind the current resourceVersion
//	"0"              false              what happens from now on
//
// Where upstream has no sendInitialEvents, and under the deprecated /watch/ prefix, "" and "0" begin with the state as it is and
// there is no end bookmark.
func (c *cachedReads) subscribe(ctx context.Context, r *cachedRead, want fanout.Request) (*fanout.Subscription, error) {
	req, l := r.request, r.lane
	rv, err := parseVersion(req.resourceVersion)
	if err != nil {
		return nil, err
	}
	unset := req.resourceVersion == ""
	initial, sent := req.sendInitialEvents != nil && *req.sendInitialEvents, req.sendInitialEvents != nil
	if sent && !l.watchList.Load() {
		return nil, errNoWatchList
	}
	switch {
	case !sent && rv != 0:
		want.Start, want.ResourceVersion = fanout.FromVersion, rv
		return c.subscribeDecided(ctx, l, want)
	case !sent && (req.legacyWatch || !l.watchList.Load()):
		want.Start = fanout.FromSnapshot
		return l.cache.Subscribe(want)
	case !sent || initial:
		want.Start, want.EndBookmark = fanout.FromSnapshot, true
		if req.allowWatchBookmarks && !l.cache.HasBookmarks() {
			return nil, errNoBookmarks
		}
	case rv != 0:
		want.Start, want.ResourceVersion = fanout.FromVersion, rv
		return c.subscribeDecided(ctx, l, want)
	default:
		want.Start = fanout.FromNow
	}
	return c.subscribeFresh(ctx, r, want, rv, unset)
}

var errNoBookmarks = errors.New("upstream's bookmarks are not known yet")

// subscribeFresh subscribes to a state that is not older than rv or, if current is true, than the request.
func (c *cachedReads) subscribeFresh(ctx context.Context, r *cachedRead, want fanout.Request, rv uint64, current bool) (*fanout.Subscription, error) {
	l := r.lane
	for {
		if current && !r.filledSince() || l.cache.Progress() < rv {
			var err error
			if want.Proof, err = c.prove(ctx, l, rv); err != nil {
				return nil, err
			}
		}
		sub, err := l.cache.Subscribe(want)
		if !errors.Is(err, fanout.ErrNotFresh) {
			return sub, err
		}
	}
}

// subscribeFrom subscribes to what happened behind a resourceVersion, fetching the history if the client was there before us.
func (c *cachedReads) subscribeFrom(ctx context.Context, l *lane, want fanout.Request) (*fanout.Subscription, error) {
	sub, err := l.cache.Subscribe(want)
	if !errors.Is(err, fanout.ErrExpired) || errors.Is(err, fanout.ErrLeapt) {
		return sub, err
	}
	if err := l.extend(ctx, want.ResourceVersion); err != nil {
		return nil, err
	}
	return l.cache.Subscribe(want)
}

// subscribeDecided is subscribeFrom for a client whose events depend on versions from before the history.
func (c *cachedReads) subscribeDecided(ctx context.Context, l *lane, want fanout.Request) (*fanout.Subscription, error) {
	sub, err := c.subscribeFrom(ctx, l, want)
	if !errors.Is(err, fanout.ErrUndecidable) || l.decide(ctx) != nil {
		return sub, err
	}
	return l.cache.Subscribe(want)
}

// watchTimeout is how long a watch lasts: what the client asked for, or a random time in
// [min-request-timeout, 2×min-request-timeout) as kube-apiserver has it
// (k8s.io/apiserver/pkg/endpoints/handlers/get.go, ListResource).
func (c *cachedReads) watchTimeout(req *request) time.Duration {
	if req.timeoutSeconds != nil && *req.timeoutSeconds != 0 {
		const most = 1 << 31 // seconds: 68 years
		return time.Duration(min(*req.timeoutSeconds, most)) * time.Second
	}
	least := c.opts.MinRequestTimeout
	return least + rand.N(max(least, 1))
}
