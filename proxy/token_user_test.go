package proxy

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// ownersAnswer is o's answer to whoever brings a token.
func ownersAnswer(o proxytest.Owners) func(identity, string, []byte) (int, string, error) {
	return func(id identity, path string, body []byte) (int, string, error) {
		if id.kind == kindOwn {
			id.token = "own"
		}
		return o.Answer(id.token, path, body)
	}
}

func byToken(token string) identity { return identity{kind: kindToken, token: token} }

// Two identities are the same user if and only if they have the same name.
func TestUserKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &proxytest.FakeUpstream[identity]{Answer: ownersAnswer(proxytest.Owners{"a": "jane", "b": "jane", "c": "joe", "bad": "401", "old": "404", "old too": "404",
			"forbidden": "403", "ill": "500", "gone": "unreachable", "garbage": "garbage", "other": "other kind", "nameless": "nameless"})}
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
		says := proxytest.Owners{"t": "jane", "old": "404", "ill": "500"}
		up := &proxytest.FakeUpstream[identity]{Answer: ownersAnswer(says), Delay: time.Second}
		a := authorizerOf(up)
		asked := func(token string, want int) {
			t.Helper()
			before := up.Count()
			var callers sync.WaitGroup
			for range 50 {
				callers.Go(func() { a.userKey(t.Context(), byToken(token)) })
			}
			callers.Wait()
			if got := up.Count() - before; got != want {
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
		up.Delay = time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if k, ok := a.userKey(ctx, byToken("slow")); !ok || k.name != "" {
			t.Errorf("got %v %v", k, ok)
		}
		before := up.Count()
		var all []*owner
		for i := range 10 * maxStrangerReviews {
			all = append(all, a.owners.of(byToken(fmt.Sprint(i))))
		}
		begin := time.Now()
		time.Sleep(time.Second)
		if got := up.Count() - before; got != maxStrangerReviews/2-1 { // all from one address, and the slow one goes on
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
