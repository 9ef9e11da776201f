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
	"github.com/watchfan/watchfan/proxy/apistatus"
	"github.com/watchfan/watchfan/proxy/audit"
	"github.com/watchfan/watchfan/proxy/diagnose"
	"github.com/watchfan/watchfan/proxy/downstream"
	"github.com/watchfan/watchfan/proxy/request"
)

// serveWatch answers a watch from the lane's cache. It reports false, having done nothing, if the
// watch is to be passed through: always right, and what happens whenever something can't be had, or
// proved, in time.
func (c *cachedReads) serveWatch(ctx *fasthttp.RequestCtx, r *cachedRead) bool {
	want := c.wanted(ctx, r)
	wait, cancel := context.WithTimeout(downstream.WithArrival(c.ctx, r.arrival), c.opts.Lane.FreshnessTimeout)
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
	case errors.Is(err, fanout.ErrPreviousUnknown):
		returnSoon(ctx, r.Request)
	}
	r.lane.Log.Debug("Passed watch through", "err", err)
	return false
}

// wanted is the subscription that the watch of ctx asks for, without its start.
func (c *cachedReads) wanted(ctx *fasthttp.RequestCtx, r *cachedRead) fanout.Request {
	want := fanout.Request{
		Filter:    r.filter,
		Bookmarks: r.AllowWatchBookmarks,
		Timeout:   c.watchTimeout(r.Request),
		Gzip:      c.compresses(r),
	}
	if d, ok := c.conns.Remaining(ctx.Conn()); ok && d < want.Timeout {
		want.Timeout, want.Aging = d, true
	}
	return want
}

// streamWatch takes over the connection of ctx and writes there what sub brings.
func (c *cachedReads) streamWatch(ctx *fasthttp.RequestCtx, r *cachedRead, sub *fanout.Subscription, gzip bool) {
	l := r.lane
	scope := diagnose.WatchScope{Namespace: r.namespace, Name: r.Name, Labels: r.RawLabels, Fields: r.RawFields}
	w := diagnose.NewWatcher(ctx, l, sub, r.id.ShownName(), scope, gzip)
	s := &servedWatch{cached: c, watcher: w, last: ctx.Request.Header.ConnectionClose()}
	id := apistatus.AuditID(ctx)
	head := watchHead(id, l.ContentType(true), l.ResponseWarnings(), gzip, s.last)
	event, refused := c.audit.WatchBegan(ctx, r.audited(), id)
	if refused != nil {
		sub.Cancel()
		c.lanes.Release(l)
		apistatus.Write(ctx, refused)
		return
	}
	s.event = event
	c.conns.Hijack(ctx, func(h *downstream.Hijacked) {
		s.conn = h
		s.start(r, head)
	})
}

// servedWatch is a watch on a connection that is ours until the watch ends. The flusher writes its
// events. It has no goroutine.
type servedWatch struct {
	cached  *cachedReads
	conn    *downstream.Hijacked
	watcher *diagnose.Watcher
	event   *audit.Event            // of its start; nil without an audit log
	last    bool                    // the connection carries no request after this one
	release func() (because string) // ends the review of what the client may do; see authorizer.watchGrant
	evicted *diagnose.Evidence      // why it was evicted, if it was
}

// start writes the head and has the flusher write the rest. It does not wait for the watch to end.
func (s *servedWatch) start(r *cachedRead, head []byte) {
	c, sub := s.cached, s.watcher.Sub
	began := false
	defer func() {
		if !began { // the client is gone, or this panics
			sub.Cancel()
			s.finish(fanout.Gone, "", false)
		}
	}()
	gone := func() { sub.End(fanout.Ending{Reason: fanout.Gone}) }
	events := downstream.SinkEvents{Gone: gone, Drop: s.conn.Close, Evict: s.evict, Ended: s.end}
	sink := downstream.NewSink(s.conn.Conn(), c.poller, s.watcher.Lane.Log, events)
	if sink.Begin(head, func() { s.conn.WaitRead(gone) }) != nil {
		return
	}
	s.release = c.auth.WatchGrant(r.id, r.Request, func() { sub.End(fanout.Ending{Reason: fanout.Revoked}) })
	c.watchers.Add(s.watcher)
	began = true
	c.flusher.Start(sub, sink)
}

// evict notes why the watch is being evicted, while that can still be seen.
func (s *servedWatch) evict(st fanout.State) { s.evicted = s.watcher.Evidence(st, false) }

// end follows the watch's last write.
func (s *servedWatch) end(reason fanout.Reason, complete bool) {
	s.cached.watchers.Remove(s.watcher)
	because := s.release()
	if reason == fanout.Evicted && s.evicted != nil {
		s.watcher.LogEvicted(s.evicted, s.cached.log)
	}
	s.finish(reason, because, complete)
}

// finish gives up what the watch has used. because is why it was revoked, if it was; complete says
// whether the response is.
func (s *servedWatch) finish(reason fanout.Reason, because string, complete bool) {
	s.cached.lanes.Release(s.watcher.Lane)
	s.cached.audit.WatchEnded(s.event, reason, because)
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
func returnSoon(ctx *fasthttp.RequestCtx, req *request.Request) {
	seconds := 30 + rand.N(30)
	if t := req.TimeoutSeconds; t != nil && *t != 0 && *t <= int64(seconds) {
		return
	}
	path, params, _ := strings.Cut(string(ctx.Request.Header.RequestURI()), "?")
	ctx.Request.Header.SetRequestURI(path + "?timeoutSeconds=" + strconv.Itoa(seconds) + "&" + params)
}

// compresses reports whether the watch is sent as gzip. Secrets are not: somebody who can write one
// of them, and sees how long the records are, could guess the others.
func (c *cachedReads) compresses(r *cachedRead) bool {
	return r.Gzip && c.opts.Lane.CompressWatches && !isSecrets(r.GVR.GroupResource())
}

// serveExpired answers a watch from a resourceVersion that only a list can follow. The stream holds
// the ERROR event and nothing else, as kube-apiserver's does for a resourceVersion from before its
// cache was filled.
func (c *cachedReads) serveExpired(ctx *fasthttp.RequestCtx, r *cachedRead) {
	l := r.lane
	rv, _ := parseVersion(r.ResourceVersion) // it has been parsed before
	apistatus.CommonHeaders(ctx)
	ctx.Response.Header.SetContentType(l.ContentType(true))
	l.WriteWarnings(ctx)
	event := apistatus.ErrorFrame(l.Encoding, apistatus.Expired(rv, l.Cache.Progress())).Payload(nil)
	ctx.Response.SetBodyStream(bytes.NewReader(event), -1)
	began, refused := c.audit.WatchBegan(ctx, r.audited(), string(ctx.Response.Header.Peek("Audit-Id")))
	if refused != nil {
		apistatus.Write(ctx, refused)
		return
	}
	c.audit.WatchEnded(began, fanout.Expired, "")
}
