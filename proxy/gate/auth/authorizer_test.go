package auth

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/base/option"
	"github.com/watchfan/watchfan/proxy/gate/remember"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// fakeReviews answers reviews by token: "yes", "no", or an HTTP code.
type fakeReviews map[string]string

func (r fakeReviews) answer(id Identity, path string, body []byte) (int, string, error) {
	if path == "/readyz" {
		return 200, "ok", nil
	}
	if path != selfReviewPath || id.Kind != KindToken {
		return 500, "", nil
	}
	status := func(s string) string { return `{"kind":"SelfSubjectAccessReview","status":` + s + `}` }
	switch r[id.Token] {
	case "yes":
		return 201, status(`{"allowed":true}`), nil
	case "no":
		return 201, status(`{"allowed":false}`), nil
	case "contradictory":
		return 201, status(`{"allowed":true,"denied":true}`), nil
	case "conditional":
		return 201, status(`{"allowed":true,"conditionSetChain":[{"authorizerName":"a","conditions":[]}]}`), nil
	case "conditions alone":
		return 201, status(`{"allowed":false,"denied":false,"conditionSetChain":[]}`), nil
	case "unknown member":
		return 201, status(`{"allowed":true,"evaluationError":"","Reason":""}`), nil
	case "other types":
		return 201, status(`{"allowed":"true"}`), nil
	case "no status":
		return 201, `{"kind":"SelfSubjectAccessReview"}`, nil
	case "garbage":
		return 201, `{"kind":`, nil
	case "other kind":
		return 200, `{"kind":"Status","status":{"allowed":true}}`, nil
	case "unreachable":
		return 0, "", errors.New("connection refused")
	}
	var code int
	fmt.Sscan(r[id.Token], &code)
	return code, status(`{"allowed":true}`), nil
}

func parse(t testing.TB, line string) *request.Request {
	t.Helper()
	return proxytest.MustParse(t, request.Parse, line)
}

// defaultOptions returns the options of a watchfan without flags.
func defaultOptions() (o Options) {
	var t option.Table
	o.AddTo(&t)
	t.SetDefaults()
	return o
}

// authorizerOf returns an authorizer with the default options.
func authorizerOf(server APIServer) *Authorizer {
	opts := defaultOptions()
	return NewAuthorizer(server, NewKnownTokens(), &opts, false, NewMetrics(metrics.NewSet()), proxytest.Guard())
}

func newTestAuthorizer(r fakeReviews) (*Authorizer, *proxytest.FakeUpstream[Identity]) {
	up := &proxytest.FakeUpstream[Identity]{Answer: r.answer}
	return authorizerOf(up), up
}

// allowed reports whether id may do what req asks for.
func (a *Authorizer) allowed(ctx context.Context, id Identity, req *request.Request) bool {
	return a.Authorize(ctx, id, req).outcome == allowed
}

func TestAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := parse(t, "/api/v1/pods")
		for answer, want := range map[string]bool{
			"yes": true, "no": false, "contradictory": false, "no status": false, "garbage": false, "other kind": false,
			"conditional": false, "conditions alone": false, "unknown member": false, "other types": false, "unreachable": false, "401": false, "403": false, "404": false, "422": false, "429": false,
			"500": false, "301": false,
		} {
			a, _ := newTestAuthorizer(fakeReviews{"t": answer})
			if got := a.allowed(t.Context(), byToken("t"), list); got != want {
				t.Errorf("%s: got %v", answer, got)
			}
			if n := a.metrics.conditional.Get(); (n == 1) != slices.Contains([]string{"conditional", "conditions alone", "unknown member"}, answer) {
				t.Errorf("%s: %d reviews with conditions", answer, n)
			}
		}
		a, up := newTestAuthorizer(fakeReviews{})
		if !a.allowed(t.Context(), Identity{Kind: KindOwn}, list) || up.Count() != 0 {
			t.Error("own identity: not allowed, or asked")
		}
		if a.allowed(t.Context(), Identity{}, list) {
			t.Error("no identity: allowed")
		}
		a, up = newTestAuthorizer(fakeReviews{"t": "yes"})
		up.Delay = time.Hour
		began := time.Now()
		if a.allowed(t.Context(), byToken("t"), list) || time.Since(began) != ReviewTimeout {
			t.Errorf("a kube-apiserver that hangs: waited %s, want a no after %s", time.Since(began), ReviewTimeout)
		}
	})
}

func TestAllowedRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reviews := fakeReviews{"good": "yes", "bad": "no", "ill": "500"}
		a, up := newTestAuthorizer(reviews)
		list, watch := parse(t, "/api/v1/pods"), parse(t, "/api/v1/pods?watch=1")
		f := func(token string, req *request.Request, want bool, wantAsked int) {
			t.Helper()
			before := up.Count()
			if got := a.allowed(t.Context(), byToken(token), req); got != want {
				t.Errorf("%s: got %v, want %v", token, got, want)
			}
			if got := up.Count() - before; got != wantAsked {
				t.Errorf("%s: asked %d times, want %d", token, got, wantAsked)
			}
		}
		f("good", list, true, 1)
		f("bad", list, false, 1)
		f("good", list, true, 0)
		f("bad", list, false, 0)
		f("good", watch, true, 1) // another question
		f("good", parse(t, "/api/v1/pods?limit=5&resourceVersion=0"), true, 0)
		f("ill", list, false, 1) // no answer, nothing to remember
		f("ill", list, false, 1)
		f("nobody", list, false, 1)

		time.Sleep(answerTTL / 2)
		reviews["good"], reviews["bad"] = "no", "yes"
		f("good", list, true, 0)
		f("bad", list, false, 0)
		time.Sleep(answerTTL / 2)
		f("good", list, false, 0) // was in use, and so was reviewed again a moment ago
		f("bad", list, true, 1)
	})
}

// TestRenewal: a yes that has been used is reviewed again before its time ends, and nobody waits for
// that review. Its answer counts at once. Without an answer, the yes ends at its time. A yes that
// has not been used is not reviewed again.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reviews := fakeReviews{"t": "yes"}
		a, up := newTestAuthorizer(reviews)
		up.Delay = 100 * time.Millisecond
		list, id := parse(t, "/api/v1/pods"), byToken("t")
		use := func(want bool, wantWait time.Duration) {
			t.Helper()
			began := time.Now()
			if got := a.allowed(t.Context(), id, list); got != want || time.Since(began) != wantWait {
				t.Errorf("got %v after %v, want %v after %v", got, time.Since(began), want, wantWait)
			}
		}
		useFor := func(d time.Duration, wantAsked int) {
			t.Helper()
			before := up.Count()
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
				use(true, 0)
			}
			if n := up.Count() - before; n != wantAsked {
				t.Errorf("asked %d times in %v, want %d", n, d, wantAsked)
			}
		}
		answer := func(text string) {
			up.Mu.Lock()
			defer up.Mu.Unlock()
			reviews["t"] = text
		}
		use(true, up.Delay)
		useFor(40*time.Second, 4) // after 9, 18, 27 and 36 s
		time.Sleep(time.Minute)   // one more, which nobody uses
		before := up.Count()
		use(true, up.Delay)
		time.Sleep(time.Minute)
		if n := up.Count() - before; n != 1 {
			t.Errorf("a yes that was used once was asked for %d times", n)
		}

		use(true, up.Delay)
		answer("500")
		useFor(10*time.Second, 1)
		use(false, up.Delay)
		answer("yes")
		use(true, up.Delay)
		useFor(5*time.Second, 0)
		answer("no")
		time.Sleep(4*time.Second + 100*time.Millisecond)
		synctest.Wait()
		use(false, 0)
		a.calls.End()
	})
}

// TestAnswerTimes: each kind of answer is remembered for as long as the options say, and open
// watches are reviewed as often as they say.
func TestAnswerTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &proxytest.FakeUpstream[Identity]{Answer: fakeReviews{"good": "yes", "bad": "no"}.answer}
		opts := defaultOptions()
		opts.AuthorizationWebhookCacheAuthorizedTTL = time.Minute
		opts.AuthorizationWebhookCacheUnauthorizedTTL = time.Second
		opts.AuthorizationRecheckInterval = 10 * time.Second
		a := NewAuthorizer(up, NewKnownTokens(), &opts, false, NewMetrics(metrics.NewSet()), proxytest.Guard())
		asked := func(token string, after time.Duration) int {
			time.Sleep(after)
			before := up.Count()
			a.allowed(t.Context(), byToken(token), parse(t, "/api/v1/pods"))
			return up.Count() - before
		}
		for _, c := range []struct {
			token string
			after time.Duration
			want  int
		}{{"good", 0, 1}, {"bad", 0, 1}, {"bad", time.Second - 1, 0}, {"bad", 1, 1}, {"good", 59 * time.Second, 1},
			{"good", 59 * time.Second, 0}} {
			if got := asked(c.token, c.after); got != c.want {
				t.Errorf("%s, %s later: asked %d times, want %d", c.token, c.after, got, c.want)
			}
		}
		a.allowedTTL = 0
		if n := asked("good", time.Minute) + asked("good", 0); n != 2 {
			t.Errorf("asked %d times, want 2", n)
		}

		go a.Run(t.Context())
		revoked, _ := watches(t, a, "good", "/api/v1/pods?watch=1", 2)
		before := up.Count()
		time.Sleep(100 * time.Second)
		if n := up.Count() - before; n < 9 || n > 10 || revoked() != 0 {
			t.Errorf("asked %d times in 10 intervals, and revoked %d", n, revoked())
		}
		up.Mu.Lock()
		up.Answer = fakeReviews{}.answer
		up.Mu.Unlock()
		time.Sleep(maxGrantAge*10*time.Second + time.Second)
		if revoked() != 2 {
			t.Errorf("%d of 2 watches were revoked without an answer for %d intervals", revoked(), maxGrantAge)
		}
	})
}

// Callers with one question ask once, also one that comes just as the others have their answer.
func TestAllowedAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, up := newTestAuthorizer(fakeReviews{"t": "yes"})
		const questions = 500
		for i := range questions {
			list := parse(t, fmt.Sprintf("/api/v1/namespaces/n%d/pods", i))
			var callers sync.WaitGroup
			for range 8 {
				callers.Go(func() { a.allowed(t.Context(), byToken("t"), list) })
			}
			callers.Wait()
		}
		if got := up.Count(); got != questions {
			t.Errorf("asked %d times, want %d", got, questions)
		}
	})
}

func TestDecisionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, up := newTestAuthorizer(fakeReviews{"t": "yes"})
		list := parse(t, "/api/v1/pods")
		id := byToken("t")
		a.allowed(t.Context(), id, list)
		for i := range remember.Most + 100 {
			other := Identity{Kind: KindOwn} // each source has an eighth at most
			if i%16 > 0 {
				other = byCertificate(fmt.Sprint(i % 16))
			}
			a.remember(other, Question{byte(i), byte(i >> 8), 1}, Decision{outcome: denied, asked: time.Now()})
			a.allowed(t.Context(), id, list) // the one in use stays
		}
		if got := up.Count(); got != 1 {
			t.Errorf("asked %d times, want 1", got)
		}
		if a.Remembered() != remember.Most {
			t.Errorf("%d decisions are remembered", a.Remembered())
		}
	})
}

// However many tokens strangers bring, and from however many addresses, the decisions about known
// clients stay.
func TestStrangersPushNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, up := newTestAuthorizer(fakeReviews{"t": "yes"})
		list := parse(t, "/api/v1/pods")
		id := byToken("t")
		a.allowed(t.Context(), id, list)
		for i := range 2 * remember.Most {
			stranger := Identity{Kind: KindToken, Token: fmt.Sprint(i),
				From: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)}
			a.remember(stranger, Question{byte(i), byte(i >> 8), 1}, Decision{outcome: denied, asked: time.Now()})
		}
		if a.allowed(t.Context(), id, list); up.Count() != 1 {
			t.Errorf("asked %d times, want 1", up.Count())
		}
		if n := a.decisions.strangers.Len(); n != remember.Most {
			t.Errorf("%d decisions about strangers", n)
		}
	})
}

// TestForgottenDecisionIsFreed: what would renew a yes is kept no longer than the yes itself. A client
// that asks ever new questions takes no memory for each of them.
func TestForgottenDecisionIsFreed(t *testing.T) {
	a := authorizerOf(&proxytest.FakeUpstream[Identity]{Answer: subjects{"jane": "yes"}.answer})
	a.allowedTTL = time.Hour
	list := parse(t, "/api/v1/pods")
	ask := func() weak.Pointer[UserInfo] {
		id := byCertificate("jane")
		if !a.allowed(t.Context(), id, list) {
			t.Fatal("not allowed")
		}
		return weak.Make(id.User)
	}
	user := ask()
	if runtime.GC(); user.Value() == nil {
		t.Error("freed while the decision is remembered: nothing would renew it")
	}
	for i := range remember.Most {
		a.remember(byCertificate(fmt.Sprint(i%16)), Question{byte(i), byte(i >> 8), 1}, Decision{outcome: denied, asked: time.Now()})
	}
	if runtime.GC(); user.Value() != nil {
		t.Error("kept after the decision was forgotten")
	}
}

// A no that would end open watches is confirmed by a kube-apiserver that is ready.
func TestNoIsConfirmed(t *testing.T) {
	for _, c := range []struct {
		name    string
		ready   int  // status of /readyz; 0 if there is no answer
		again   bool // the second review says yes
		revoked bool
		watches int
	}{
		{"it is ready", 200, false, true, 3},
		{"it has become ready", 200, true, false, 3},
		{"it has become ready, for one watch", 200, true, false, 1},
		{"it is not ready", 500, false, false, 3},
		{"it has gone", 0, false, false, 3},
		{"the proxy may not know", 403, false, true, 3},
		{"nobody may know", 403, true, false, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var denies, noes atomic.Int64
				up := &proxytest.FakeUpstream[Identity]{Answer: func(id Identity, path string, _ []byte) (int, string, error) {
					switch {
					case path == "/readyz" && id.Kind != KindOwn:
						return 0, "", fmt.Errorf("asked as %v", id.Kind)
					case path == "/readyz" && c.ready == 0:
						return 0, "", fmt.Errorf("connection refused")
					case path == "/readyz":
						return c.ready, "", nil
					case denies.Load() > 0 && (noes.Add(1) == 1 || !c.again):
						return fakeReviews{"a": "no"}.answer(id, path, nil)
					}
					return fakeReviews{"a": "yes"}.answer(id, path, nil)
				}}
				a := authorizerOf(up)
				go a.Run(t.Context())
				revoked, _ := watches(t, a, "a", "/api/v1/pods?watch=1", c.watches)
				time.Sleep(recheckInterval / 2)
				denies.Add(1)
				time.Sleep(recheckInterval)
				if noes.Load() == 0 {
					t.Fatal("nobody was asked about")
				}
				if got := revoked() == c.watches; got != c.revoked {
					t.Errorf("revoked: %t, want %t, after %d reviews", got, c.revoked, noes.Load())
				}
				if c.revoked || c.again {
					return
				}
				time.Sleep(maxGrantAge * recheckInterval)
				if revoked() != c.watches {
					t.Errorf("%d of %d watches have ended though nobody has said yes for long", revoked(), c.watches)
				}
			})
		})
	}
}
