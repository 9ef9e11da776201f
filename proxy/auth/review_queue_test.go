package auth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/fairness"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

// strangerFrom is a client with an unknown token, at an address of its own.
func strangerFrom(address int, token string) Identity {
	id := byToken(token)
	id.From = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(address >> 8), byte(address)}), 32)
	return id
}

// queueTest counts the reviews under way, and notes the order in which they began.
type queueTest struct {
	*reviewQueue
	mu    sync.Mutex
	now   int
	order []string
	all   sync.WaitGroup
}

// ask begins n reviews of id, each of which takes a second.
func (q *queueTest) ask(t *testing.T, name string, id Identity, n int) {
	for range n {
		q.all.Go(func() {
			end, err := q.begin(t.Context(), id)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			q.mu.Lock()
			q.now++
			q.order = append(q.order, name)
			q.mu.Unlock()
			time.Sleep(time.Second)
			q.mu.Lock()
			q.now--
			q.mu.Unlock()
			end()
		})
	}
	synctest.Wait()
}

// underWay returns the number of reviews under way, and of those that have begun for one name.
func (q *queueTest) underWay(of string) (all, begun int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, name := range q.order {
		if name == of {
			begun++
		}
	}
	return q.now, begun
}

// TestReviewQueue: neither known clients nor strangers have all slots, no source has all slots of
// its class, and each source has its turn.
func TestReviewQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queueTest{reviewQueue: newReviewQueue(NewKnownTokens(), NewMetrics(metrics.NewSet()))}
		f := func(name string, id Identity, n, wantAll, wantBegun int) {
			t.Helper()
			q.ask(t, name, id, n)
			if all, begun := q.underWay(name); all != wantAll || begun != wantBegun {
				t.Errorf("%s: %d under way and %d begun, want %d and %d", name, all, begun, wantAll, wantBegun)
			}
		}
		q.tokens.Of(byToken("k")).Answered("GET", 200)
		f("garbage", strangerFrom(1, "g"), 400, 16, 16)
		f("elsewhere", strangerFrom(2, "e"), 400, 32, 16)
		f("third", strangerFrom(3, "t"), 2, 32, 0)
		f("user", byCertificate("jane"), 400, 56, 24)
		f("known", byToken("k"), 400, 64, 8)
		f("own", Identity{Kind: KindOwn}, 1, 64, 0)
		time.Sleep(time.Second)
		synctest.Wait()
		for _, name := range []string{"third", "own"} {
			if all, begun := q.underWay(name); all != maxReviews || begun == 0 {
				t.Errorf("%s: %d under way and %d begun after one turn", name, all, begun)
			}
		}
		q.all.Wait()
		if n := len(q.order); n != 1603 {
			t.Errorf("%d reviews", n)
		}
	})
}

// Each class has its own bounds of waiting.
func TestReviewQueueBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newReviewQueue(NewKnownTokens(), NewMetrics(metrics.NewSet()))
		var all sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		// waits begins n reviews of id, under way or waiting, and one more, which is refused.
		waits := func(id Identity, n int) {
			t.Helper()
			var refused atomic.Int64
			for range n + 1 {
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
			if refused.Load() != 1 {
				t.Errorf("%d of %d reviews of %v from %v are refused, want 1", refused.Load(), n+1, id, id.From)
			}
		}
		waits(strangerFrom(0, "x"), 16+maxStrangersWaitingOne)
		waits(byCertificate("jane"), 24+maxKnownWaitingOfOne)
		waits(strangerFrom(1, "x"), 16+maxStrangersWaitingOne)
		for i := range maxStrangersWaiting/maxStrangersWaitingOne - 2 {
			waits(strangerFrom(2+i, "x"), maxStrangersWaitingOne)
		}
		waits(strangerFrom(99, "x"), 0)
		waits(byCertificate("joe"), 8+maxKnownWaitingOfOne) // the other 56 are under way
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
