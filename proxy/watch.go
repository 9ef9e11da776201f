package proxy

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// serveWatch answers a watch from the lane's cache. It reports false, having done nothing, if the watch is to be
// passed through: always right, and what happens whenever something can't be had, or proved, in time.
func (c *cachedReads) serveWatch(ctx *fasthttp.RequestCtx, id identity, req *request, l *lane, filter *fanout.Filter) bool {
	want := fanout.Request{Filter: filter, Bookmarks: req.allowWatchBookmarks, Timeout: c.watchTimeout(req)}
	wait, cancel := context.WithTimeout(c.ctx, c.opts.FreshnessTimeout)
	defer cancel()

	sub, err := c.subscribe(wait, req, l, want)
	if errors.Is(err, fanout.ErrLeapt) {
		c.serveExpired(ctx, req, l)
		c.lanes.release(l)
		return true
	}
	if err != nil {
		c.log.Debug("Passed watch through", "resource", l.String(), "err", err)
		return false
	}
	head := watchHead(auditID(ctx), l.responseWarnings())
	c.conns.hijack(ctx, func(h *hijacked) {
		complete := c.stream(h, id, req, sub, head)
		c.lanes.release(l)
		if complete {
			h.Resume()
		} else {
			h.Close()
		}
	})
	return true
}

// serveExpired answers a watch from a resourceVersion that only a list can follow: a stream that holds nothing but the ERROR event, as
// kube-apiserver answers a resourceVersion from before its cache was filled.
func (c *cachedReads) serveExpired(ctx *fasthttp.RequestCtx, req *request, l *lane) {
	rv, _ := parseVersion(req.resourceVersion) // it has been parsed before
	commonHeaders(ctx)
	ctx.Response.Header.SetContentType("application/json")
	l.writeWarnings(ctx)
	event := framing.ErrorFrame(encodeStatus(expired(rv, l.cache.Progress()))).Payload(nil)
	ctx.Response.SetBodyStream(bytes.NewReader(event), -1)
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
func (c *cachedReads) subscribe(ctx context.Context, req *request, l *lane, want fanout.Request) (*fanout.Subscription, error) {
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
		return c.subscribeFrom(ctx, l, want)
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
		return c.subscribeFrom(ctx, l, want)
	default:
		want.Start = fanout.FromNow
	}
	return c.subscribeFresh(ctx, l, want, rv, unset)
}

var errNoBookmarks = errors.New("upstream's bookmarks are not known yet")

// subscribeFresh subscribes to a state that is not older than rv or, if current is true, than now.
func (c *cachedReads) subscribeFresh(ctx context.Context, l *lane, want fanout.Request, rv uint64, current bool) (*fanout.Subscription, error) {
	for {
		if current || l.cache.Progress() < rv {
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

// prove proves that the cache is as new as now, and not older than rv.
func (c *cachedReads) prove(ctx context.Context, l *lane, rv uint64) (fanout.Proof, error) {
	if l.uncached() {
		return fanout.Proof{}, errUnproven
	}
	proof, err := l.prover.prove(ctx, c.opts.FreshnessTimeout)
	if err == nil && proof.AsOf < rv {
		err = errUnproven
	}
	return proof, err
}

var errUnproven = errors.New("not known to be as new as asked")

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

func parseVersion(rv string) (uint64, error) {
	if rv == "" {
		return 0, nil
	}
	return strconv.ParseUint(rv, 10, 64)
}
