package cached

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/fairness"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/store/observe"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// passing counts the reads of each resource that pass through, and remembers which are easy. Easy gets
// are counted before the review. So the counts live outside the lanes, and those of gets depend on no
// cached data. Its methods may be called from any goroutine.
type passing struct {
	ctx      context.Context // ends all waits
	mostEasy int
	refused  *metrics.Counter // reads that have got no turn

	mu    sync.Mutex
	easy  map[easyKind]*easyReads
	turns map[schema.GroupVersionResource]*turns // of resources with reads that have waited in vain
}

func newPassing(ctx context.Context, mostEasy int, refused *metrics.Counter) *passing {
	return &passing{ctx: ctx, mostEasy: mostEasy, refused: refused,
		easy: make(map[easyKind]*easyReads), turns: make(map[schema.GroupVersionResource]*turns)}
}

// pass decides when a read passes through that no cache answers, for a reason. A read that is answered
// later waits for its turn here.
//
//	when   which reads                                             how many of a resource
//	now    easy: a get, or a page of a list that takes long to     passing.mostEasy at a time; and gets beyond
//	       prove                                                   those while other resources are written
//	       of a resource that has no lane, gets only               no bound, for lanelessFor
//	       of a lane that is being filled                          few; see filling in package lane
//	       that a cache can't answer                               no bound
//	later  that have waited in vain, and lists and watches of a    lane.MostThrough at a time, in turns
//	       resource that is mistrusted
//	never  with a shardSelector that kube-apiserver would ignore,  see shards.go
//	       in a view that has a part of the objects
//	       from before the client's view changed
func (c *Reads) pass(x *exchange.Exchange, r *read, why request.Reason) request.Outcome {
	switch {
	case c.outdated(x, r):
		return gone(beforeChange)
	case c.withholds(r, why):
		return c.withhold(x, r, why)
	case r.inVain(why):
		if o := c.passing.awaitTurn(x, r, c.patience(r)-time.Since(r.arrived)); !o.Open() {
			return o
		}
	}
	if x.Follower == nil && (r.View == nil || r.Ruled) && c.concernsViews(x, r) {
		read := observe.Read{GVR: r.GVR, Watch: r.Verb == "watch", View: r.View, Scope: r.scopeText(), Initial: !r.Resumes()}
		x.Follower = c.Observer.Follow(clientOf(x, r), observe.Serve, read)
	}
	return request.PassThrough(why)
}

// concernsViews reports whether it may matter for the views of the client of r, which passes through, what r tells
// it. An open watch may see the first rule that names a view.
func (c *Reads) concernsViews(x *exchange.Exchange, r *read) bool {
	return r.Verb == "watch" ||
		r.Verb == "list" && c.Observer.Changed() && c.Observer.Owes(clientOf(x, r), r.View, r.scopeText())
}

// maxNames is the maximum length of the names of a group, a version and a resource together, in
// bytes. Each is a DNS name, or a part of one.
const maxNames = 3 * 253

// neverCached returns why the read is never answered from a cache, "" if it may be. A client with the
// proxy's own rights never reads Secrets from a cache. Its reads need no review, and kube-apiserver
// must authorize and audit each read of Secrets.
func (c *Reads) neverCached(r *read) request.Reason {
	switch {
	case len(r.GVR.Group)+len(r.GVR.Version)+len(r.GVR.Resource) > maxNames:
		return request.Resource // no such resource exists; its name is not remembered
	case c.Options.excluded(r.GVR), r.id.Kind == auth.KindOwn && isSecrets(r.GVR.GroupResource()):
		return request.Excluded
	}
	return r.Unserved()
}

// passesUnasked reports whether r is passed through without a review. Such a read costs
// kube-apiserver one request and not two. The decision looks at no cache and no lane.
func (c *Reads) passesUnasked(x *exchange.Exchange, r *read) bool {
	switch {
	case r.indented(r.Accepts[0]) && !r.selects():
		return true
	case r.listsTables():
		return c.shared.First(tablesQuestion(x, r))
	case !r.current(), r.Sharded(), r.View != nil: // whose objects might be whole
		return false
	case r.Verb == "get" && c.passing.through(r.GVR):
		return r.eager()
	}
	return r.Verb == "get" && r.passEasily()
}

// passesEasily reports whether an allowed client's page is passed through because kube-apiserver answers
// it before it proves that the cache is current. Gets are decided earlier; see passesUnasked.
func (r *read) passesEasily() bool {
	return r.Verb == "list" && r.Limit > 0 && !r.Sharded() && r.View == nil && r.current() && r.lane.Synced() &&
		!r.filledSince() && r.lane.Freshness.Slow() && r.wantsLittle() && r.passEasily()
}

// passEasily reports whether r may be passed through as one of a few easy reads. r counts until
// release.
func (r *read) passEasily() bool {
	r.easy = r.eager() && r.reads.passing.takeEasy(r.easyKind(), r.arrived)
	return r.easy
}

// eager reports whether r may ask kube-apiserver at once: it passes through although a cache can answer it, or
// has a proof made. If not, a cache answers, and a get begins one.
func (r *read) eager() bool {
	if !r.judged {
		r.judged, r.patient = true, !r.first && !r.consumer.Eager()
	}
	return !r.patient
}

func (r *read) easyKind() easyKind { return easyKind{r.GVR, r.Verb} }

// current reports whether r is a get or list of a state at least as new as the request.
func (r *read) current() bool {
	return r.Verb != "watch" && r.ResourceVersion == "" && r.ContinueToken == ""
}

// indented reports whether the answer in this form is indented JSON.
func (r *read) indented(form request.Clause) bool {
	return r.Verb != "watch" && form.Encoding == framing.JSON && (r.Pretty || form.Pretty)
}

// easyKind is a resource and a verb, get or list.
type easyKind struct {
	schema.GroupVersionResource
	verb string
}

// easyReads is what is known of the easy reads of a resource with a verb.
type easyReads struct {
	passing int       // now
	crowded time.Time // when there last were too many
	// through is the end of the time in which gets are passed through because an allowed client has
	// found that the resource has no lane, or that a proof takes longer than a get. Lists have none.
	through time.Time
}

const (
	// crowd is how long a crowd of reads is expected to last. Reads that arrive meanwhile share
	// proofs.
	crowd = time.Second
	// lanelessFor is how long all gets of a resource without a lane are passed through without a
	// review. It equals the default TTL of a review's answer. The start of a lane ends it.
	lanelessFor = 10 * time.Second
	// slowFor is how long they are passed through because a proof takes longer.
	slowFor = time.Second
	// mostCounted bounds the remembered kinds. Anybody with a token can name a resource. A cluster
	// has a few hundred.
	mostCounted = 1024
)

// takeEasy reports whether an easy read that arrived at this time may pass. It counts until giveEasy is
// called.
func (p *passing) takeEasy(kind easyKind, arrived time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.easyLocked(kind)
	if e == nil || arrived.Sub(e.crowded) < crowd {
		return false
	}
	if e.passing >= p.mostEasy {
		e.crowded = arrived
		return false
	}
	e.passing++
	return true
}

func (p *passing) giveEasy(kind easyKind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.easy[kind].passing-- // present, because a kind with reads is not removed
}

// passGets lets gets of the resource pass through for d from now on; 0 ends that.
func (p *passing) passGets(gvr schema.GroupVersionResource, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.easyLocked(easyKind{gvr, "get"}); e != nil {
		e.through = time.Now().Add(d)
	}
}

// through reports whether gets of the resource are passed through.
func (p *passing) through(gvr schema.GroupVersionResource) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.easy[easyKind{gvr, "get"}]
	return e != nil && time.Now().Before(e.through)
}

// easyLocked returns what is known of a kind, or nil if there is no room for another.
func (p *passing) easyLocked(kind easyKind) *easyReads {
	if e := p.easy[kind]; e != nil {
		return e
	}
	if len(p.easy) >= mostCounted {
		now := time.Now()
		maps.DeleteFunc(p.easy, func(_ easyKind, e *easyReads) bool {
			return e.passing == 0 && now.Sub(e.crowded) >= crowd && now.After(e.through)
		})
	}
	if len(p.easy) >= mostCounted {
		return nil
	}
	e := &easyReads{}
	p.easy[kind] = e
	return e
}

// smallPage is the size, in bytes, up to which a page may pass through because a proof takes longer. It
// is 500 objects of 8 KiB. kubectl get -o json begins with such a page.
const smallPage = 4 << 20

// wantsOne reports whether the list is of one name, which at most one object has.
func (r *read) wantsOne() bool {
	return r.SelectorName != "" && (r.namespace != "" || !r.info.Namespaced)
}

// wantsLittle reports whether the page is small, if its objects have the mean size.
func (r *read) wantsLittle() bool {
	s := r.lane.Cache.Stats()
	return r.wantsOne() || min(r.Limit, int64(s.Objects))*s.Bytes <= smallPage*int64(s.Objects)
}

// vainWait is how long a read has waited that counts as one that has waited in vain. A
// kube-apiserver that is well answers all questions about a read within it.
const vainWait = time.Second

// inVain reports whether r passes through, for a reason, because a wait has brought nothing: for a
// review, for kube-apiserver's answers about its resource, for a lane, for a proof or for history. A
// proof counts however soon it has failed, because reads share it. A read of a resourceVersion far in
// the future has not waited here: kube-apiserver makes it wait. A read that its lane lets through is
// one of a few already.
func (r *read) inVain(why request.Reason) bool {
	switch why {
	case request.Freshness:
		return !r.few && !r.neverProved(why) && (r.ResourceVersion == "" || time.Since(r.arrived) >= vainWait)
	case request.Form:
		return r.listsTables() && time.Since(r.arrived) >= vainWait // for a list that others share
	case request.NotAllowed, request.Aggregated, request.Resource, request.Definition, request.NoLane, request.LaneBound,
		request.LaneFilling, request.History:
		return !r.few && time.Since(r.arrived) >= vainWait
	case request.Mistrusted: // all its clients list at the same time
		return r.Verb != "get"
	}
	return false
}

// turns are those of one resource's reads that have waited in vain. Thousands may have waited for the
// same, and kube-apiserver is slow or away, or else the wait would have ended well. So they take
// turns, fairly among users.
type turns struct {
	queue *fairness.Queue
	reads int // that have a turn or wait for one; guarded by passing.mu
}

// awaitTurn waits until a read that has waited in vain has a turn, which it keeps until it has been
// answered. A read that gets no turn in time is told to try again (429).
func (p *passing) awaitTurn(x *exchange.Exchange, r *read, patience time.Duration) (o request.Outcome) {
	t := p.joinTurns(r.GVR)
	seat := t.queue.Seat(r.flow(), max(1, patience), r.conn.Left, r.conn.EndArrival)
	if !seat.Begin() {
		p.leaveTurns(r.GVR, t)
		return request.Refuse(seat.Refused)
	}
	x.Until = lane.NewSlot(r.Verb == "watch", func() {
		seat.Give()
		p.leaveTurns(r.GVR, t)
	})
	return o
}

func (p *passing) joinTurns(gvr schema.GroupVersionResource) *turns {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.turns[gvr]
	if t == nil {
		t = &turns{queue: fairness.New(p.ctx, lane.MostThrough, fairness.Purpose{
			Message: "kube-apiserver is slow to answer this proxy about " + request.ResourceText(gvr),
			Refused: p.refused,
		})}
		p.turns[gvr] = t
	}
	t.reads++
	return t
}

func (p *passing) leaveTurns(gvr schema.GroupVersionResource, t *turns) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.reads--; t.reads == 0 {
		delete(p.turns, gvr)
	}
}
