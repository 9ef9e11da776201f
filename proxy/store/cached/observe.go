package cached

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/fairness"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/gate/view"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/store/observe"
	"github.com/watchfan/watchfan/proxy/store/watchers"
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
	return observe.Client{
		User: user, UserAgent: agent, Slot: observe.SlotOf(user, pod, agent, from), Resource: req.GVR.GroupResource()}
}

// RuledView returns the name of the view in which a rule has the client read; "" for none.
func (c *Reads) RuledView(x *exchange.Exchange, id auth.Identity, req *request.Request) string {
	if !c.Observer.NamesViews() || req.Seed != "" {
		return ""
	}
	return c.Observer.View(client(x, id, req))
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

// moved ends a watch whose client is to come back because of a rule.
var moved = fanout.Ending{Reason: fanout.Moved, Graceful: true}

// outdated ends a watch whose view has changed: what its client holds is of another form.
func outdated(w *watchers.Watcher) fanout.Ending {
	rv := w.Lane.Cache.Progress()
	return fanout.Ending{Reason: fanout.Expired, Last: w.Lane.Expired(rv, rv+1)}
}

// ruledAway returns how an open watch ends whose client reads in another way by the rules: if they keep
// it from the caches, and it can resume elsewhere, or if they name another view. nil is not at all.
func (c *Reads) ruledAway(w *watchers.Watcher) *fanout.Ending {
	scope := w.Scope.Value()
	if scope.View != "" && !scope.Ruled || !c.Observer.Ruled() && !scope.Ruled {
		return nil
	}
	client := observe.Client{
		User: w.User.Value(), UserAgent: w.UserAgent.Value(), Slot: w.Slot, Resource: w.Lane.GVR.GroupResource()}
	switch {
	case c.Observer.View(client) != scope.View:
		return new(outdated(w))
	case w.Sub.Bookmarks() && scope.View == "" && scope.Shard == "" && c.Observer.Mode(client) != observe.Serve:
		return &moved
	}
	return nil
}

// ReplaceViews ends the watches in views that have been replaced or are gone. Those whose form is the
// same end gracefully, and their clients resume.
func (c *Reads) ReplaceViews(replaced map[*view.View]*view.View) {
	by := make(map[string][2]*view.View)
	for was, now := range replaced {
		by[was.Name()] = [2]*view.View{was, now}
	}
	open, _ := c.Watchers.Selected(func(w *watchers.Watcher) bool { return by[w.Scope.Value().View][0] != nil })
	for _, w := range open {
		end, v := outdated(w), by[w.Scope.Value().View]
		if v[1] != nil && v[0].SameFor(v[1], w.Lane.GVR.GroupResource()) {
			end = moved
		}
		w.Sub.End(end)
	}
	progress := c.Lanes.Progress()
	for _, now := range replaced {
		if now != nil {
			now.Settle(progress)
		}
	}
	c.log.Info("Replaced views", "watches", len(open))
}

// movePace is the time between the ends of two open watches when rules have changed. 2,000 a second come
// back at kube-apiserver, or here.
const movePace = time.Second / 2000

// SetRules makes rules count: at once for new reads, and for open watches at a graceful end. It returns
// when these have been asked to end.
func (c *Reads) SetRules(rules observe.Rules) {
	ends := c.Observer.SetRules(rules)
	away := make(map[*watchers.Watcher]*fanout.Ending)
	served, _ := c.Watchers.Selected(func(w *watchers.Watcher) bool {
		away[w] = c.ruledAway(w)
		return away[w] != nil
	})
	for _, w := range served {
		if e := away[w]; e.Graceful {
			ends = append(ends, func() { w.Sub.End(*e) })
		} else {
			w.Sub.End(*e)
		}
	}
	rand.Shuffle(len(ends), func(i, j int) { ends[i], ends[j] = ends[j], ends[i] })
	spread(c.ctx, len(ends), time.Duration(len(ends))*movePace, func(i int) { ends[i]() })
	c.log.Info("Applied the rules of clients", "clients", len(rules), "watches", len(ends))
}

// observed describes r to its observer.
func (c *Reads) observed(r *read) observe.Read {
	from, _ := parseVersion(r.ResourceVersion) // request.Parse has parsed it
	o := observe.Read{
		GVR: r.GVR, Resource: request.ResourceText(r.GVR),
		Watch: r.Verb == "watch", Initial: !r.Resumes(), ResourceVersion: from,
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
