// Package sharedlist shares lists between clients that ask for the same at the same instant.
//
// It knows a list as a question and an answer. It knows no cache, and no client but as a user.
package sharedlist

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/fairness"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const (
	// listInstant is how long after a list another of the same is not the first.
	listInstant = 50 * time.Millisecond
	// mostSharedLists bounds the shared lists that are under way, or that a client has not read yet.
	// Each has at most MaxBytes bytes. A page of 500 rows, as kubectl's, has about 1 MiB.
	mostSharedLists = 8
	MaxBytes        = 8 << 20
	// mostSharedOfOne bounds those that one user has begun. Clients that do not read keep them.
	mostSharedOfOne = mostSharedLists / 2
	// mostAsked bounds the different lists that are remembered.
	mostAsked = 1024
)

// Lists shares lists between clients that ask for the same at the same instant. A shared list
// begins after all its clients have come, so none of them is shown a state older than its request.
// Lists of the same run one after another. Its methods may be called from any goroutine.
type Lists struct {
	spawn func(func(context.Context)) bool // runs a function on a goroutine of the server

	mu    sync.Mutex
	asked map[auth.Question]*askedList
	kept  []*sharedList // those under way, or that a client has not read yet
}

// askedList is a list that clients ask for. Lists.mu guards it.
type askedList struct {
	last  time.Time       // when a client last came
	next  *sharedList     // begins when the one under way has ended; nil if nobody waits for it
	donec <-chan struct{} // closed when no list is under way, and none waits; nil before the first
}

// sharedList is one list for all clients that came before it began.
type sharedList struct {
	by    fairness.Flow // the user that began it
	users int           // the clients, and the list itself while it is under way; guarded by Lists.mu
	donec chan struct{} // closed when the answer is set; never sent on
	Answer
}

// Answer is kube-apiserver's answer to a list. The zero Answer is none that may be
// shared.
type Answer struct {
	Header   http.Header
	Warnings []string // those of Header that concern the resource
	Body     []byte
	Held     *account.Shared // Body, while answers hold it
}

// Ask requests a list from kube-apiserver.
type Ask func(context.Context) Answer

// New returns no lists yet. spawn reports false once the server stops.
func New(spawn func(func(context.Context)) bool) *Lists {
	return &Lists{spawn: spawn, asked: make(map[auth.Question]*askedList)}
}

// First reports whether a client is the first to ask for a list in its instant, so that it has
// nobody to share it with.
func (ls *Lists) First(q auth.Question) bool {
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

// Get returns the answer for a user to the next list with question q, which ask requests. ok is false
// if there is none to share, or if ctx ends first. The caller calls done once it needs the answer no
// longer.
func (ls *Lists) Get(ctx context.Context, q auth.Question, user fairness.Flow, ask Ask) (answer Answer, done func(), ok bool) {
	l := ls.join(q, user, ask)
	if l == nil {
		return answer, nil, false
	}
	done = sync.OnceFunc(func() { ls.leave(l) })
	exchange.Waits(ctx)
	select {
	case <-l.donec:
		if l.Header != nil {
			return l.Answer, done, true
		}
	case <-ctx.Done():
	}
	done()
	return answer, nil, false
}

// join makes a client of the user share the next list, and has that list run. It returns nil if there
// may be no other list.
func (ls *Lists) join(q auth.Question, user fairness.Flow, ask Ask) *sharedList {
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
func (ls *Lists) hasRoomLocked(user fairness.Flow) bool {
	own := 0
	for _, l := range ls.kept {
		if l.by == user {
			own++
		}
	}
	return own < mostSharedOfOne && len(ls.kept) < mostSharedLists
}

// leave notes that a user needs a list no longer.
func (ls *Lists) leave(l *sharedList) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l.users--; l.users == 0 {
		ls.kept = slices.DeleteFunc(ls.kept, func(other *sharedList) bool { return other == l })
	}
}

// run requests a list as soon as the one before it is done. Clients that come then wait for another.
func (ls *Lists) run(ctx context.Context, a *askedList, l *sharedList, before <-chan struct{}, ask Ask) {
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
	l.Answer = ask(once)
}
