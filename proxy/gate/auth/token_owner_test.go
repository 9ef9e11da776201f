package auth

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/gate/remember"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

func tokenOf(id Identity) string { return id.Token }

func byToken(token string) Identity { return Identity{Kind: KindToken, Token: token} }

// Two identities are the same user if and only if they have the same name.
func TestUserKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := proxytest.OwnersUpstream(proxytest.Owners{"a": "jane", "b": "jane", "c": "joe", "bad": "401",
			"old": "404", "old too": "404", "forbidden": "403", "ill": "500", "gone": "unreachable",
			"garbage": "garbage", "other": "other kind", "nameless": "nameless"}, tokenOf)
		a := authorizerOf(up)
		key := func(id Identity) UserKey {
			t.Helper()
			k, ok := a.UserKey(t.Context(), id)
			if !ok {
				t.Errorf("%q: nobody", id.Token)
			}
			return k
		}
		jane := key(byToken("a"))
		if jane != (UserKey{Name: "jane"}) || key(byToken("b")) != jane || key(byCertificate("jane", "g")) != jane ||
			key(Identity{Kind: KindFrontProxy, User: &UserInfo{Name: "jane"}}) != jane {
			t.Error("jane is several users")
		}
		if key(byToken("c")) == jane {
			t.Error("joe is jane")
		}
		if key(Identity{Kind: KindOwn}) != (UserKey{}) || key(Identity{}) != (UserKey{Name: "system:anonymous"}) {
			t.Error("the proxy itself, or anonymous, is somebody")
		}
		if _, ok := a.UserKey(t.Context(), byToken("bad")); ok {
			t.Error("a token that kube-apiserver does not take is somebody's")
		}
		// If kube-apiserver does not name the owner, each token is a user.
		seen := make(map[UserKey]bool)
		for _, token := range []string{"old", "old too", "forbidden", "ill", "gone", "garbage", "other", "nameless"} {
			k := key(byToken(token))
			if k.Name != "" || k == (UserKey{}) || seen[k] || key(byToken(token)) != k {
				t.Errorf("%s: %v", token, k)
			}
			seen[k] = true
		}
		for _, spelling := range spellings { // of which the upstream knows none
			if key(byToken(spelling)) != key(byToken(spellings[0])) {
				t.Errorf("%q is another user", spelling)
			}
		}
	})
}

// TestOwnersRemember: an owner is remembered for the TTL, and all callers at one time share one
// review. Without an answer, the next caller asks again.
func TestOwnersRemember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says := proxytest.Owners{"t": "jane", "old": "404", "ill": "500"}
		up := proxytest.OwnersUpstream(says, tokenOf)
		up.Delay = time.Second
		a := authorizerOf(up)
		asked := func(token string, want int) {
			t.Helper()
			before := up.Count()
			var callers sync.WaitGroup
			for range 50 {
				callers.Go(func() { a.UserKey(t.Context(), byToken(token)) })
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
		a.Owners.ttl = 0
		time.Sleep(answerTTL)
		asked("t", 1)
		asked("t", 1)

		// A caller that waits too long gets no name.
		up.Delay = time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if k, ok := a.UserKey(ctx, byToken("slow")); !ok || k.Name != "" {
			t.Errorf("got %v %v", k, ok)
		}
		began := time.Now()
		if user, unknown := a.Owners.Of(byToken("slow")).Wait(); user != nil || unknown == "" || time.Since(began) > ReviewTimeout {
			t.Errorf("got %v because %q, after %v", user, unknown, time.Since(began))
		}
	})
}

// TestOwnersEnd: End cancels the review of a token's owner and waits for it. No review begins after
// that, and Wait does not wait for one.
func TestOwnersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &proxytest.FakeUpstream[Identity]{Delay: time.Hour}
		owners := authorizerOf(up).Owners
		first, began := owners.Of(byToken("a")), time.Now()
		synctest.Wait()
		owners.End()
		for _, w := range []*Owner{first, owners.Of(byToken("b"))} {
			if user, unknown := w.Wait(); user != nil || unknown == "" {
				t.Errorf("got %v because %q", user, unknown)
			}
		}
		if n := up.Count(); n != 1 || time.Since(began) != 0 {
			t.Errorf("asked %d times, and waited for %s", n, time.Since(began))
		}
	})
}

// Tokens that kube-apiserver does not accept do not make the owners of others forgotten.
func TestOwnersOfStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says := proxytest.Owners{"t": "jane"}
		for i := range remember.Most {
			says[fmt.Sprint(i)] = "401"
		}
		up, tokens := proxytest.OwnersUpstream(says, tokenOf), NewKnownTokens()
		o := newOwners(up, newReviewQueue(tokens, NewMetrics(metrics.NewSet())), time.Hour)
		defer o.End()
		jane := byToken("t")
		tokens.Answered(jane, "GET", 200)
		if user, _ := o.Of(jane).Wait(); user == nil || user.Name != "jane" {
			t.Fatal("the owner is not known")
		}
		for i := range remember.Most {
			stranger := byToken(fmt.Sprint(i))
			stranger.From = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 32)
			o.Of(stranger).Wait()
		}
		if before := up.Count(); o.Of(jane).user == nil || up.Count() != before {
			t.Error("the owner is asked for again")
		}
		if n := o.known.strangers.Len(); n > remember.Most {
			t.Errorf("%d strangers are remembered", n)
		}
	})
}
