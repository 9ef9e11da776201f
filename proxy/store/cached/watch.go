package cached

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/audit"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/store/watchers"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
	"github.com/watchfan/watchfan/proxy/wire/websocket"
)

// serveWatch answers a watch from the lane's cache. It passes a watch through, or lets it begin anew,
// whenever its start can't be provided, or proved to be fresh, in time. That is always right.
func (c *Reads) serveWatch(x *exchange.Exchange, r *read) request.Outcome {
	if r.WebSocket && !websocket.Handshake(x) {
		// As in kube-apiserver, the watch could have begun, and the audit log says that it did.
		return c.endedAtOnce(x, r, apistatus.AuditID(x), fanout.Gone)
	}
	if c.outdated(x, r) {
		return c.serveExpired(x, r)
	}
	if r.waited {
		r.resume()
	}
	s := &servedWatch{cached: c, read: r}
	want := c.wanted(r)
	want.Into = &s.watcher.Sub
	wait, cancel := context.WithTimeout(exchange.WithArrival(c.ctx, r.conn), c.proofWait(r))
	defer cancel()
	from := r.lane.Cache.Progress()
	_, err := c.subscribe(wait, r, want)
	switch {
	case err == nil && !r.Resumes() && !c.mayList(x, r, from):
		s.watcher.Sub.Cancel()
		x.Response.Reset()
		return request.Refuse(apistatus.ServiceUnavailable(justChanged))
	case err == nil:
		r.kept = true
		s.stream(x, want.Gzip)
		return request.Answered()
	case errors.Is(err, fanout.ErrOutdated), errors.Is(err, fanout.ErrRelistGap):
		return c.serveExpired(x, r)
	case !errors.Is(err, fanout.ErrCostly) && !r.lane.Collection.Uncached():
		returnSoon(x, r)
	}
	r.lane.Log.Debug("Passed watch through", "err", err)
	x.Response.Reset()
	return request.PassThrough(whyUnsubscribed(err))
}

// whyUnsubscribed returns why a watch is passed through whose subscription failed with err.
func whyUnsubscribed(err error) request.Reason {
	switch {
	case errors.Is(err, fanout.ErrCostly):
		return request.Selector
	case errors.Is(err, fanout.ErrClosed):
		return request.NoLane
	case errors.Is(err, fanout.ErrNotFresh), errors.Is(err, errUnproven), errors.Is(err, context.DeadlineExceeded):
		return request.Freshness
	}
	return request.History
}

// endedAtOnce records a watch in the audit log that has ended when it has begun.
func (c *Reads) endedAtOnce(x *exchange.Exchange, r *read, auditID string, reason fanout.Reason) request.Outcome {
	if began, ok := c.began(x, r, auditID); ok {
		c.Audit.WatchEnded(began, reason, "")
	}
	return request.Answered()
}

// began records the beginning of a watch in the audit log. If it cannot be recorded and must be, ok
// is false and x is answered.
func (c *Reads) began(x *exchange.Exchange, r *read, auditID string) (began *audit.Event, ok bool) {
	code := http.StatusOK
	if r.WebSocket {
		code = http.StatusSwitchingProtocols
	}
	began, refused := c.Audit.WatchBegan(x, r.audited(), auditID, code)
	if refused != nil {
		apistatus.Write(x, refused)
	}
	return began, refused == nil
}

// wanted returns the subscription that the watch asks for, without its start.
func (c *Reads) wanted(r *read) fanout.Request {
	want := fanout.Request{
		Filter:    r.filter,
		Bookmarks: r.AllowWatchBookmarks,
		Timeout:   c.watchTimeout(r.Request),
		Gzip:      c.compresses(r),
		Variant:   r.variant,
	}
	if r.waited { // kube-apiserver counts from the request on too
		want.Timeout = max(want.Timeout-time.Since(r.arrived), time.Millisecond)
	}
	if d, ok := r.conn.Remaining(); ok && d < want.Timeout {
		want.Timeout, want.Aging = d, true
	}
	return want
}

// stream makes the events of s the response of x. The head is like kube-apiserver's
// (k8s.io/apiserver/pkg/endpoints/handlers/watch.go, HandleHTTP).
func (s *servedWatch) stream(x *exchange.Exchange, gzip bool) {
	c, r := s.cached, s.read
	scope := watchers.Scope{
		Namespace: r.namespace, Name: r.Name, Labels: r.RawLabels, Fields: r.RawFields, Shard: r.Shard.Text,
		View: r.View.Name(), Ruled: r.Ruled, Seed: r.Seed != ""}
	client := clientOf(x, r)
	s.watcher.Describe(x, r.lane, client.User, scope, r.WebSocket)
	s.watcher.Gzip, s.watcher.Slot = gzip, client.Slot
	id := c.addWatchHeader(x, r, gzip)
	event, ok := c.began(x, r, id)
	if !ok {
		s.watcher.Sub.Cancel()
		c.Lanes.Release(r.lane)
		return
	}
	s.event, s.keeper = event, c.Lanes.Keep(r.lane, r.Source())
	x.Response.Stream = s
	if r.WebSocket {
		form := r.messages()
		x.Response.Messages = &form
	}
	if gzip {
		x.Response.First = framing.GzipStart
	}
}

// messages returns the form of the watch's events on a WebSocket.
func (r *read) messages() exchange.Messages {
	return exchange.Messages{Binary: r.form.Encoding != framing.JSON, Prefix: r.form.Encoding.LengthPrefix()}
}

// addWatchHeader adds the headers of a watch's response, and returns the Audit-Id. The response to a
// handshake has no more headers than it needs.
func (c *Reads) addWatchHeader(x *exchange.Exchange, r *read, gzip bool) (auditID string) {
	if r.WebSocket {
		return apistatus.AuditID(x)
	}
	auditID = apistatus.AddCommonHeader(x)
	if gzip {
		x.Response.Header.Add("Content-Encoding", "gzip")
	}
	x.Response.Header.Add("Content-Type", r.lane.ContentType(true))
	c.addWarnings(x, r, r.lane.Collection.Warnings())
	if gzip {
		x.Response.Header.Add("Vary", "Accept-Encoding")
	}
	r.addState(&x.Response.Header)
	return auditID
}

// servedWatch is a watch whose events the flusher writes. It implements [exchange.Stream], and has
// no goroutine. It holds in one piece of memory what fanout, auth and watchers keep of a watch
// (TestIdleMemory in package proxy).
type servedWatch struct {
	cached  *Reads
	watcher watchers.Watcher
	grant   auth.OpenWatch     // once the watch has begun
	event   *audit.Event       // the audit event of the start; nil without an audit log
	read    *read              // nil once the watch has begun
	keeper  *lane.Keeper       // of the lane
	account *account.Entry     // what the watch keeps because its client does not read, and of a long head; nil for nothing yet
	evicted *watchers.Evidence // why the watch was evicted; nil if it was not
}

// Begin implements exchange.Stream.
func (s *servedWatch) Begin(sink fanout.Sink) {
	c, r := s.cached, s.read
	c.Authorizer.WatchGrant(&s.grant, r.id, r.Request, r.decision, s)
	s.read = nil
	if s.event.LongHead() > 0 && !s.Keep(0) {
		s.watcher.Sub.End(evicted)
	}
	c.Watchers.Add(&s.watcher) // first: a change of views behind it finds the watch
	if r.View.Outdated() {     // since it was asked for
		s.watcher.Sub.End(r.lane.Expired(fanout.Expired))
	} else if e := c.ruledAway(&s.watcher); e != nil {
		s.watcher.Sub.End(*e)
	} else if c.Lanes.Draining() { // since Drain looked
		s.watcher.Sub.End(shutDown)
	}
	c.Flusher.Start(&s.watcher.Sub, sink)
}

// Revoke implements auth.Revocable.
func (s *servedWatch) Revoke() { s.watcher.Sub.End(fanout.Ending{Reason: fanout.Revoked}) }

// Gone implements exchange.Stream.
func (s *servedWatch) Gone() { s.watcher.Sub.End(fanout.Ending{Reason: fanout.Gone}) }

// Keep implements exchange.Stream. What the watch keeps counts for its user.
func (s *servedWatch) Keep(bytes int64) bool {
	if s.account == nil {
		evict := func() { s.watcher.Sub.End(evicted) }
		s.account = s.cached.Ledger.Open(s.cached.Authorizer.WatchSource(&s.grant), account.Watches, evict)
	}
	return s.account.Set(bytes + s.event.LongHead())
}

// evicted ends a watch that keeps too much.
var evicted = fanout.Ending{Reason: fanout.Evicted}

// Evict notes why the watch is being evicted, while its state is still there.
func (s *servedWatch) Evict(st fanout.State) {
	s.evicted = s.watcher.Evidence(st, lane.HealthOf(s.watcher.Lane, false))
}

// End releases the resources of the watch.
func (s *servedWatch) End(reason fanout.Reason, _ bool) {
	c, because := s.cached, ""
	if s.read != nil { // it has not begun
		s.watcher.Sub.Cancel()
	} else {
		c.Watchers.Remove(&s.watcher)
		because = c.Authorizer.Release(&s.grant)
	}
	if s.account != nil {
		s.account.Close()
	}
	c.Consumers.WatchEnded(s.watcher.Consumer(), s.watcher.Delivered(), s.watcher.Shared())
	if reason == fanout.Evicted && s.evicted != nil {
		s.watcher.LogEvicted(s.evicted, c.Metrics.watchers, c.log)
	}
	c.Lanes.Leave(s.keeper)
	c.Audit.WatchEnded(s.event, reason, because)
}

// returnSoon limits a watch that is passed through to less than a minute, if its client resumes. The
// watch is too old for the cache, and its client returns with a newer resourceVersion.
// kube-apiserver takes the first of two timeoutSeconds parameters.
func returnSoon(x *exchange.Exchange, r *read) {
	if !r.returns() {
		return
	}
	seconds := 30 + rand.N(30)
	if t := r.TimeoutSeconds; t != nil && *t != 0 && *t <= int64(seconds) {
		return
	}
	path, params, _ := strings.Cut(x.Target, "?")
	x.Asked = x.URI()
	x.Target = path + "?timeoutSeconds=" + strconv.Itoa(seconds) + "&" + params
}

// compresses reports whether the watch is sent as gzip. WebSockets are not compressed, as in
// kube-apiserver. Watches of Secrets are not compressed. An attacker that can write one Secret, and
// sees the length of the records, could guess the others. Watches of one object are not compressed.
// A kubelet has hundreds of them, each has little to say, and a client keeps 17 KiB for each stream
// that it decompresses.
func (c *Reads) compresses(r *read) bool {
	return r.Gzip && !r.WebSocket && c.Lane.CompressWatches && r.ObjectName() == "" &&
		!isSecrets(r.GVR.GroupResource())
}

// serveExpired answers a watch from a resourceVersion that a relist skipped, or that its view has left behind. The
// stream holds the ERROR event and nothing else, as kube-apiserver's does for a resourceVersion from before its
// cache was filled.
func (c *Reads) serveExpired(x *exchange.Exchange, r *read) request.Outcome {
	l := r.lane
	id := c.addWatchHeader(x, r, false)
	event := apistatus.ErrorFrame(l.Encoding, apistatus.Expired(r.version(), l.Cache.Progress())).Payload(nil)
	if r.WebSocket {
		x.Response.Body = exchange.BodySlices{websocket.Message(r.messages(), event), []byte(websocket.CloseNormal)}
	} else {
		x.Response.Reader, x.Response.Length = io.NopCloser(bytes.NewReader(event)), -1
	}
	return c.endedAtOnce(x, r, id, fanout.Expired)
}
