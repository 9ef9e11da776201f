package proxy

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// serveWatch answers a watch from the lane's cache. It reports false, having done nothing, if the watch is to be
// passed through: always right, and what happens whenever something can't be had, or proved, in time.
func (c *cachedReads) serveWatch(ctx *fasthttp.RequestCtx, r *cachedRead) bool {
	want := c.wanted(ctx, r)
	wait, cancel := context.WithTimeout(withArrival(c.ctx, r.arrival), c.opts.Lane.FreshnessTimeout)
	defer cancel()
	sub, err := c.subscribe(wait, r, want)
	switch {
	case err == nil:
		r.keep()
		c.streamWatch(ctx, r, sub, want.Gzip)
		return true
	case errors.Is(err, fanout.ErrRelistGap):
		c.serveExpired(ctx, r)
		return true
	case errors.Is(err, fanout.ErrUndecidable):
		returnSoon(ctx, r.request)
	}
	r.lane.log.Debug("Passed watch through", "err", err)
	return false
}

// wanted is the subscription that the watch of ctx asks for, without its start.
func (c *cachedReads) wanted(ctx *fasthttp.RequestCtx, r *cachedRead) fanout.Request {
	want := fanout.Request{
		Filter:    r.filter,
		Bookmarks: r.allowWatchBookmarks,
		Timeout:   c.watchTimeout(r.request),
		Gzip:      c.compresses(r),
	}
	if d, ok := c.conns.remaining(ctx.Conn()); ok && d < want.Timeout {
		want.Timeout, want.Aging = d, true
	}
	return want
}

// streamWatch takes over the connection of ctx and writes there what sub brings.
func (c *cachedReads) streamWatch(ctx *fasthttp.RequestCtx, r *cachedRead, sub *fanout.Subscription, gzip bool) {
	l := r.lane
	scope := watchScope{namespace: r.namespace, name: r.name, labels: r.rawLabels, fields: r.rawFields}
	w := newWatcher(ctx, l, sub, r.id.shownName(), scope, gzip)
	s := &servedWatch{cached: c, watcher: w, last: ctx.Request.Header.ConnectionClose()}
	id := auditID(ctx)
	head := watchHead(id, l.contentType(true), l.responseWarnings(), gzip, s.last)
	event, refused := c.audit.watchBegan(ctx, r.audited(), id)
	if refused != nil {
		sub.Cancel()
		c.lanes.release(l)
		writeStatus(ctx, refused)
		return
	}
	s.event = event
	c.conns.hijack(ctx, func(h *hijacked) {
		s.conn = h
		s.start(r, head)
	})
}

// servedWatch is a watch on a connection that is ours until the watch ends. The flusher writes its
// events. It has no goroutine.
type servedWatch struct {
	cached  *cachedReads
	conn    *hijacked
	watcher *watcher
	event   *auditEvent             // of its start; nil without an audit log
	last    bool                    // the connection carries no request after this one
	release func() (because string) // ends the review of what the client may do; see authorizer.watchGrant
	evicted *evidence               // why it was evicted, if it was
}

// start writes the head and has the flusher write the rest. It does not wait for the watch to end.
func (s *servedWatch) start(r *cachedRead, head []byte) {
	c, sub := s.cached, s.watcher.sub
	began := false
	defer func() {
		if !began { // the client is gone, or this panics
			sub.Cancel()
			s.finish(fanout.Gone, "", false)
		}
	}()
	gone := func() { sub.End(fanout.Ending{Reason: fanout.Gone}) }
	events := sinkEvents{gone: gone, drop: s.conn.Close, evicted: s.evict, ended: s.end}
	sink := newSink(s.conn.Conn(), c.poller, s.watcher.lane.log, events)
	if sink.begin(head, func() { s.conn.WaitRead(gone) }) != nil {
		return
	}
	s.release = c.auth.watchGrant(r.id, r.request, func() { sub.End(fanout.Ending{Reason: fanout.Revoked}) })
	c.watchers.add(s.watcher)
	began = true
	c.flusher.Start(sub, sink)
}

// evict notes why the watch is being evicted, while that can still be seen.
func (s *servedWatch) evict(st fanout.State) { s.evicted = s.watcher.evidence(st, false) }

// end follows the watch's last write.
func (s *servedWatch) end(reason fanout.Reason, complete bool) {
	s.cached.watchers.remove(s.watcher)
	because := s.release()
	if reason == fanout.Evicted && s.evicted != nil {
		s.watcher.logEvicted(s.evicted, s.cached.log)
	}
	s.finish(reason, because, complete)
}

// finish gives up what the watch has used. because is why it was revoked, if it was; complete says
// whether the response is.
func (s *servedWatch) finish(reason fanout.Reason, because string, complete bool) {
	s.cached.lanes.release(s.watcher.lane)
	s.cached.audit.watchEnded(s.event, reason, because)
	if complete && !s.last {
		s.conn.Resume()
	} else {
		s.conn.Close()
	}
}

// watchHead is the response head of a watch, as kube-apiserver's
// (k8s.io/apiserver/pkg/endpoints/handlers/watch.go, HandleHTTP). With gzip, the body's beginning
// comes with it.
func watchHead(auditID, contentType string, warnings []string, gzip, last bool) []byte {
	var encoding, vary, begin, connection string
	if gzip {
		encoding, vary, begin = "\r\nContent-Encoding: gzip", "\r\nVary: Accept-Encoding", framing.GzipStart
	}
	if last {
		connection = "\r\nConnection: close"
	}
	head := []byte("HTTP/1.1 200 OK\r\nAudit-Id: " + auditID +
		"\r\nCache-Control: no-cache, private" + connection + encoding + "\r\nContent-Type: " + contentType + "\r\nDate: ")
	head = time.Now().UTC().AppendFormat(head, http.TimeFormat)
	for _, w := range warnings {
		head = append(head, "\r\nWarning: "+w...)
	}
	return append(head, "\r\nTransfer-Encoding: chunked"+vary+"\r\n\r\n"+begin...)
}

// returnSoon makes a watch that is passed through end within a minute. It can't be answered here
// because of its old resourceVersion, and its client comes back with a newer one. kube-apiserver
// takes the first of two timeoutSeconds parameters.
func returnSoon(ctx *fasthttp.RequestCtx, req *request) {
	seconds := 30 + rand.N(30)
	if t := req.timeoutSeconds; t != nil && *t != 0 && *t <= int64(seconds) {
		return
	}
	path, params, _ := strings.Cut(string(ctx.Request.Header.RequestURI()), "?")
	ctx.Request.Header.SetRequestURI(path + "?timeoutSeconds=" + strconv.Itoa(seconds) + "&" + params)
}

// compresses reports whether the watch is sent as gzip. Secrets are not: somebody who can write one
// of them, and sees how long the records are, could guess the others.
func (c *cachedReads) compresses(r *cachedRead) bool {
	return r.gzip && c.opts.Lane.CompressWatches && !isSecrets(r.gvr.GroupResource())
}

// serveExpired answers a watch from a resourceVersion that only a list can follow. The stream holds
// the ERROR event and nothing else, as kube-apiserver's does for a resourceVersion from before its
// cache was filled.
func (c *cachedReads) serveExpired(ctx *fasthttp.RequestCtx, r *cachedRead) {
	l := r.lane
	rv, _ := parseVersion(r.resourceVersion) // it has been parsed before
	commonHeaders(ctx)
	ctx.Response.Header.SetContentType(l.contentType(true))
	l.writeWarnings(ctx)
	event := errorFrame(l.encoding, expired(rv, l.cache.Progress())).Payload(nil)
	ctx.Response.SetBodyStream(bytes.NewReader(event), -1)
	began, refused := c.audit.watchBegan(ctx, r.audited(), string(ctx.Response.Header.Peek("Audit-Id")))
	if refused != nil {
		writeStatus(ctx, refused)
		return
	}
	c.audit.watchEnded(began, fanout.Expired, "")
}
