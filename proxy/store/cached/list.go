package cached

import (
	"slices"
	"strings"
	"unsafe"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const (
	// gzipThreshold is the body size above which kube-apiserver compresses for clients that accept
	// it (k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/writers.go).
	gzipThreshold = 128 << 10
	// gzipLevel is higher than kube-apiserver's, which is 1. With 2 a list of pods is a third
	// shorter. The compression takes a little longer, and is done once for many clients.
	gzipLevel = 2
)

// serveGet answers a get.
func (c *Reads) serveGet(x *exchange.Exchange, r *read) request.Outcome {
	snapshot, o := c.state(r)
	if !o.Open() {
		return o
	}
	key := r.Name
	if r.namespace != "" {
		key = r.namespace + "/" + key
	}
	object, ok := snapshot.Get(key)
	if !ok || !r.filter.Match(object) {
		if first := r.Accepts[0]; !r.selects() && first.Representation != (request.Representation{}) || first.Pretty {
			return request.PassThrough(request.Form) // the Status's form is negotiated separately from the object's
		}
		apistatus.Write(x, apistatus.NotFound(r.GVR, r.Name))
		c.addWarnings(x, r, r.lane.Collection.Warnings())
		return request.Answered()
	}
	body := exchange.BodySlices{object.Bytes()}
	if t := r.variant.Trim; t != nil {
		body = object.AppendTrimmed(nil, t)
	}
	if r.lane.Encoding == framing.JSON {
		body = append(body, []byte("\n"))
	}
	if r.Gzip && body.Size() > gzipThreshold {
		if !r.seat.Begin() {
			return request.Refuse(r.seat.Refused)
		}
		return c.writeCompressed(x, r, compressed(c.Ledger, r.Source(), r.seat, extent{}, body), nil, nil)
	}
	return c.writeBody(x, r, body)
}

// serveList answers a list.
func (c *Reads) serveList(x *exchange.Exchange, r *read) request.Outcome {
	if c.outdated(x, r) {
		return gone(beforeChange)
	}
	snapshot, o := c.state(r)
	if !o.Open() {
		return o
	}
	if !r.seat.Begin() {
		return request.Refuse(r.seat.Refused)
	}
	if !c.mayList(x, r, snapshot.ResourceVersion) {
		return request.Refuse(apistatus.ServiceUnavailable(justChanged))
	}
	key := r.listKey()
	if r.Gzip {
		if l := c.compressed.get(r.seat, key, snapshot.Identity()); l != nil {
			head, tail := r.envelope(snapshot, l.extent)
			return c.writeCompressed(x, r, l, head, tail)
		}
	}
	items, extent := r.items(snapshot, key)
	head, tail := r.envelope(snapshot, extent)
	if r.Gzip && len(head)+extent.bytes+len(tail) > gzipThreshold {
		l := c.compressed.add(r.Source(), r.seat, key, snapshot.Identity(), extent, items)
		return c.writeCompressed(x, r, l, head, tail)
	}
	return c.writeBody(x, r, slices.Concat(exchange.BodySlices{head}, items, exchange.BodySlices{tail}))
}

// listKey identifies the items that the list asks for.
func (r *read) listKey() listKey {
	key := listKey{lane: r.lane.Key, trim: r.variant.Trim, filter: r.filter.Key(), limit: r.Limit}
	if r.ResourceVersion == "0" && !r.lane.Collection.Uncached() || r.wantsOne() {
		key.limit = 0 // kube-apiserver ignores the limit too: in its cache, and when it reads one key
	}
	key.counts = key.limit > 0 && r.unselective() // of two lists with equal filters, one may have a selector
	if r.ContinueToken != "" {
		key.after = r.NamespacePrefix() + r.Page.After
	}
	return key
}

// An answer from a cache shares the objects with it. But a client that does not read also keeps
// memory that is its answer's alone: the slices of a long list, the records that TLS has sealed, and
// bytes that were compressed for it and others. That counts for its source (package account) until
// the answer has been written. Small answers do not count. Versions of objects that change meanwhile
// do not either: all answers keep them together, for a minute at most.

// leastHeld is how many bytes an answer keeps at least that counts.
const leastHeld = 64 << 10

// holdAnswer counts what a body keeps. The client may not hold it unless o is open.
func (c *Reads) holdAnswer(x *exchange.Exchange, r *read, body exchange.BodySlices) (o request.Outcome) {
	bytes := int64(len(body)) * int64(unsafe.Sizeof(body[0]))
	if x.Conn.Secure() {
		sealed := int64(min(body.Size(), downstream.SealedAtOnce))
		if x.Protocol < exchange.HTTP20 {
			sealed *= 2 // they are joined first
		}
		bytes += sealed
	}
	if bytes < leastHeld {
		return o
	}
	return c.share(x, r, c.Ledger.Share(account.Answers, bytes))
}

// share makes r's client hold something until the answer has been written. The client may not hold
// it unless o is open.
func (c *Reads) share(x *exchange.Exchange, r *read, held *account.Shared) (o request.Outcome) {
	letGo, ok := held.Hold(r.Source(), x.Conn.Break)
	if !ok {
		return c.tooMuch()
	}
	before := x.Until
	x.Until = lane.Slot(func() {
		letGo()
		if before != nil {
			_ = before.Close()
		}
	})
	return o
}

// tooMuch refuses a read whose client holds too much.
func (c *Reads) tooMuch() request.Outcome {
	c.Metrics.held.Inc()
	return request.Refuse(apistatus.TooManyRequests("too many responses to this client wait to be read"))
}

// writeBody makes b the response, if the client may hold it.
func (c *Reads) writeBody(x *exchange.Exchange, r *read, b exchange.BodySlices) request.Outcome {
	if o := c.holdAnswer(x, r, b); !o.Open() {
		return o
	}
	apistatus.AddCommonHeader(x)
	x.Response.Header.Add("Content-Type", r.lane.ContentType(false))
	c.addWarnings(x, r, r.lane.Collection.Warnings())
	r.addState(&x.Response.Header)
	x.Response.Body, x.Response.Turn = b, r.seat
	if a := r.variant.Account; a != nil {
		a.Bytes.Add(b.Size())
	}
	return request.Answered()
}

// writeCompressed makes the items of l, between head and tail, the response, as one gzip stream, if the
// client may hold it. l is nil if it could not even be made for that reason.
func (c *Reads) writeCompressed(x *exchange.Exchange, r *read, l *compressedList, head, tail []byte) request.Outcome {
	if l == nil {
		return c.tooMuch()
	}
	if o := c.share(x, r, l.held); !o.Open() {
		return o
	}
	x.Response.Header.Add("Content-Encoding", "gzip")
	x.Response.Header.Add("Vary", "Accept-Encoding")
	return c.writeBody(x, r, framing.GzipMember(framing.Stored(head), l.items, framing.Stored(tail)))
}

// extent describes the items of a list.
type extent struct {
	items int
	bytes int
	last  string // the last item's key, if the limit leaves keys behind it
	more  int64  // number of keys behind last, matching or not, as kube-apiserver counts; with selectors at most 1
}

// visitsBetween is the number of objects between two checks of the time. A visit takes some 50 ns.
const visitsBetween = 256

// items collects a list's items, in their serialized form, in the read's seat.
func (r *read) items(snapshot fanout.Snapshot, key listKey) (items exchange.BodySlices, x extent) {
	form := r.lane.Collection.Form()
	last := ""
	visited := 0
	pause := func() {
		if visited++; visited%visitsBetween == 0 {
			r.seat.Pause()
		}
	}
	snapshot.Visit(r.filter, key.after, func(o *framing.Object, selected bool) bool {
		if pause(); !selected {
			return true
		}
		before := len(items)
		items = form.AppendItem(items, r.variant.Trim, o, x.items == 0)
		x.bytes += items[before:].Size()
		last = o.Key
		x.items++
		return int64(x.items) != key.limit
	})
	if key.trim != framing.Lean {
		r.lane.Cache.WholeRead(x.items)
	}
	if x.items > 0 && int64(x.items) == key.limit {
		if x.more = r.behind(snapshot, key, last, pause); x.more > 0 {
			x.last = last
		}
	}
	return items, x
}

// behind returns the number of keys behind a page that ends with last, as kube-apiserver counts them
// (k8s.io/apiserver/pkg/storage/continue.go, PrepareContinueToken): with selectors at most 1, and
// without them all keys from the page's start on, less the limit. It returns 0 if none follows the last.
func (r *read) behind(snapshot fanout.Snapshot, key listKey, last string, pause func()) (more int64) {
	start := last
	if r.unselective() {
		start, more = key.after, -key.limit
	}
	follows := false
	snapshot.Ascend(r.filter.Scope(), start, func(o *framing.Object) bool {
		pause()
		more++
		follows = o.Key > last
		return r.unselective()
	})
	if !follows {
		return 0
	}
	return more
}

// unselective reports whether the list has no selectors, and is no shard. Only then its continue token
// comes with the number of remaining items. (Kube-apiserver 1.36 counted them for shards too.)
func (r *read) unselective() bool {
	return r.Labels.Empty() && r.Fields.Empty() && !r.Sharded() && !r.filter.Selects()
}

// envelope returns the bytes before and behind the items of a list.
func (r *read) envelope(snapshot fanout.Snapshot, x extent) (head, tail []byte) {
	meta := framing.ListMeta{ResourceVersion: snapshot.ResourceVersion, ShardSelector: r.Shard.Text}
	if x.more > 0 {
		meta.Continue = request.Page{ResourceVersion: snapshot.ResourceVersion, After: strings.TrimPrefix(x.last, r.NamespacePrefix())}.String()
		if r.unselective() {
			meta.RemainingItemCount = x.more
		}
	}
	return r.lane.Collection.Form().Envelope(meta, x.items, x.bytes)
}

// addWarnings adds the Warning headers of the answer to r: those that concern the client, which
// nobody else is sent, and then those that concern the resource, as kube-apiserver orders them.
func (c *Reads) addWarnings(x *exchange.Exchange, r *read, resource []string) {
	h := &x.Response.Header
	if r.id.Warning != "" {
		h.Add("Warning", r.id.Warning)
	}
	client := r.decision.Warnings()
	if r.id.Kind == auth.KindOwn {
		client = c.Upstream.OwnWarnings()
	}
	for _, w := range slices.Concat(client, resource) {
		h.Add("Warning", w)
	}
}
