package auth

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

const (
	fromState = "/api/v1/pods?watch=1&resourceVersion=0"
	resumes   = "/api/v1/pods?watch=1&resourceVersion=7"
)

func ignored() {}

// standing is an authorizer with one client, token t, whose watches begin and end.
type standing struct {
	*Authorizer
	t       *testing.T
	up      *proxytest.FakeUpstream[Identity]
	reviews fakeReviews
}

func newStanding(t *testing.T) *standing {
	reviews := fakeReviews{"t": "yes", "other": "no"}
	a, up := newTestAuthorizer(reviews)
	go a.Run(t.Context())
	return &standing{a, t, up, reviews}
}

// answer changes kube-apiserver's answer about t.
func (s *standing) answer(text string) {
	s.up.Mu.Lock()
	defer s.up.Mu.Unlock()
	s.reviews["t"] = text
}

// may reports whether the owner of a token may do what line asks for.
func (s *standing) may(token, line string) bool {
	return s.allowed(s.t.Context(), byToken(token), parse(s.t, line))
}

// kept returns how many grants there are, and how many of them have no watch.
func (s *standing) kept() (grants, idle int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.grants), s.Authorizer.standing
}

// watch opens a watch for token t, and returns nil if it is not allowed.
func (s *standing) watch(line string, revoke func()) (release func() string) {
	req := parse(s.t, line)
	d := s.Authorize(s.t.Context(), byToken("t"), req)
	if !d.Allowed() {
		return nil
	}
	return s.watchGrant(byToken("t"), req, d, revoke)
}

// A client that ends its watch every half minute, and resumes it, is reviewed as often as an open
// watch.
func TestStandingYesServesReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStanding(t)
		release := s.watch(fromState, ignored)
		const intervals = 20
		for range 2 * intervals {
			time.Sleep(recheckInterval / 2)
			release()
			if release = s.watch(resumes, func() { t.Error("revoked") }); release == nil {
				t.Fatal("a resumed watch is not allowed")
			}
		}
		if n := s.up.Count(); n < intervals-2 || n > intervals+1 {
			t.Errorf("%d reviews in %d intervals, want one in each", n, intervals)
		}
		release()
		time.Sleep(recheckInterval + recheckInterval/5)
		if grants, idle := s.kept(); grants != 0 || idle != 0 {
			t.Errorf("%d grants, %d of them without a watch, an interval after the last watch", grants, idle)
		}
		before := s.up.Count()
		if s.watch(resumes, ignored)(); s.up.Count() != before+1 {
			t.Error("a watch after a long time is not reviewed")
		}
	})
}

// While kube-apiserver answers no reviews, a client's next watch is allowed for as long as its open
// watch goes on, and no other client's.
func TestStandingYesInOutage(t *testing.T) {
	for _, outage := range []string{"unreachable", "500", "429"} {
		synctest.Test(t, func(t *testing.T) {
			s := newStanding(t)
			release := s.watch(fromState, ignored)
			s.answer(outage)
			began := time.Now()
			for time.Since(began) < (maxGrantAge-1)*recheckInterval {
				time.Sleep(recheckInterval / 2)
				release()
				for _, line := range []string{resumes, fromState} {
					if release = s.watch(line, ignored); release == nil {
						t.Fatalf("%s, after %s: %s is not allowed", outage, time.Since(began), line)
					}
				}
			}
			if s.may("stranger", resumes) || s.may("t", "/api/v1/secrets?watch=1&resourceVersion=7") || s.may("t", "/api/v1/pods") {
				t.Errorf("%s: something else is allowed", outage)
			}
			time.Sleep(recheckInterval + recheckInterval/10)
			if s.may("t", resumes) {
				t.Errorf("%s: a watch is allowed when open watches have ended", outage)
			}
		})
	}
}

// A kube-apiserver that hangs holds up a watch with a standing yes for two seconds.
func TestStandingYesIsNotHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStanding(t)
		s.watch(fromState, ignored)
		time.Sleep(recheckInterval / 2)
		s.up.Delay = time.Hour
		began := time.Now()
		if !s.may("t", fromState) || time.Since(began) != standingPatience {
			t.Errorf("decided after %s, want a yes after %s", time.Since(began), standingPatience)
		}
	})
}

// A no ends the standing yes at once, also a no to another watch: the watch that begins with
// initial events is reviewed. The open watch ends with it.
func TestStandingYesIsRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStanding(t)
		revoked := false
		s.watch(fromState, func() { revoked = true })
		time.Sleep(answerTTL + time.Second)
		s.answer("no")
		if !s.may("t", resumes) {
			t.Error("a watch that resumes is not believed like the open one")
		}
		if s.may("t", fromState) {
			t.Error("a watch with initial events is not reviewed")
		}
		synctest.Wait()
		if !revoked || s.may("t", resumes) {
			t.Errorf("after a no: the open watch is revoked: %v", revoked)
		}
		time.Sleep(answerTTL + time.Second)
		if s.may("t", resumes) || s.up.Count() < 3 {
			t.Error("a watch is allowed, or not reviewed, after a no has been forgotten")
		}
	})
}

// A no that comes between a watch's review and its beginning has the watch reviewed at once.
func TestStandingYesOlderThanNo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStanding(t)
		req := parse(t, fromState)
		yes := s.Authorize(t.Context(), byToken("t"), req)
		time.Sleep(answerTTL)
		s.answer("no")
		if s.may("t", fromState) {
			t.Fatal("still allowed")
		}
		revoked := false
		s.watchGrant(byToken("t"), req, yes, func() { revoked = true })
		time.Sleep(2 * recheckInterval / 60)
		synctest.Wait()
		if !revoked {
			t.Error("the watch goes on")
		}
	})
}

// Without a TTL every watch is reviewed. Grants without a watch are few, and short.
func TestStandingYesBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStanding(t)
		s.allowedTTL = 0
		s.watch(fromState, ignored)
		s.answer("500")
		if s.may("t", resumes) {
			t.Error("a yes is believed without a TTL")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := newStanding(t)
		for i := range maxStanding + 100 {
			req := parse(t, fmt.Sprintf("%s&labelSelector=n%%3D%d", fromState, i))
			s.watchGrant(byToken("t"), req, yesNow(), ignored)()
		}
		if grants, idle := s.kept(); grants != maxStanding || idle != maxStanding {
			t.Errorf("%d grants, %d without a watch, want %d", grants, idle, maxStanding)
		}
	})
}

// A watch that begins with a remembered yes is reviewed when that is due, also if the yes is older
// than open watches are believed.
func TestWatchGrantOfOldYes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStanding(t)
		yes := yesNow()
		time.Sleep(2 * maxGrantAge * recheckInterval)
		revoked := false
		s.watchGrant(byToken("t"), parse(t, fromState), yes, func() { revoked = true })
		time.Sleep(3 * recheckInterval)
		synctest.Wait()
		if n := s.up.Count(); revoked || n < 2 || n > 4 {
			t.Errorf("revoked: %v, after %d reviews in three intervals", revoked, n)
		}
	})
}

// A watch that begins on a yes while a later no is known lends that yes to no other watch.
func TestStandingYesAfterNo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStanding(t)
		req := parse(t, fromState)
		yes := s.Authorize(t.Context(), byToken("t"), req)
		s.answer("no")
		time.Sleep(answerTTL)
		if s.may("t", fromState) {
			t.Fatal("a review's no is not believed")
		}
		s.answer("unreachable")
		revoked := false
		release := s.watchGrant(byToken("t"), req, yes, func() { revoked = true })
		if s.may("t", resumes) {
			t.Error("a watch that resumes is allowed after a no")
		}
		release()
		if !yes.Allowed() || revoked {
			t.Error("the first watch was not allowed, or was revoked before its review")
		}
	})
}
