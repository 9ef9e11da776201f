package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/option"
	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/request"
)

// The attributes are those kube-apiserver authorizes by.
func TestReviewAttributes(t *testing.T) {
	f := func(line, want string) {
		t.Helper()
		_, review := ReviewFor(Identity{Kind: KindToken, Token: "t"}, AttributesOf(proxytest.MustParse(t, request.Parse, line)))
		var got struct {
			APIVersion, Kind string
			Spec             struct{ ResourceAttributes json.RawMessage }
		}
		if err := json.Unmarshal(review, &got); err != nil || got.APIVersion != "authorization.k8s.io/v1" || got.Kind != "SelfSubjectAccessReview" {
			t.Errorf("%s: %v %s", line, err, review)
		}
		if string(got.Spec.ResourceAttributes) != want {
			t.Errorf("%s:\n got %s\nwant %s", line, got.Spec.ResourceAttributes, want)
		}
	}
	f("/api/v1/pods", `{"verb":"list","version":"v1","resource":"pods"}`)
	f("/apis/apps/v1/namespaces/a/deployments?watch=1", `{"namespace":"a","verb":"watch","group":"apps","version":"v1","resource":"deployments"}`)
	f("/api/v1/namespaces/a/pods/x?labelSelector=a", `{"namespace":"a","verb":"get","version":"v1","resource":"pods","name":"x"}`)
	f("/api/v1/namespaces/foo", `{"namespace":"foo","verb":"get","version":"v1","resource":"namespaces","name":"foo"}`)
	f("/api/v1/pods?watch=1&fieldSelector=spec.host%3Dn,metadata.name%3Dx,status.phase!%3Da",
		`{"verb":"watch","version":"v1","resource":"pods","name":"x","fieldSelector":{"requirements":[`+
			`{"key":"metadata.name","operator":"In","values":["x"]},{"key":"spec.host","operator":"In","values":["n"]},{"key":"status.phase","operator":"NotIn","values":["a"]}]}}`)
	f("/api/v1/pods?fieldSelector=metadata.namespace%3Da",
		`{"verb":"list","version":"v1","resource":"pods","fieldSelector":{"requirements":[{"key":"metadata.namespace","operator":"In","values":["a"]}]}}`)
	f("/api/v1/pods?labelSelector=a%3D1,b+in+(y,x),c!%3D2,d+notin+(3),e,!f,g%3E5",
		`{"verb":"list","version":"v1","resource":"pods","labelSelector":{"requirements":[`+
			`{"key":"a","operator":"In","values":["1"]},{"key":"b","operator":"In","values":["x","y"]},{"key":"c","operator":"NotIn","values":["2"]},`+
			`{"key":"d","operator":"NotIn","values":["3"]},{"key":"e","operator":"Exists"},{"key":"f","operator":"DoesNotExist"}]}}`)
	f("/api/v1/pods?labelSelector=g%3E5", `{"verb":"list","version":"v1","resource":"pods"}`)
	f("/api/v1/watch/namespaces/a/pods?fieldSelector=metadata.name%3Dx&labelSelector=a",
		`{"namespace":"a","verb":"watch","version":"v1","resource":"pods"}`)
	f("/api/v1/watch/namespaces/a/pods/x", `{"namespace":"a","verb":"watch","version":"v1","resource":"pods","name":"x"}`)
}

// fakeReviews answers reviews by token: "yes", "no", or an HTTP code.
type fakeReviews map[string]string

func (r fakeReviews) answer(id Identity, path string, body []byte) (int, string, error) {
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

// defaultOptions are what watchfan has without flags.
func defaultOptions() (o Options) {
	var t option.Table
	o.AddTo(&t)
	t.SetDefaults()
	return o
}

// authorizerOf returns an authorizer with the default options.
func authorizerOf(upstream Doer) *Authorizer {
	opts := defaultOptions()
	return NewAuthorizer(upstream, NewKnownTokens(), &opts, false, slog.New(slog.DiscardHandler))
}

func newTestAuthorizer(r fakeReviews) (*Authorizer, *proxytest.FakeUpstream[Identity]) {
	up := &proxytest.FakeUpstream[Identity]{Answer: r.answer}
	return authorizerOf(up), up
}

// allowed reports whether id may do what req asks for.
func (a *Authorizer) allowed(ctx context.Context, id Identity, req *request.Request) bool {
	return a.Authorize(ctx, id, req).Verdict == VerdictYes
}

func TestAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := proxytest.MustParse(t, request.Parse, "/api/v1/pods")
		for answer, want := range map[string]bool{
			"yes": true, "no": false, "contradictory": false, "no status": false, "garbage": false, "other kind": false, "unreachable": false,
			"401": false, "403": false, "404": false, "422": false, "429": false, "500": false, "301": false,
		} {
			a, _ := newTestAuthorizer(fakeReviews{"t": answer})
			if got := a.allowed(t.Context(), Identity{Kind: KindToken, Token: "t"}, list); got != want {
				t.Errorf("%s: got %v", answer, got)
			}
		}
		a, up := newTestAuthorizer(fakeReviews{})
		if !a.allowed(t.Context(), Identity{Kind: KindOwn}, list) || up.Count() != 0 {
			t.Error("own identity: not allowed, or asked")
		}
		if a.allowed(t.Context(), Identity{}, list) {
			t.Error("no identity: allowed")
		}
	})
}

// Where there is an audit log, a decision has the reason that came with it, also from memory; elsewhere no reason is kept.
func TestReasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := defaultOptions()
		list := proxytest.MustParse(t, request.Parse, "/api/v1/pods")
		long := strings.Repeat("é", maxReviewBytes/8)
		for reason, want := range map[string]string{
			`,"reason":"RBAC: allowed by RoleBinding \"b/a\" of Role \"r\" to User \"j\u00fcrgen\""`: `RBAC: allowed by RoleBinding "b/a" of Role "r" to User "jürgen"`,
			``:                         ``,
			`,"reason":""`:             ``,
			`,"reason":"` + long + `"`: long[:maxReason] + "...TRUNCATED",
		} {
			for kind, id := range map[string]Identity{"SelfSubjectAccessReview": byToken("t"), "SubjectAccessReview": byCertificate("jane")} {
				for allowed, v := range map[string]verdict{"true": VerdictYes, "false": verdictNo} {
					for _, reasons := range []bool{false, true} {
						a := NewAuthorizer(&proxytest.FakeUpstream[Identity]{Answer: func(Identity, string, []byte) (int, string, error) {
							return 201, `{"kind":"` + kind + `","status":{"allowed":` + allowed + reason + `}}`, nil
						}}, NewKnownTokens(), &opts, reasons, slog.New(slog.DiscardHandler))
						for range 2 {
							d := a.Authorize(t.Context(), id, list)
							if d.Verdict != v || reasons && d.Because() != want || !reasons && d != (Decision{Verdict: v}) {
								t.Errorf("%s of %s, audit log %v: got %d because %.100q, want %d because %.100q", allowed, kind, reasons, d.Verdict, d.Because(), v, want)
							}
						}
					}
				}
			}
		}
	})
}

// slowUpstream takes a millisecond for an answer, and counts how many it is at.
type slowUpstream struct {
	proxytest.FakeUpstream[Identity]
	now, most atomic.Int64
}

func (u *slowUpstream) DoAs(id Identity, req *http.Request) (*http.Response, error) {
	n := u.now.Add(1)
	defer u.now.Add(-1)
	for most := u.most.Load(); n > most && !u.most.CompareAndSwap(most, n); most = u.most.Load() {
	}
	time.Sleep(time.Millisecond)
	return u.FakeUpstream.DoAs(id, req)
}

// However many ask at once, kube-apiserver is asked about a few at a time, and all get their answers.
func TestReviewsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reviews := make(fakeReviews)
		for i := range 10 * maxReviews {
			reviews[fmt.Sprint(i)] = "yes"
		}
		up := &slowUpstream{FakeUpstream: proxytest.FakeUpstream[Identity]{Answer: reviews.answer}}
		a := authorizerOf(up)
		list := proxytest.MustParse(t, request.Parse, "/api/v1/pods")
		var all sync.WaitGroup
		for token := range reviews {
			all.Go(func() {
				if !a.allowed(t.Context(), Identity{Kind: KindToken, Token: token}, list) {
					t.Errorf("%s is not allowed", token)
				}
			})
		}
		all.Wait()
		if most := up.most.Load(); most != maxStrangerReviews/2 { // they are all from one address
			t.Errorf("%d reviews at once, want %d", most, maxStrangerReviews/2)
		}
	})
}

func TestAllowedRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reviews := fakeReviews{"good": "yes", "bad": "no", "ill": "500"}
		a, up := newTestAuthorizer(reviews)
		list, watch := proxytest.MustParse(t, request.Parse, "/api/v1/pods"), proxytest.MustParse(t, request.Parse, "/api/v1/pods?watch=1")
		f := func(token string, req *request.Request, want bool, wantAsked int) {
			t.Helper()
			before := up.Count()
			if got := a.allowed(t.Context(), Identity{Kind: KindToken, Token: token}, req); got != want {
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
		f("good", proxytest.MustParse(t, request.Parse, "/api/v1/pods?limit=5&resourceVersion=0"), true, 0)
		f("ill", list, false, 1) // no answer, nothing to remember
		f("ill", list, false, 1)
		f("nobody", list, false, 1)

		time.Sleep(AnswerTTL - time.Millisecond)
		reviews["good"], reviews["bad"] = "no", "yes"
		f("good", list, true, 0)
		f("bad", list, false, 0)
		time.Sleep(time.Millisecond)
		f("good", list, false, 1)
		f("bad", list, true, 1)
	})
}

// Each kind of answer is believed as long as the options say, and open watches are asked about as often.
func TestAnswerTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &proxytest.FakeUpstream[Identity]{Answer: fakeReviews{"good": "yes", "bad": "no"}.answer}
		opts := defaultOptions()
		opts.AuthorizationWebhookCacheAuthorizedTTL, opts.AuthorizationWebhookCacheUnauthorizedTTL = time.Minute, time.Second
		opts.AuthorizationRecheckInterval = 10 * time.Second
		a := NewAuthorizer(up, NewKnownTokens(), &opts, false, slog.New(slog.DiscardHandler))
		asked := func(token string, after time.Duration) int {
			time.Sleep(after)
			before := up.Count()
			a.allowed(t.Context(), Identity{Kind: KindToken, Token: token}, proxytest.MustParse(t, request.Parse, "/api/v1/pods"))
			return up.Count() - before
		}
		for _, c := range []struct {
			token string
			after time.Duration
			want  int
		}{{"good", 0, 1}, {"bad", 0, 1}, {"bad", time.Second - 1, 0}, {"bad", 1, 1}, {"good", 59*time.Second - 1, 0}, {"good", 1, 1}} {
			if got := asked(c.token, c.after); got != c.want {
				t.Errorf("%s, %s later: asked %d times, want %d", c.token, c.after, got, c.want)
			}
		}
		a.YesTTL = 0
		if n := asked("good", time.Minute) + asked("good", 0); n != 2 {
			t.Errorf("asked %d times, want 2", n)
		}

		ctx, cancel := context.WithCancel(t.Context())
		go a.Run(ctx)
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
		cancel()
	})
}

func TestAllowedCoalesces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, up := newTestAuthorizer(fakeReviews{"t": "yes", "u": "no"})
		up.Delay = time.Second
		list := proxytest.MustParse(t, request.Parse, "/api/v1/pods")
		var callers sync.WaitGroup
		for i := range 100 {
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if i%10 == 1 { // leaves before the answer
					ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
					defer cancel()
				}
				token, want := "t", i%10 != 1
				if i%2 == 0 {
					token, want = "u", false
				}
				if got := a.allowed(ctx, Identity{Kind: KindToken, Token: token}, list); got != want {
					t.Errorf("caller %d: got %v, want %v", i, got, want)
				}
			})
		}
		callers.Wait()
		if got := up.Count(); got != 2 {
			t.Errorf("asked %d times, want 2", got)
		}
	})
}

// A kube-apiserver that does not answer holds a request up for reviewTimeout.
func TestAllowedTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, up := newTestAuthorizer(fakeReviews{"t": "yes"})
		up.Delay = time.Hour
		start := time.Now()
		if a.allowed(t.Context(), Identity{Kind: KindToken, Token: "t"}, proxytest.MustParse(t, request.Parse, "/api/v1/pods")) {
			t.Error("allowed")
		}
		if got := time.Since(start); got != ReviewTimeout {
			t.Errorf("waited %v", got)
		}
	})
}

func TestVerdictsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, up := newTestAuthorizer(fakeReviews{"t": "yes"})
		list := proxytest.MustParse(t, request.Parse, "/api/v1/pods")
		id := Identity{Kind: KindToken, Token: "t"}
		a.allowed(t.Context(), id, list)
		for i := range maxAnswers + 100 {
			a.remember(Question{byte(i), byte(i >> 8), 1}, Decision{Verdict: verdictNo}, time.Now())
			a.allowed(t.Context(), id, list) // the one in use stays
		}
		if got := up.Count(); got != 1 {
			t.Errorf("asked %d times, want 1", got)
		}
		if len(a.Verdicts.byQuestion) != maxAnswers || a.Verdicts.Size() != maxAnswers {
			t.Errorf("got %d verdicts, %d in the list", len(a.Verdicts.byQuestion), a.Verdicts.Size())
		}
	})
}

// watches opens n watches by token and returns how many of them are revoked.
func watches(t *testing.T, a *Authorizer, token, line string, n int) (revoked func() int, release func()) {
	var mu sync.Mutex
	count := 0
	var releases []func() string
	for range n {
		releases = append(releases, a.WatchGrant(Identity{Kind: KindToken, Token: token}, proxytest.MustParse(t, request.Parse, line), func() {
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
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error)
		go func() { ran <- a.Run(ctx) }()

		const line = "/api/v1/pods?watch=1"
		revokedA, _ := watches(t, a, "a", line, 100)
		revokedB, releaseB := watches(t, a, "b", line, 10)
		revokedA2, _ := watches(t, a, "a", line+"&labelSelector=x", 5)
		a.WatchGrant(Identity{Kind: KindOwn}, proxytest.MustParse(t, request.Parse, line), func() { t.Error("own watch revoked") })()

		// One review per question and interval, however many watches there are.
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
		if a.allowed(t.Context(), Identity{Kind: KindToken, Token: "a"}, proxytest.MustParse(t, request.Parse, line)) {
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
		if len(a.grants) != 0 {
			t.Errorf("%d grants left over", len(a.grants))
		}
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
}

// Who held a watch that is revoked is told why, with the reason that kube-apiserver has given; the log leaves that out.
func TestWhyRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		answer := func(text string) func(Identity, string, []byte) (int, string, error) {
			return func(Identity, string, []byte) (int, string, error) { return 201, text, nil }
		}
		up := &proxytest.FakeUpstream[Identity]{Answer: answer(`{"kind":"SelfSubjectAccessReview","status":{"allowed":true,"reason":"she may"}}`)}
		opts := defaultOptions()
		a := NewAuthorizer(up, NewKnownTokens(), &opts, true, slog.New(slog.NewTextHandler(&log, nil)))
		go a.Run(t.Context())
		watch := func(token string) (release func() string) {
			return a.WatchGrant(byToken(token), proxytest.MustParse(t, request.Parse, "/api/v1/pods?watch=1"), func() {})
		}
		first, second := watch("a"), watch("b")
		time.Sleep(2 * recheckInterval)
		if got := second(); got != "" {
			t.Errorf("one that was not revoked: %q", got)
		}
		up.Mu.Lock()
		up.Answer = answer(`{"kind":"SelfSubjectAccessReview","status":{"allowed":false,"reason":"jane is no relation"}}`)
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

// No answer is not a no, until nobody has been able to say for five intervals.
func TestWatchGrantsFailClosed(t *testing.T) {
	for _, answer := range []string{"unreachable", "500", "429", "garbage"} {
		synctest.Test(t, func(t *testing.T) {
			reviews := fakeReviews{"t": "yes"}
			a, up := newTestAuthorizer(reviews)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go a.Run(ctx)
			revoked, _ := watches(t, a, "t", "/api/v1/pods?watch=1", 3)
			set := func(answer string) {
				up.Mu.Lock()
				defer up.Mu.Unlock()
				reviews["t"] = answer
			}

			set(answer)
			time.Sleep(5 * recheckInterval)
			set("yes")
			time.Sleep(2 * recheckInterval)
			if revoked() != 0 {
				t.Fatalf("%s: revoked after less than five intervals", answer)
			}
			set(answer)
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
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go a.Run(ctx)
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

// An answer that comes late does not undo one to what was asked after it.
func TestAnswersInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var known TTLCache[verdict]
		q, first := Question{1}, time.Now()
		time.Sleep(time.Second)
		known.Put(q, verdictNo, time.Now(), AnswerTTL)
		known.Put(q, VerdictYes, first, AnswerTTL)
		if v, ok := known.Get(q); !ok || v != verdictNo {
			t.Errorf("%v, %v", v, ok)
		}
		time.Sleep(AnswerTTL)
		if _, ok := known.Get(q); ok {
			t.Error("still good")
		}
	})
}

// BenchmarkDecide is what the package says of a decision from memory.
func BenchmarkDecide(b *testing.B) {
	for _, id := range []Identity{byToken(strings.Repeat("t", 900)), byCertificate("jane", "g", groupAuthenticated)} {
		b.Run("identity="+id.String(), func(b *testing.B) {
			up := &proxytest.FakeUpstream[Identity]{Answer: func(id Identity, _ string, _ []byte) (int, string, error) {
				kind := "SelfSubjectAccessReview"
				if id.Kind == KindOwn {
					kind = "SubjectAccessReview"
				}
				return 201, `{"kind":"` + kind + `","status":{"allowed":true}}`, nil
			}}
			a := authorizerOf(up)
			a.YesTTL = time.Hour
			attributes := AttributesOf(proxytest.MustParse(b, request.Parse, "/api/v1/namespaces/a/pods?labelSelector=a%3Db"))
			b.ReportAllocs()
			for b.Loop() {
				if a.decide(b.Context(), id, attributes).Verdict != VerdictYes {
					b.Fatal("not allowed")
				}
			}
			if n := up.Count(); n != 1 {
				b.Errorf("asked %d times", n)
			}
		})
	}
}
