package proxy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeOwners answers SelfSubjectReviews by token: a user's name, an HTTP code, or another fault.
type fakeOwners map[string]string

func (o fakeOwners) answer(id identity, path string, body []byte) (int, string, error) {
	if path != selfSubjectPath || !strings.Contains(string(body), `"kind":"SelfSubjectReview"`) {
		return 500, "", nil
	}
	if id.kind == kindOwn {
		id.token = "own"
	}
	var code int
	switch says := o[id.token]; {
	case says == "unreachable":
		return 0, "", errors.New("connection refused")
	case says == "garbage":
		return 201, `{"kind":`, nil
	case says == "other kind":
		return 201, `{"kind":"Status","status":{"userInfo":{"username":"jane"}}}`, nil
	case says == "nameless":
		return 201, `{"kind":"SelfSubjectReview","status":{"userInfo":{}}}`, nil
	case len(says) == 3:
		fmt.Sscan(says, &code)
		return code, "", nil
	default:
		return 201, `{"kind":"SelfSubjectReview","status":{"userInfo":{"username":"` + says + `","uid":"u","groups":["g"],"extra":{"k":["v"]}}}}`, nil
	}
}

func byToken(token string) identity { return identity{kind: kindToken, token: token} }

// Two identities are the same user if and only if they have the same name.
func TestUserKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &fakeUpstream{answer: fakeOwners{"a": "jane", "b": "jane", "c": "joe", "bad": "401", "old": "404", "old too": "404",
			"forbidden": "403", "ill": "500", "gone": "unreachable", "garbage": "garbage", "other": "other kind", "nameless": "nameless"}.answer}
		a := authorizerOf(up)
		key := func(id identity) userKey {
			t.Helper()
			k, ok := a.userKey(t.Context(), id)
			if !ok {
				t.Errorf("%q: nobody", id.token)
			}
			return k
		}
		jane := key(byToken("a"))
		if jane != (userKey{name: "jane"}) || key(byToken("b")) != jane || key(byCertificate("jane", "g")) != jane ||
			key(identity{kind: kindFrontProxy, user: &userInfo{name: "jane"}}) != jane {
			t.Error("jane is several users")
		}
		if key(byToken("c")) == jane {
			t.Error("joe is jane")
		}
		if key(identity{kind: kindOwn}) != (userKey{}) || key(identity{}) != (userKey{name: "system:anonymous"}) {
			t.Error("the proxy itself, or anonymous, is somebody")
		}
		if _, ok := a.userKey(t.Context(), byToken("bad")); ok {
			t.Error("a token that kube-apiserver does not take is somebody's")
		}
		// Where kube-apiserver does not say who it is, each token is a user.
		seen := make(map[userKey]bool)
		for _, token := range []string{"old", "old too", "forbidden", "ill", "gone", "garbage", "other", "nameless"} {
			k := key(byToken(token))
			if k.name != "" || k == (userKey{}) || seen[k] || key(byToken(token)) != k {
				t.Errorf("%s: %v", token, k)
			}
			seen[k] = true
		}
	})
}

// An answer is believed for the TTL, and asked for once by all who want it at a time; what is no answer is asked again.
func TestOwnersRemember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says := fakeOwners{"t": "jane", "old": "404", "ill": "500"}
		up := &fakeUpstream{answer: says.answer, delay: time.Second}
		a := authorizerOf(up)
		asked := func(token string, want int) {
			t.Helper()
			before := up.count()
			var callers sync.WaitGroup
			for range 50 {
				callers.Go(func() { a.userKey(t.Context(), byToken(token)) })
			}
			callers.Wait()
			if got := up.count() - before; got != want {
				t.Errorf("%s: asked %d times, want %d", token, got, want)
			}
		}
		asked("t", 1)
		asked("old", 1)
		asked("ill", 1)
		asked("t", 0)
		asked("old", 0)
		asked("ill", 1)
		time.Sleep(answerTTL)
		asked("t", 1)
		a.owners.ttl = 0
		time.Sleep(answerTTL)
		asked("t", 1)
		asked("t", 1)

		// Many at once do not become as many requests at once, and who waits too long goes without.
		up.delay = time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if k, ok := a.userKey(ctx, byToken("slow")); !ok || k.name != "" {
			t.Errorf("got %v %v", k, ok)
		}
		before := up.count()
		var all []*owner
		for i := range 10 * maxStrangerReviews {
			all = append(all, a.owners.of(byToken(fmt.Sprint(i))))
		}
		begin := time.Now()
		time.Sleep(time.Second)
		if got := up.count() - before; got != maxStrangerReviews/2-1 { // all from one address, and the slow one goes on
			t.Errorf("%d requests at once", got)
		}
		for _, w := range all {
			if <-w.donec; w.user != nil || w.unknown == "" || w.nobody {
				t.Errorf("got %+v", w)
			}
		}
		if took := time.Since(begin); took > reviewTimeout {
			t.Errorf("waited %v", took)
		}
	})
}
