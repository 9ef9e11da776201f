package cached

import (
	"context"
	"strings"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/fairness"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/store/observe"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// clientOf returns what rules know of the client of r, which is found out once. A pod's token is one
// client, and so are all requests with the same user and user agent. A user whose name is not known is
// told apart by address.
func clientOf(x *exchange.Exchange, r *read) observe.Client {
	if r.client == nil {
		r.client = new(client(x, r.id, r.Request))
	}
	return *r.client
}

func client(x *exchange.Exchange, id auth.Identity, req *request.Request) observe.Client {
	user, pod := id.Names()
	agent, from := x.Header.Get("User-Agent"), ""
	if strings.HasPrefix(user, "(") {
		from = x.RemoteIP().String()
	}
	n := observe.IDOf(user, pod, agent, from)
	known := observe.Client{ // as watchers.Watcher has it
		User: request.Shown(user), UserAgent: request.Shown(agent), ID: n, Slot: observe.SlotOf(n), Resource: req.GVR.GroupResource()}
	if !req.Ruled {
		known.In = req.View.Name()
	}
	return known
}

// ruledOut returns why a rule keeps r from the caches, "" for no reason. Such a read passes through
// without a review, and is followed. Reads in views and of shards are always answered here:
// kube-apiserver would send whole objects, or all of them.
func (c *Reads) ruledOut(x *exchange.Exchange, r *read) request.Reason {
	if !c.Observer.Ruled() || r.View != nil || r.Sharded() {
		return ""
	}
	client := clientOf(x, r)
	mode := c.Observer.Mode(client)
	if mode == observe.Serve {
		return ""
	}
	x.Follower = c.Observer.Follow(client, mode, c.observed(r))
	if mode == observe.Observe {
		return request.Observed
	}
	return request.Off
}

// observed describes r to its observer.
func (c *Reads) observed(r *read) observe.Read {
	o := observe.Read{
		GVR: r.GVR, Resource: request.ResourceText(r.GVR), Scope: r.scopeText(),
		Watch: r.Verb == "watch", Initial: !r.Resumes(), ResourceVersion: r.version(),
		Open: func(ctx context.Context, contentType string) (observe.Side, string) {
			beside := &read{Request: r.Request, reads: c, id: r.id, arrived: time.Now(), conn: noConn{}}
			return c.openBeside(ctx, beside, contentType)
		},
	}
	now := r.SendInitialEvents != nil && !*r.SendInitialEvents
	switch {
	case r.Verb == "get":
		o.Unlike = observe.Get
	case r.AsTable():
		o.Unlike = observe.Form
	case r.WebSocket:
		o.Unlike = observe.Socket
	case o.Watch && o.Initial && (now || !r.AllowWatchBookmarks):
		o.Unlike = observe.Start
	}
	return o
}

// noConn is the connection of a read that nobody waits for.
type noConn struct{ exchange.Conn }

func (noConn) Arriving() bool { return false }

// beside answers a read that kube-apiserver answers too. It implements observe.Side. What it does for
// all observations is one user's work.
type beside struct {
	*read
	keeper *lane.Keeper
}

// openBeside returns the answer beside kube-apiserver's, whose media type is contentType. The lane is
// started for it. kube-apiserver has allowed the read by its answer.
func (c *Reads) openBeside(ctx context.Context, r *read, contentType string) (_ observe.Side, why string) {
	o := c.resolve(ctx, r)
	if o.Open() && r.variant.Trim != nil {
		return nil, observe.Lean
	}
	if o.Open() {
		o = r.acquire(true)
	}
	if why := o.Why(); why != "" {
		return nil, string(why)
	}
	b := &beside{read: r, keeper: c.Lanes.Keep(r.lane, r.Source())}
	select {
	case <-r.lane.Filled():
	case <-ctx.Done():
		b.Close()
		return nil, string(request.LaneFilling)
	}
	if r.lane.ContentType(r.Verb == "watch") != contentType {
		b.Close()
		return nil, observe.Form
	}
	return b, ""
}

func (b *beside) Encoding() framing.Encoding { return b.form.Encoding }

func (b *beside) Cache() *fanout.Cache { return b.lane.Cache }

func (b *beside) Wanted() fanout.Request {
	return fanout.Request{Filter: b.filter, Variant: b.variant, Beside: true}
}

func (b *beside) Start(sub *fanout.Subscription, sink fanout.Sink) { b.reads.Flusher.Start(sub, sink) }

func (b *beside) Close() { b.reads.Lanes.Leave(b.keeper) }

// at returns the read of the state as of rv, and the state, or why there is none.
func (b *beside) at(rv uint64) (r *read, s fanout.Snapshot, why string) {
	at := *b.read
	r, at.Request, at.waited = &at, b.Request.At(rv), true
	r.seat = b.reads.Fairness.Seat(fairness.User("(observer)"), fairness.MaxSeatWait, nil, nil)
	s, o := b.reads.state(r)
	if o.Open() && !r.seat.Begin() {
		o = request.Refuse(r.seat.Refused)
	}
	switch {
	case o.Refusal() != nil:
		return r, s, string(request.Freshness)
	case s.ResourceVersion != rv && o.Open():
		o = request.PassThrough(request.History)
	}
	return r, s, string(o.Why())
}

func (b *beside) List(rv uint64) (body [][]byte, why string) {
	r, snapshot, why := b.at(rv)
	defer r.seat.Give()
	if why != "" {
		return nil, why
	}
	items, extent := r.items(snapshot, b.listKey()) // as the client has asked: a page of any state
	head, tail := r.envelope(snapshot, extent)
	return append(append([][]byte{head}, items...), tail), ""
}

func (b *beside) State(rv uint64, f func(*framing.Object)) (why string) {
	r, snapshot, why := b.at(rv)
	defer r.seat.Give()
	if why != "" {
		return why
	}
	snapshot.Visit(b.filter, "", func(o *framing.Object, selected bool) bool {
		if selected {
			f(o)
		}
		r.seat.Pause()
		return true
	})
	return ""
}
