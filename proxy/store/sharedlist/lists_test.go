package sharedlist

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/fairness"
)

// sharing is Lists whose lists take a second each, and say when they began.
type sharing struct {
	*Lists
	t       *testing.T
	fails   bool
	ending  bool // no list begins
	clients sync.WaitGroup

	mu    sync.Mutex
	asked int
}

const listTook = time.Second

func newSharing(t *testing.T) *sharing {
	s := &sharing{t: t}
	s.Lists = New(func(f func(context.Context)) bool {
		if s.ending {
			return false
		}
		go f(t.Context())
		return true
	})
	return s
}

func (s *sharing) ask(context.Context) Answer {
	s.mu.Lock()
	s.asked++
	s.mu.Unlock()
	began := time.Now()
	time.Sleep(listTook)
	if s.fails {
		return Answer{}
	}
	return Answer{Header: http.Header{}, Body: []byte(began.Format(time.RFC3339Nano))}
}

// list is one client's list. It reports whether the client has an answer to share, and fails the
// test if that is older than the client.
func (s *sharing) list(q byte) bool { return s.listOf(userOf(q), q) }

func (s *sharing) listOf(user fairness.Flow, q byte) bool {
	came := time.Now()
	answer, ok := s.Get(s.t.Context(), auth.Question{q}, user, s.ask)
	if began, err := time.Parse(time.RFC3339Nano, string(answer.Body)); ok && (err != nil || began.Before(came)) {
		s.t.Errorf("a client that came at %s shares the list of %s", came, began)
	}
	if took := time.Since(came); took > 2*listTook {
		s.t.Errorf("a client waited %s, want at most the list under way and its own", took)
	}
	return ok
}

// begin begins a client's list, which must be shared or not.
func (s *sharing) begin(user fairness.Flow, q byte, shared bool) {
	s.First(auth.Question{q})
	s.clients.Go(func() {
		if s.listOf(user, q) != shared {
			s.t.Errorf("list %d is not shared as wanted: %t", q, shared)
		}
	})
	synctest.Wait()
}

// Of clients that ask for the same within three seconds, the first is told to ask alone. The others
// share as many lists as fit, and each list begins after its clients have come.
func TestSharedLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharing(t)
		if !s.First(auth.Question{1}) || s.First(auth.Question{1}) || !s.First(auth.Question{2}) {
			t.Fatal("not the first client alone is the first")
		}
		for i := range 300 {
			s.clients.Go(func() {
				time.Sleep(time.Duration(i) * listTook / 100)
				if s.First(auth.Question{1}) {
					t.Error("a client is the first while others wait")
				}
				if !s.list(1) {
					t.Error("a client has no list to share")
				}
			})
		}
		s.clients.Wait()
		if s.asked != 4 {
			t.Errorf("%d lists in three seconds of one second each, want 4", s.asked)
		}
		if n := len(s.began); n != 0 {
			t.Errorf("%d lists are under way", n)
		}
		if !s.First(auth.Question{1}) {
			t.Error("a client long after others is not the first")
		}
	})
}

// A list counts while it is under way. Beyond the bound, and without an answer that may be shared, each client asks
// alone.
func TestSharedListsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharing(t)
		for q := range byte(mostSharedLists) {
			s.begin(userOf(q), q, true)
		}
		s.begin(userOf(100), 100, false)
		s.clients.Wait()
		s.fails = true
		if s.list(100) {
			t.Error("a failure is shared")
		}
		s.fails = false
		ctx, cancel := context.WithTimeout(t.Context(), listTook/2)
		defer cancel()
		if _, ok := s.Get(ctx, auth.Question{100}, userOf(100), s.ask); ok {
			t.Error("a client waits for longer than it wants to")
		}
		time.Sleep(listTook)
		s.ending = true
		if s.list(100) {
			t.Error("a list begins while the server ends")
		}
		if n := len(s.began); n != 0 {
			t.Errorf("%d lists are under way", n)
		}
		s.ending = false
		if !s.list(100) {
			t.Error("room that has become free is not used")
		}
	})
}

// userOf returns the nth user.
func userOf(n byte) fairness.Flow {
	return fairness.Token(string(n))
}

// One user has half of the lists at most, and others have the rest.
func TestSharedListsOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharing(t)
		for q := range byte(mostSharedLists) {
			s.begin(userOf(1), q, q < mostSharedOfOne)
		}
		s.begin(userOf(2), mostSharedOfOne, true)
		s.clients.Wait()
	})
}

// Clients can't make the proxy remember any number of different lists.
func TestSharedListsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharing(t)
		for i := range mostAsked + 10 {
			s.First(auth.Question{byte(i), byte(i >> 8)})
		}
		if n := len(s.Lists.asked); n != mostAsked {
			t.Errorf("%d lists are remembered, want %d", n, mostAsked)
		}
		if _, ok := s.Get(t.Context(), auth.Question{7, 7, 7}, userOf(7), s.ask); ok {
			t.Error("a list that is not remembered is shared")
		}
		time.Sleep(listInstant)
		s.First(auth.Question{7, 7, 7})
		if n := len(s.Lists.asked); n != 1 {
			t.Errorf("%d lists are remembered after their instant, want 1", n)
		}
	})
}
