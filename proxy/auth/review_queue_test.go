package auth

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"

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
		if q.now != 0 || q.known.waiting != 0 || q.strangers.waiting != 0 ||
			len(q.known.lines)+len(q.strangers.lines) != 0 ||
			q.known.turns.Len()+q.strangers.turns.Len() != 0 || q.known.underWay+q.strangers.underWay != 0 {
			t.Errorf("left over: %+v", q.reviewQueue)
		}
		if n := len(q.order); n != 1603 {
			t.Errorf("%d reviews", n)
		}
	})
}

// A source's next turn comes after one turn of each other source, even if it has many reviews.
func TestReviewTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queueTest{reviewQueue: newReviewQueue(NewKnownTokens(), NewMetrics(metrics.NewSet()))}
		for i := range 4 {
			q.ask(t, "first", strangerFrom(i, "x"), 8) // all slots
		}
		for i, name := range []string{"a", "b", "c"} {
			q.ask(t, name, strangerFrom(10+i, name), 40*(3-i))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		q.mu.Lock()
		got := slices.Clone(q.order[32:64])
		q.mu.Unlock()
		for i, name := range []string{"a", "b", "c"} {
			n := len(slices.DeleteFunc(slices.Clone(got), func(s string) bool { return s != name }))
			if n < 10 || n > 11 {
				t.Errorf("%s: %d of 32 turns; %d", name, n, i)
			}
		}
		q.all.Wait()
	})
}

// A review beyond the bounds is refused at once. A review that leaves makes room.
func TestReviewQueueBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newReviewQueue(NewKnownTokens(), NewMetrics(metrics.NewSet()))
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		fill := func(ctx context.Context, id Identity, n int) {
			for range n {
				all.Go(func() {
					if end, err := q.begin(ctx, id); err == nil {
						<-ctx.Done()
						end()
					}
				})
			}
			synctest.Wait()
		}
		refuses := func(id Identity, want bool) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			begin := time.Now()
			end, err := q.begin(ctx, id)
			if err == nil {
				end()
			}
			if errors.Is(err, errReviewsBusy) != want || want && time.Since(begin) != 0 {
				t.Errorf("got %v after %s", err, time.Since(begin))
			}
		}
		fill(ctx, strangerFrom(0, "x"), 16+maxStrangersWaitingOne-1)
		refuses(strangerFrom(0, "x"), false)
		fill(ctx, strangerFrom(0, "x"), 1)
		refuses(strangerFrom(0, "y"), true)
		refuses(strangerFrom(1, "x"), false)
		fill(ctx, strangerFrom(1, "x"), 16)
		for i := range maxStrangersWaiting/maxStrangersWaitingOne - 1 {
			fill(ctx, strangerFrom(2+i, "x"), maxStrangersWaitingOne)
		}
		refuses(strangerFrom(99, "x"), true)
		fill(ctx, byCertificate("jane"), 24+maxKnownWaitingOfOne)
		refuses(byCertificate("jane"), true)
		refuses(byCertificate("joe"), false)
		cancel()
		all.Wait()
		refuses(strangerFrom(0, "x"), false)
		if len(q.known.lines)+len(q.strangers.lines)+q.known.waiting+q.strangers.waiting != 0 {
			t.Errorf("left over: %+v", q)
		}
	})
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
