package auth

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// yesNow is a yes that was asked for just now.
func yesNow() Decision { return Decision{outcome: allowed, asked: time.Now()} }

// revocable is a watch that is told so by a call.
type revocable func()

func (r revocable) Revoke() { r() }

// watchGrant is WatchGrant for a watch of its own. release ends the watch.
func (a *Authorizer) watchGrant(
	id Identity, req *request.Request, yes Decision, revoke func(),
) (release func() (because string)) {
	var w OpenWatch
	a.WatchGrant(&w, id, req, yes, revocable(revoke))
	return func() string { return a.Release(&w) }
}

// watches opens n watches by token. revoked returns how many of them have been revoked.
func watches(t *testing.T, a *Authorizer, token, line string, n int) (revoked func() int, release func()) {
	var mu sync.Mutex
	count := 0
	var releases []func() string
	for range n {
		releases = append(releases, a.watchGrant(byToken(token),
			parse(t, line), yesNow(), func() {
				mu.Lock()
				defer mu.Unlock()
				count++
			}))
	}
	revoked = func() int {
		mu.Lock()
		defer mu.Unlock()
		return count
	}
	return revoked, func() {
		for _, r := range releases {
			_ = r()
		}
	}
}

func TestWatchGrants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reviews := fakeReviews{"a": "yes", "b": "yes"}
		a, up := newTestAuthorizer(reviews)
		go a.Run(t.Context())

		const line = "/api/v1/pods?watch=1"
		revokedA, _ := watches(t, a, "a", line, 100)
		revokedB, releaseB := watches(t, a, "b", line, 10)
		revokedA2, _ := watches(t, a, "a", line+"&labelSelector=x", 5)
		a.watchGrant(Identity{Kind: KindOwn}, parse(t, line), ownRights,
			func() { t.Error("own watch revoked") })()

		// There is one review per question and interval, for any number of watches.
		time.Sleep(10 * recheckInterval)
		if got := up.Count(); got < 3*9 || got > 3*10 {
			t.Errorf("asked %d times in 10 intervals for 3 questions", got)
		}
		up.Mu.Lock()
		reviews["a"] = "no"
		up.Mu.Unlock()
		time.Sleep(recheckInterval + recheckInterval/5)
		if revokedA() != 100 || revokedA2() != 5 || revokedB() != 0 {
			t.Errorf("revoked: got %d, %d and %d, want 100, 5 and 0", revokedA(), revokedA2(), revokedB())
		}
		if a.allowed(t.Context(), byToken("a"), parse(t, line)) {
			t.Error("still allowed")
		}

		// Watches that have ended are not asked about.
		releaseB()
		releaseB()
		before := up.Count()
		time.Sleep(10 * recheckInterval)
		if got := up.Count(); got != before {
			t.Errorf("asked %d times about nothing", got-before)
		}
		if synctest.Wait(); len(a.grants) != 0 {
			t.Errorf("%d grants left over", len(a.grants))
		}
	})
}

// release returns why a watch was revoked, with kube-apiserver's own reason. The log leaves that
// reason out.
func TestWhyRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		answer := func(text string) func(Identity, string, []byte) (int, string, error) {
			return func(Identity, string, []byte) (int, string, error) { return 201, text, nil }
		}
		up := &proxytest.FakeUpstream[Identity]{
			Answer: answer(`{"kind":"SelfSubjectAccessReview","status":{"allowed":true,"reason":"she may"}}`),
		}
		opts := defaultOptions()
		set := metrics.NewSet()
		a := NewAuthorizer(up, NewKnownTokens(), &opts, true, NewMetrics(set),
			exchange.NewGuard(set, slog.New(slog.NewTextHandler(&log, nil))))
		go a.Run(t.Context())
		watch := func(token string) (release func() string) {
			return a.watchGrant(byToken(token), parse(t, "/api/v1/pods?watch=1"),
				yesNow(), func() {})
		}
		first, second := watch("a"), watch("b")
		time.Sleep(2 * recheckInterval)
		if got := second(); got != "" {
			t.Errorf("one that was not revoked: %q", got)
		}
		up.Mu.Lock()
		up.Answer = answer(`{"kind":"SelfSubjectAccessReview","status":{"allowed":false,` +
			`"reason":"jane is no relation"}}`)
		up.Mu.Unlock()
		time.Sleep(2 * recheckInterval)
		if got := first(); got != "the client may no longer read, or is nobody any more: jane is no relation" {
			t.Errorf("after a no: %q", got)
		}
		third := watch("c")
		up.Mu.Lock()
		up.Answer = answer("")
		up.Mu.Unlock()
		time.Sleep((maxGrantAge + 1) * recheckInterval)
		if got := third(); got != "kube-apiserver has not said for too long whether the client may read" {
			t.Errorf("without an answer: %q", got)
		}
		if text := log.String(); strings.Count(text, "Revoked watches") != 2 || strings.Contains(text, "jane") {
			t.Errorf("the log says %s", text)
		}
	})
}

// A missing answer is not a no, until five intervals have passed without an answer.
func TestWatchGrantsFailClosed(t *testing.T) {
	for _, answer := range []string{"unreachable", "500", "429", "garbage"} {
		synctest.Test(t, func(t *testing.T) {
			s := newStanding(t)
			revoked, _ := watches(t, s.Authorizer, "t", "/api/v1/pods?watch=1", 3)
			s.answer(answer)
			time.Sleep(5 * recheckInterval)
			s.answer("yes")
			time.Sleep(2 * recheckInterval)
			if revoked() != 0 {
				t.Fatalf("%s: revoked after less than five intervals", answer)
			}
			s.answer(answer)
			time.Sleep(maxGrantAge*recheckInterval + recheckInterval/30)
			if revoked() != 3 {
				t.Errorf("%s: revoked %d, want 3", answer, revoked())
			}
		})
	}
}

// A kube-apiserver that does not answer at all delays no revocation.
func TestWatchGrantsFailClosedWhenSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, up := newTestAuthorizer(fakeReviews{})
		up.Delay = time.Hour
		go a.Run(t.Context())
		var counts []func() int
		for i := range 50 * grantReviews {
			revoked, _ := watches(t, a, fmt.Sprint(i), "/api/v1/pods?watch=1", 1)
			counts = append(counts, revoked)
		}
		time.Sleep(maxGrantAge*recheckInterval + recheckInterval/30)
		for i, revoked := range counts {
			if revoked() != 1 {
				t.Fatalf("watch %d: not revoked", i)
			}
		}
	})
}

// All watches are reviewed in time, however many questions they ask.
func TestWatchGrantsOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := authorizerOf(&proxytest.FakeUpstream[Identity]{Delay: time.Millisecond, Answer: func(Identity, string, []byte) (int, string, error) {
			return 201, `{"kind":"SelfSubjectAccessReview","status":{"allowed":true}}`, nil
		}})
		go a.Run(t.Context())
		var counts []func() int
		for i := range 200 * grantReviews {
			revoked, _ := watches(t, a, fmt.Sprint(i), "/api/v1/pods?watch=1", 1)
			counts = append(counts, revoked)
		}
		time.Sleep(3 * recheckInterval)
		oldest := time.Now()
		a.mu.Lock()
		for _, g := range a.grants {
			if g.yes.asked.Before(oldest) {
				oldest = g.yes.asked
			}
		}
		a.mu.Unlock()
		if age := time.Since(oldest); age > 2*recheckInterval {
			t.Errorf("a yes is %s old", age)
		}
		for i, revoked := range counts {
			if revoked() > 0 {
				t.Fatalf("watch %d is revoked", i)
			}
		}
	})
}

// A process that has stood still for longer than a yes is believed asks again, a few at a time, and revokes
// no watch before that.
func TestWatchGrantsAfterAHalt(t *testing.T) {
	a, _ := newTestAuthorizer(fakeReviews{})
	const n = 50 * grantReviews
	for i := range n {
		watches(t, a, fmt.Sprint(i), "/api/v1/pods?watch=1", 1)
	}
	now := time.Now().Add(time.Hour)
	a.resumeGrants(now)
	due, expired := a.dueGrants(now, 0)
	if len(expired) > 0 || len(due) == 0 || len(due) > n/10 {
		t.Errorf("%d of %d reviews begin, and %d watches end", len(due), n, len(expired))
	}
	if _, expired := a.dueGrants(now.Add(a.interval), 0); len(expired) != n {
		t.Errorf("%d of %d watches without an answer end an interval later", len(expired), n)
	}
}

// TestRunAwaitsReviews: Run returns when the last review of a request has ended, and leaves no
// goroutine behind.
func TestRunAwaitsReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		a := authorizerOf(&proxytest.FakeUpstream[Identity]{Answer: func(Identity, string, []byte) (int, string, error) {
			<-answer // it ignores the request's context
			return 500, "", nil
		}})
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan struct{}, 1)
		go func() { a.Run(ctx); ran <- struct{}{} }()
		go a.Authorize(ctx, byToken("t"), parse(t, "/api/v1/pods"))
		synctest.Wait()
		cancel()
		synctest.Wait()
		if len(ran) > 0 {
			t.Error("Run has returned while a review is under way")
		}
		close(answer)
		<-ran
	})
}
