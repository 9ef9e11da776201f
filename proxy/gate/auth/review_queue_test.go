package auth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/gate/fairness"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// strangerFrom is a client with an unknown token, at an address of its own.
func strangerFrom(address int, token string) Identity {
	id := byToken(token)
	id.From = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(address >> 8), byte(address)}), 32)
	return id
}

// TestReviewQueue: neither known clients nor strangers have all slots, no source has all slots of its
// class, and each class has its own bounds of waiting. That all have their turns is package fairness's.
func TestReviewQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newReviewQueue(NewKnownTokens(), NewMetrics(metrics.NewSet()))
		q.tokens.Answered(byToken("k"), "GET", 200)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		// f begins n reviews of id, and counts those under way and how many are refused.
		f := func(id Identity, n, wantKnown, wantStrangers int, wantRefused int64) {
			t.Helper()
			var refused atomic.Int64
			for range n {
				all.Go(func() {
					if end, err := q.begin(ctx, id); errors.Is(err, fairness.ErrRefused) {
						refused.Add(1)
					} else if err == nil {
						<-ctx.Done()
						end()
					}
				})
			}
			synctest.Wait()
			if known, strangers := q.known.Held(), q.strangers.Held(); known != wantKnown || strangers != wantStrangers || refused.Load() != wantRefused {
				t.Errorf("%v from %v: %d and %d under way, %d refused, want %d, %d and %d", id, id.From, known, strangers,
					refused.Load(), wantKnown, wantStrangers, wantRefused)
			}
		}
		f(strangerFrom(1, "g"), 16+maxStrangersWaitingOne, 0, 16, 0)
		f(strangerFrom(1, "h"), 1, 0, 16, 1) // an address is one source, whatever its tokens
		f(strangerFrom(2, "e"), 16+maxStrangersWaitingOne, 0, 32, 0)
		f(byCertificate("jane"), 24+maxKnownWaitingOfOne+1, 24, 32, 1)
		f(byToken("k"), 8+maxKnownWaitingOfOne+1, 32, 32, 1) // these are all slots
		f(Identity{Kind: KindOwn}, 1, 32, 32, 0)
		f(strangerFrom(3, "g"), maxStrangersWaiting-2*maxStrangersWaitingOne, 32, 32, maxStrangersWaiting-3*maxStrangersWaitingOne)
		f(strangerFrom(4, "g"), maxStrangersWaitingOne+1, 32, 32, 1)
		f(strangerFrom(5, "g"), 1, 32, 32, 1) // the class is full
		cancel()
		all.Wait()
	})
}

// TestFlowOf: who is one user, and who another.
func TestFlowOf(t *testing.T) {
	from := func(port int) net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port} }
	own, alice := Identity{Kind: KindOwn}, Identity{Kind: KindFrontProxy, User: &UserInfo{Name: "alice"}}
	flows := []fairness.Flow{
		FlowOf(byToken("x"), from(1)), FlowOf(byToken("y"), from(1)), FlowOf(alice, from(1)), FlowOf(byCertificate("bob"), from(1)),
		FlowOf(own, from(1)), FlowOf(own, from(2)), FlowOf(Identity{From: strangerFrom(1, "").From}, from(1)),
	}
	for i, a := range flows {
		if slices.Index(flows, a) != i {
			t.Errorf("%d is another's", i)
		}
	}
	if again := []fairness.Flow{FlowOf(byToken("x"), from(2)), flows[1], FlowOf(byCertificate("alice"), from(2)), flows[3],
		FlowOf(own, from(1))}; !slices.Equal(again, flows[:5]) {
		t.Error("the same are others")
	}
	for _, spelling := range spellings {
		if FlowOf(byToken(spelling), from(1)) != FlowOf(byToken(spellings[0]), from(1)) {
			t.Errorf("%q is another user", spelling)
		}
	}
	jwt := spellings[0]
	for _, other := range []string{jwt + "A", strings.ToUpper(jwt), jwt + ".c2ln", "c2lnbmVk", "..", ".", jwt[:20] + "\t" + jwt[20:]} {
		if FlowOf(byToken(other), from(1)) == FlowOf(byToken(jwt), from(1)) || FlowOf(byToken(other), from(1)) == FlowOf(byToken("..."), from(1)) {
			t.Errorf("%q is no other user", other)
		}
	}
}

// A client whose rights cannot be reviewed is told to try again, whether it reads or impersonates.
func TestBusyReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := authorizerOf(&proxytest.FakeUpstream[Identity]{Answer: fakeReviews{}.answer, Delay: time.Hour})
		var all sync.WaitGroup
		list := parse(t, "/api/v1/pods")
		for i := range 16 + maxStrangersWaitingOne {
			all.Go(func() { a.Authorize(t.Context(), byToken(fmt.Sprint(i)), list) })
		}
		synctest.Wait()
		if d := a.Authorize(t.Context(), byToken("one more"), list); d.outcome != busy {
			t.Errorf("got %d", d.outcome)
		}
		if _, ok := a.UserKey(t.Context(), byToken("one more")); !ok {
			t.Error("nobody")
		}
		for i := range 24 + maxKnownWaitingOfOne {
			all.Go(func() {
				a.Authorize(t.Context(), byCertificate("jane"),
					parse(t, fmt.Sprintf("/api/v1/namespaces/a%d/pods", i)))
			})
		}
		synctest.Wait()
		ctx, err := proxytest.ReadRequest("/api/v1/pods", "Impersonate-User: joe")
		if err != nil {
			t.Fatal(err)
		}
		_, st := a.ActAs(t.Context(), byCertificate("jane"), ctx.Header)
		if st == nil || st.Code != 429 || st.Details.RetryAfterSeconds < 5 {
			t.Errorf("got %v", st)
		}
		all.Wait()
		if d := a.Authorize(t.Context(), byToken("one more"), list); d.outcome != unclear {
			t.Errorf("got %d after they have left", d.outcome)
		}
	})
}
