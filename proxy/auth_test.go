package proxy

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
)

// The attributes are those kube-apiserver authorizes by.
func TestReviewAttributes(t *testing.T) {
	f := func(line, want string) {
		t.Helper()
		_, review := reviewFor(identity{kind: kindToken, token: "t"}, attributesOf(proxytest.MustParse(t, parseRequest, line)))
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

func (r fakeReviews) answer(id identity, path string, body []byte) (int, string, error) {
	if path != selfReviewPath || id.kind != kindToken {
		return 500, "", nil
	}
	status := func(s string) string { return `{"kind":"SelfSubjectAccessReview","status":` + s + `}` }
	switch r[id.token] {
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
	fmt.Sscan(r[id.token], &code)
	return code, status(`{"allowed":true}`), nil
}

// defaultAuthOptions are what watchfan has without flags.
func defaultAuthOptions() (o AuthOptions) {
	var t option.Table
	o.add(&t)
	t.SetDefaults()
	return o
}

// authorizerOf returns an authorizer with the default options.
func authorizerOf(upstream doer) *authorizer {
	opts := defaultAuthOptions()
	return newAuthorizer(upstream, newKnownTokens(), &opts, false, slog.New(slog.DiscardHandler))
}

func newTestAuthorizer(r fakeReviews) (*authorizer, *proxytest.FakeUpstream[identity]) {
	up := &proxytest.FakeUpstream[identity]{Answer: r.answer}
	return authorizerOf(up), up
}

// allowed reports whether id may do what req asks for.
func (a *authorizer) allowed(ctx context.Context, id identity, req *request) bool {
	return a.authorize(ctx, id, req).verdict == verdictYes
}

func TestAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := proxytest.MustParse(t, parseRequest, "/api/v1/pods")
		for answer, want := range map[string]bool{
			"yes": true, "no": false, "contradictory": false, "no status": false, "garbage": false, "other kind": false, "unreachable": false,
			"401": false, "403": false, "404": false, "422": false, "429": false, "500": false, "301": false,
		} {
			a, _ := newTestAuthorizer(fakeReviews{"t": answer})
			if got := a.allowed(t.Context(), identity{kind: kindToken, token: "t"}, list); got != want {
				t.Errorf("%s: got %v", answer, got)
			}
		}
		a, up := newTestAuthorizer(fakeReviews{})
		if !a.allowed(t.Context(), identity{kind: kindOwn}, list) || up.Count() != 0 {
			t.Error("own identity: not allowed, or asked")
		}
		if a.allowed(t.Context(), identity{}, list) {
			t.Error("no identity: allowed")
		}
	})
}

// Where there is an audit log, a decision has the reason that came with it, also from memory; elsewhere no reason is kept.
func TestReasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := defaultAuthOptions()
		list := proxytest.MustParse(t, parseRequest, "/api/v1/pods")
		long := strings.Repeat("é", maxReviewBytes/8)
		for reason, want := range map[string]string{
			`,"reason":"RBAC: allowed by RoleBinding \"b/a\" of Role \"r\" to User \"j\u00fcrgen\""`: `RBAC: allowed by RoleBinding "b/a" of Role "r" to User "jürgen"`,
			``:                         ``,
			`,"reason":""`:             ``,
			`,"reason":"` + long + `"`: long[:maxReason] + "...TRUNCATED",
		} {
			for kind, id := range map[string]identity{"SelfSubjectAccessReview": byToken("t"), "SubjectAccessReview": byCertificate("jane")} {
				for allowed, v := range map[string]verdict{"true": verdictYes, "false": verdictNo} {
					for _, reasons := range []bool{false, true} {
						a := newAuthorizer(&proxytest.FakeUpstream[identity]{Answer: func(identity, string, []byte) (int, string, error) {
							return 201, `{"kind":"` + kind + `","status":{"allowed":` + allowed + reason + `}}`, nil
						}}, newKnownTokens(), &opts, reasons, slog.New(slog.DiscardHandler))
						for range 2 {
							d := a.authorize(t.Context(), id, list)
							if d.verdict != v || reasons && d.because() != want || !reasons && d != (decision{verdict: v}) {
								t.Errorf("%s of %s, audit log %v: got %d because %.100q, want %d because %.100q", allowed, kind, reasons, d.verdict, d.because(), v, want)
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
	proxytest.FakeUpstream[identity]
	now, most atomic.Int64
}

func (u *slowUpstream) DoAs(id identity, req *http.Request) (*http.Response, error) {
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
		up := &slowUpstream{FakeUpstream: proxytest.FakeUpstream[identity]{Answer: reviews.answer}}
		a := authorizerOf(up)
		list := proxytest.MustParse(t, parseRequest, "/api/v1/pods")
		var all sync.WaitGroup
		for token := range reviews {
			all.Go(func() {
				if !a.allowed(t.Context(), identity{kind: kindToken, token: token}, list) {
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
		list, watch := proxytest.MustParse(t, parseRequest, "/api/v1/pods"), proxytest.MustParse(t, parseRequest, "/api/v1/pods?watch=1")
		f := func(token string, req *request, want bool, wantAsked int) {
			t.Helper()
			before := up.Count()
			if got := a.allowed(t.Context(), identity{kind: kindToken, token: token}, req); got != want {
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
		f("good", proxytest.MustParse(t, parseRequest, "/api/v1/pods?limit=5&resourceVersion=0"), true, 0)
		f("ill", list, false, 1) // no answer, nothing to remember
		f("ill", list, false, 1)
		f("nobody", list, false, 1)

		time.Sleep(answerTTL - time.Millisecond)
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
		up := &proxytest.FakeUpstream[identity]{Answer: fakeReviews{"good": "yes", "bad": "no"}.answer}
		opts := defaultAuthOptions()
		opts.AuthorizationWebhookCacheAuthorizedTTL, opts.AuthorizationWebhookCacheUnauthorizedTTL = time.Minute, time.Second
		opts.AuthorizationRecheckInterval = 10 * time.Second
		a := newAuthorizer(up, newKnownTokens(), &opts, false, slog.New(slog.DiscardHandler))
		asked := func(token string, after time.Duration) int {
			time.Sleep(after)
			before := up.Count()
			a.allowed(t.Context(), identity{kind: kindToken, token: token}, proxytest.MustParse(t, parseRequest, "/api/v1/pods"))
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
		a.yesTTL = 0
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
		list := proxytest.MustParse(t, parseRequest, "/api/v1/pods")
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
				if got := a.allowed(ctx, identity{kind: kindToken, token: token}, list); got != want {
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
		if a.allowed(t.Context(), identity{kind: kindToken, token: "t"}, proxytest.MustParse(t, parseRequest, "/api/v1/pods")) {
			t.Error("allowed")
		}
		if got := time.Since(start); got != reviewTimeout {
			t.Errorf("waited %v", got)
		}
	})
}

func TestVerdictsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, up := newTestAuthorizer(fakeReviews{"t": "yes"})
		list := proxytest.MustParse(t, parseRequest, "/api/v1/pods")
		id := identity{kind: kindToken, token: "t"}
		a.allowed(t.Context(), id, list)
		for i := range maxAnswers + 100 {
			a.remember(question{byte(i), byte(i >> 8), 1}, decision{verdict: verdictNo}, time.Now())
			a.allowed(t.Context(), id, list) // the one in use stays
		}
		if got := up.Count(); got != 1 {
			t.Errorf("asked %d times, want 1", got)
		}
		if len(a.verdicts.byQuestion) != maxAnswers || a.verdicts.size() != maxAnswers {
			t.Errorf("got %d verdicts, %d in the list", len(a.verdicts.byQuestion), a.verdicts.size())
		}
	})
}

// watches opens n watches by token and returns how many of them are revoked.
func watches(t *testing.T, a *authorizer, token, line string, n int) (revoked func() int, release func()) {
	var mu sync.Mutex
	count := 0
	var releases []func() string
	for range n {
		releases = append(releases, a.watchGrant(identity{kind: kindToken, token: token}, proxytest.MustParse(t, parseRequest, line), func() {
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
		a.watchGrant(identity{kind: kindOwn}, proxytest.MustParse(t, parseRequest, line), func() { t.Error("own watch revoked") })()

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
		if a.allowed(t.Context(), identity{kind: kindToken, token: "a"}, proxytest.MustParse(t, parseRequest, line)) {
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
		answer := func(text string) func(identity, string, []byte) (int, string, error) {
			return func(identity, string, []byte) (int, string, error) { return 201, text, nil }
		}
		up := &proxytest.FakeUpstream[identity]{Answer: answer(`{"kind":"SelfSubjectAccessReview","status":{"allowed":true,"reason":"she may"}}`)}
		opts := defaultAuthOptions()
		a := newAuthorizer(up, newKnownTokens(), &opts, true, slog.New(slog.NewTextHandler(&log, nil)))
		go a.Run(t.Context())
		watch := func(token string) (release func() string) {
			return a.watchGrant(byToken(token), proxytest.MustParse(t, parseRequest, "/api/v1/pods?watch=1"), func() {})
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
		var known answers[verdict]
		q, first := question{1}, time.Now()
		time.Sleep(time.Second)
		known.put(q, verdictNo, time.Now(), answerTTL)
		known.put(q, verdictYes, first, answerTTL)
		if v, ok := known.get(q); !ok || v != verdictNo {
			t.Errorf("%v, %v", v, ok)
		}
		time.Sleep(answerTTL)
		if _, ok := known.get(q); ok {
			t.Error("still good")
		}
	})
}

// BenchmarkDecide is what the package says of a decision from memory.
func BenchmarkDecide(b *testing.B) {
	for _, id := range []identity{byToken(strings.Repeat("t", 900)), byCertificate("jane", "g", groupAuthenticated)} {
		b.Run("identity="+id.String(), func(b *testing.B) {
			up := &proxytest.FakeUpstream[identity]{Answer: func(id identity, _ string, _ []byte) (int, string, error) {
				kind := "SelfSubjectAccessReview"
				if id.kind == kindOwn {
					kind = "SubjectAccessReview"
				}
				return 201, `{"kind":"` + kind + `","status":{"allowed":true}}`, nil
			}}
			a := authorizerOf(up)
			a.yesTTL = time.Hour
			attributes := attributesOf(proxytest.MustParse(b, parseRequest, "/api/v1/namespaces/a/pods?labelSelector=a%3Db"))
			b.ReportAllocs()
			for b.Loop() {
				if a.decide(b.Context(), id, attributes).verdict != verdictYes {
					b.Fatal("not allowed")
				}
			}
			if n := up.Count(); n != 1 {
				b.Errorf("asked %d times", n)
			}
		})
	}
}
