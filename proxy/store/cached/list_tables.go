package cached

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/fairness"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/store/registry"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// A list in Tables can't be answered from a cache, because only kube-apiserver knows the ages in its
// rows. But many kubectls may ask for the same list at the same instant:
//
//	the first            passes through in its own name, without a review
//	those who come then  share the next list, in the proxy's name, once each has been allowed
//
// The list is the same for all who may read it: what kube-apiserver answers depends on the request,
// and on its user only by yes or no. Whatever is not an answer of 200 is not shared. Then each
// client passes through.

// listsTables reports whether r is a list in Tables.
func (r *read) listsTables() bool { return r.Verb == "list" && r.AsTable() }

// tablesQuestion identifies the answer to a list in Tables by all of the request that it depends on.
func tablesQuestion(x *exchange.Exchange, r *read) auth.Question {
	return sha256.Sum256(fmt.Appendf(nil, "%q %q %t", x.Target, x.Header.Get("Accept"), r.Gzip))
}

// serveTables answers a list in Tables with an answer that it shares with other clients. The client
// has been allowed to read.
func (c *Reads) serveTables(ctx context.Context, x *exchange.Exchange, r *read) request.Outcome {
	if c.APIs.Served(ctx, r.GVR.GroupVersion(), false) != registry.ByItself {
		return request.PassThrough(request.Aggregated)
	}
	r.decided = time.Now()
	answer, done, ok := c.shared.get(ctx, tablesQuestion(x, r), r.flow(), c.askTables(x, r))
	if !ok {
		return request.PassThrough(request.Form)
	}
	if o := c.stillAllowed(r); !o.Open() {
		done()
		return o
	}
	x.Until = closeFunc(done)
	body := exchange.BodySlices{answer.body}
	o := c.share(x, r, answer.held)
	if o.Open() {
		o = c.holdAnswer(x, r, body)
	}
	if !o.Open() {
		return o
	}
	apistatus.AddCommonHeader(x)
	for _, name := range []string{"Content-Encoding", "Content-Type", "Vary"} {
		for _, value := range answer.header.Values(name) {
			x.Response.Header.Add(name, value)
		}
	}
	c.addWarnings(x, r, answer.warnings)
	r.seat = c.seat(r)
	x.Response.Body, x.Response.Turn = body, r.seat
	c.Metrics.sharedLists.Inc()
	return request.Answered()
}

// closeFunc is a function as an io.Closer.
type closeFunc func()

func (f closeFunc) Close() error {
	f()
	return nil
}

// askTables returns the request of r in the proxy's own name.
func (c *Reads) askTables(x *exchange.Exchange, r *read) askList {
	target, _ := exchange.CutTarget(x.Target)
	header := http.Header{"Accept": {x.Header.Get("Accept")}}
	if r.Gzip {
		header.Set("Accept-Encoding", "gzip")
	}
	return func(ctx context.Context) (answer sharedAnswer) {
		req := &http.Request{Method: http.MethodGet, URL: c.Upstream.URL(target.Path, target.Query), Header: header}
		resp, err := c.Upstream.DoAs(auth.Identity{Kind: auth.KindOwn}, req.WithContext(ctx))
		if err != nil {
			return answer
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxSharedList+1))
		if err != nil || resp.StatusCode != http.StatusOK || len(body) > maxSharedList {
			return answer
		}
		warnings, err := upstream.WithoutOwn(ctx, c.Upstream, resp.Header.Values("Warning"))
		if err != nil {
			return answer
		}
		held := c.Ledger.Share(account.Answers, int64(len(body)))
		return sharedAnswer{header: resp.Header, warnings: warnings, body: body, held: held}
	}
}

const (
	// listInstant is how long after a list another of the same is not the first.
	listInstant = 50 * time.Millisecond
	// mostSharedLists bounds the shared lists that are under way, or that a client has not read yet.
	// Each has at most maxSharedList bytes. A page of 500 rows, as kubectl's, has about 1 MiB.
	mostSharedLists = 8
	maxSharedList   = 8 << 20
	// mostSharedOfOne bounds those that one user has begun. Clients that do not read keep them.
	mostSharedOfOne = mostSharedLists / 2
	// mostAsked bounds the different lists that are remembered.
	mostAsked = 1024
)

// sharedLists shares lists between clients that ask for the same at the same instant. A shared list
// begins after all its clients have come, so none of them is shown a state older than its request.
// Lists of the same run one after another. Its methods may be called from any goroutine.
type sharedLists struct {
	spawn func(func(context.Context)) bool // runs a function on a goroutine of the server

	mu    sync.Mutex
	asked map[auth.Question]*askedList
	kept  []*sharedList // those under way, or that a client has not read yet
}

// askedList is a list that clients ask for. sharedLists.mu guards it.
type askedList struct {
	last  time.Time       // when a client last came
	next  *sharedList     // begins when the one under way has ended; nil if nobody waits for it
	donec <-chan struct{} // closed when no list is under way, and none waits; nil before the first
}

// sharedList is one list for all clients that came before it began.
type sharedList struct {
	by    fairness.Flow // the user that began it
	users int           // the clients, and the list itself while it is under way; guarded by sharedLists.mu
	donec chan struct{} // closed when the answer is set; never sent on
	sharedAnswer
}

// sharedAnswer is kube-apiserver's answer to a list. The zero sharedAnswer is none that may be
// shared.
type sharedAnswer struct {
	header   http.Header
	warnings []string // those of header that concern the resource
	body     []byte
	held     *account.Shared // body, while answers hold it
}

// askList requests a list from kube-apiserver.
type askList func(context.Context) sharedAnswer

// newSharedLists returns no lists yet. spawn reports false once the server stops.
func newSharedLists(spawn func(func(context.Context)) bool) *sharedLists {
	return &sharedLists{spawn: spawn, asked: make(map[auth.Question]*askedList)}
}

// first reports whether a client is the first to ask for a list in its instant, so that it has
// nobody to share it with.
func (ls *sharedLists) first(q auth.Question) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := time.Now()
	if a := ls.asked[q]; a != nil {
		first := a.over(now)
		a.last = now
		return first
	}
	if len(ls.asked) >= mostAsked {
		maps.DeleteFunc(ls.asked, func(_ auth.Question, a *askedList) bool { return a.over(now) })
	}
	if len(ls.asked) < mostAsked {
		ls.asked[q] = &askedList{last: now}
	}
	return true
}

// over reports whether the list is not under way, and its instant is over.
func (a *askedList) over(now time.Time) bool {
	select {
	case <-a.donec:
	default:
		if a.donec != nil {
			return false
		}
	}
	return now.Sub(a.last) >= listInstant
}

// get returns the answer for a user to the next list with question q, which ask requests. ok is false
// if there is none to share, or if ctx ends first. The caller calls done once it needs the answer no
// longer.
func (ls *sharedLists) get(ctx context.Context, q auth.Question, user fairness.Flow, ask askList) (answer sharedAnswer, done func(), ok bool) {
	l := ls.join(q, user, ask)
	if l == nil {
		return answer, nil, false
	}
	done = sync.OnceFunc(func() { ls.leave(l) })
	exchange.Waits(ctx)
	select {
	case <-l.donec:
		if l.header != nil {
			return l.sharedAnswer, done, true
		}
	case <-ctx.Done():
	}
	done()
	return answer, nil, false
}

// join makes a client of the user share the next list, and has that list run. It returns nil if there
// may be no other list.
func (ls *sharedLists) join(q auth.Question, user fairness.Flow, ask askList) *sharedList {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	a := ls.asked[q]
	if a == nil {
		return nil
	}
	if a.next == nil {
		l, before := &sharedList{by: user, users: 1, donec: make(chan struct{})}, a.donec
		if !ls.hasRoomLocked(user) || !ls.spawn(func(ctx context.Context) { ls.run(ctx, a, l, before, ask) }) {
			return nil
		}
		a.next, a.donec = l, l.donec
		ls.kept = append(ls.kept, l)
	}
	a.next.users++
	return a.next
}

// hasRoomLocked reports whether a user may begin another list.
func (ls *sharedLists) hasRoomLocked(user fairness.Flow) bool {
	own := 0
	for _, l := range ls.kept {
		if l.by == user {
			own++
		}
	}
	return own < mostSharedOfOne && len(ls.kept) < mostSharedLists
}

// leave notes that a user needs a list no longer.
func (ls *sharedLists) leave(l *sharedList) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l.users--; l.users == 0 {
		ls.kept = slices.DeleteFunc(ls.kept, func(other *sharedList) bool { return other == l })
	}
}

// run requests a list as soon as the one before it is done. Clients that come then wait for another.
func (ls *sharedLists) run(ctx context.Context, a *askedList, l *sharedList, before <-chan struct{}, ask askList) {
	defer ls.leave(l)
	defer close(l.donec)
	if before != nil {
		<-before
	}
	ls.mu.Lock()
	a.next = nil
	ls.mu.Unlock()
	once, cancel := context.WithTimeout(ctx, lane.Wait)
	defer cancel()
	l.sharedAnswer = ask(once)
}
