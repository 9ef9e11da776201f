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
	"github.com/watchfan/watchfan/proxy/base/semaphore"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/fairness"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const (
	// listInstant is how long after a list another of the same is not the first.
	listInstant = 50 * time.Millisecond
	// mostSharedLists bounds the shared lists that are under way, and mostSharedOfOne those of them that one user
	// has begun. Each has at most MaxBytes bytes. A page of 500 rows, as kubectl's, has about 1 MiB. Clients that
	// have not read an answer yet hold it at their own expense ([Answer.Held]).
	mostSharedLists = 8
	mostSharedOfOne = mostSharedLists / 2
	MaxBytes        = 8 << 20
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
	began []fairness.Flow // the users that have begun the lists that are under way, or wait for that
}

// askedList is a list that clients ask for. Lists.mu guards it, but for turn.
type askedList struct {
	turn  semaphore.Semaphore // held by the list that is under way
	last  time.Time           // when a client last came
	next  *sharedList         // begins when the one under way has ended; nil if nobody waits for it
	lists int                 // under way, or waiting for that
}

// sharedList is one list for all clients that came before it began.
type sharedList struct {
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
		ls.asked[q] = &askedList{turn: semaphore.New(1), last: now}
	}
	return true
}

// over reports whether the list is not under way, and its instant is over.
func (a *askedList) over(now time.Time) bool { return a.lists == 0 && now.Sub(a.last) >= listInstant }

// Get returns the answer for a user to the next list with question q, which ask requests. ok is false
// if there is none to share, or if ctx ends first.
func (ls *Lists) Get(ctx context.Context, q auth.Question, user fairness.Flow, ask Ask) (answer Answer, ok bool) {
	l := ls.join(q, user, ask)
	if l == nil {
		return answer, false
	}
	exchange.Waits(ctx)
	select {
	case <-l.donec:
		return l.Answer, l.Header != nil
	case <-ctx.Done():
		return answer, false
	}
}

// join makes a client of the user share the next list, and has that list run. It returns nil if there
// may be no other list.
func (ls *Lists) join(q auth.Question, user fairness.Flow, ask Ask) *sharedList {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	a := ls.asked[q]
	switch {
	case a == nil:
		return nil
	case a.next != nil:
		return a.next
	}
	l := &sharedList{donec: make(chan struct{})}
	if !ls.hasRoomLocked(user) || !ls.spawn(func(ctx context.Context) { ls.run(ctx, a, l, user, ask) }) {
		return nil
	}
	a.next = l
	a.lists++
	ls.began = append(ls.began, user)
	return l
}

// hasRoomLocked reports whether a user may begin another list.
func (ls *Lists) hasRoomLocked(user fairness.Flow) bool {
	own := 0
	for _, by := range ls.began {
		if by == user {
			own++
		}
	}
	return own < mostSharedOfOne && len(ls.began) < mostSharedLists
}

// run requests a list as soon as the one before it is done. Clients that come then wait for another.
func (ls *Lists) run(ctx context.Context, a *askedList, l *sharedList, user fairness.Flow, ask Ask) {
	defer ls.end(a, l, user)
	if a.turn.Acquire(ctx) != nil {
		return
	}
	defer a.turn.Release()
	ls.mu.Lock()
	a.next = nil
	ls.mu.Unlock()
	once, cancel := context.WithTimeout(ctx, lane.Wait)
	defer cancel()
	l.Answer = ask(once)
}

// end ends a list that a user has begun.
func (ls *Lists) end(a *askedList, l *sharedList, user fairness.Flow) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	a.lists--
	i := slices.Index(ls.began, user)
	ls.began = slices.Delete(ls.began, i, i+1)
	close(l.donec)
}
