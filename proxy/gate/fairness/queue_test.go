package fairness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// of returns a seat of the user called name.
func (f *Queue) of(name string) *Seat {
	return f.Seat(User(name), MaxSeatWait, func() bool { return false }, nil)
}

// wantEmpty fails the test if anybody holds a seat, waits or is remembered.
func (f *Queue) wantEmpty(t *testing.T) {
	t.Helper()
	if f.pool.held != 0 || f.held != 0 || len(f.flows) != 0 || f.turns.Len() != 0 || f.Waiting() != 0 {
		t.Errorf("%d seats, %d flows, %d in turn, %d waits are left", f.held, len(f.flows), f.turns.Len(), f.Waiting())
	}
}

// work holds a seat for d, and pauses as often as lists do.
func (s *Seat) work(d time.Duration) {
	const step = seatTime / 4
	for ; d > 0; d -= step {
		time.Sleep(step)
		s.Pause()
	}
}

// TestFairnessBetweenUsers: a user that reads everything all the time, on many connections, delays
// another user's read by one turn at most, however long its own reads are.
func TestFairnessBetweenUsers(t *testing.T) {
	for _, processors := range []int{1, 2, 4} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			f := New(ctx, processors, Purpose{})
			var loops sync.WaitGroup
			var stop atomic.Bool
			for _, name := range []string{"a", "c"} { // together they have all seats
				for range 20 {
					loops.Go(func() {
						for !stop.Load() {
							s := f.of(name)
							if !s.Begin() {
								continue // it has waited too long behind those of its own user
							}
							s.work(time.Second)
							s.Give()
						}
					})
				}
			}
			time.Sleep(10 * time.Second)
			for i := range 50 {
				time.Sleep(time.Duration(i) * seatTime / 7)
				if held := f.Held(); held != f.bounds.Seats {
					t.Errorf("%d of %d seats are held, and somebody waits", held, f.bounds.Seats)
				}
				began := time.Now()
				s := f.of("b")
				if !s.Begin() {
					t.Fatal("refused")
				}
				// The two others may be in front of it, and a free seat comes after a turn at the
				// latest.
				if waited := time.Since(began); waited > 2*seatTime {
					t.Errorf("a short read waited for %s, more than a turn of each other user", waited)
				}
				s.Give()
			}
			stop.Store(true)
			loops.Wait()
			synctest.Wait()
			f.wantEmpty(t)
		})
	}
}

// TestFairnessWithinAUser: a short list waits for one turn of each long list of the same user.
func TestFairnessWithinAUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const long = 5
		f := New(t.Context(), 1, Purpose{})
		var lists sync.WaitGroup
		for range long {
			lists.Go(func() {
				s := f.of("a")
				s.Begin()
				s.work(10 * time.Second)
				s.Give()
			})
		}
		time.Sleep(time.Second)
		began := time.Now()
		s := f.of("a")
		s.Begin()
		if waited := time.Since(began); waited > long*seatTime {
			t.Errorf("it waited for %s, more than %d turns", waited, long)
		}
		s.Give()
		lists.Wait()
	})
}

// TestFairnessBegun: a user has begun a few reads at most. The others wait, and keep nothing.
func TestFairnessBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(t.Context(), 2, Purpose{})
		var reads sync.WaitGroup
		begun, most := 0, 0 // the work takes turns, so it needs no lock
		for range 50 {
			reads.Go(func() {
				s := f.of("a")
				if !s.Begin() {
					t.Error("refused")
					return
				}
				begun++
				most = max(most, begun)
				s.work(20 * seatTime)
				begun--
				s.Give()
			})
		}
		time.Sleep(time.Millisecond)
		began := time.Now()
		other := f.of("b")
		other.Begin()
		if waited := time.Since(began); waited > seatTime {
			t.Errorf("another user waited for %s", waited)
		}
		other.Give()
		reads.Wait()
		if want := f.bounds.SeatsEach + mostPaused; most != want {
			t.Errorf("%d reads had begun, want %d", most, want)
		}
	})
}

// TestFairnessBounds: a user's waits are bounded in number and in time, and end when its client
// leaves or the server stops. A read that is being answered is never refused.
func TestFairnessBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		counter := new(metrics.Counter)
		f := New(ctx, 1, Purpose{Refused: counter})
		holder := f.of("a")
		holder.Begin()
		var waiting sync.WaitGroup
		late, left := 0, false
		var mu sync.Mutex
		for range maxSeatWaits {
			waiting.Go(func() {
				s := f.of("a")
				s.left = func() bool { mu.Lock(); defer mu.Unlock(); return left }
				began := time.Now()
				if s.Begin() {
					t.Error("a user has two of two seats")
				}
				mu.Lock()
				defer mu.Unlock()
				if time.Since(began) == MaxSeatWait {
					late++
				}
			})
		}
		synctest.Wait()
		refused := counter.Get()
		s := f.of("a")
		began := time.Now()
		if s.Begin() || !time.Now().Equal(began) {
			t.Errorf("the %dth waited, or was let in", maxSeatWaits+1)
		}
		st := s.Refused
		if st == nil || st.Code != http.StatusTooManyRequests || st.Details.RetryAfterSeconds < apistatus.RetryLeast ||
			st.Details.RetryAfterSeconds >= apistatus.RetryLeast+apistatus.RetrySpread {
			t.Errorf("it is told %+v", st)
		}
		if counter.Get() != refused+1 {
			t.Error("it is not counted")
		}
		if other := f.of("b"); !other.Begin() {
			t.Error("another user is refused")
		} else {
			other.Give()
		}
		waiting.Wait()
		if late != maxSeatWaits {
			t.Errorf("%d of %d waited for %s", late, maxSeatWaits, MaxSeatWait)
		}

		left = true
		s = f.of("a")
		s.left = func() bool { return true }
		refused, began = counter.Get(), time.Now()
		if s.Begin() || time.Since(began) != leftEvery || counter.Get() != refused {
			t.Errorf("a client that has left waited for %s", time.Since(began))
		}
		stopped := make(chan error)
		go func() { stopped <- f.of("a").Resume() }()
		time.Sleep(2 * MaxSeatWait)
		cancel()
		if err := <-stopped; !errors.Is(err, context.Canceled) {
			t.Errorf("when the server stops: %v", err)
		}
		holder.Give()
		f.wantEmpty(t)
	})
}

// TestFairnessTurns: a flow's next turn comes after one of each other flow, even if it waits with many,
// and also if it has had all the seats that it may have.
func TestFairnessTurns(t *testing.T) {
	for each, want := range map[int]string{1: "a b c a", 2: "a b a c"} { // of two seats
		synctest.Test(t, func(t *testing.T) {
			q := NewPool(2).Queue(Bounds{Seats: 2, SeatsEach: each}, Purpose{})
			type held struct {
				name string
				give func()
			}
			begins := make(chan held)
			wait := func(name string) {
				go func() {
					give, _ := q.Take(t.Context(), User(name))
					begins <- held{name, give}
				}()
				synctest.Wait()
			}
			wait("x")
			wait("y")
			first, second := <-begins, <-begins
			for _, name := range []string{"a", "a", "a", "b"} {
				wait(name)
			}
			var order []string
			for _, give := range []func(){first.give, second.give} {
				give()
				first, second = second, <-begins
				order = append(order, second.name)
			}
			wait("c")
			for range 2 { // the one that began first ends first
				first.give()
				first, second = second, <-begins
				order = append(order, second.name)
			}
			if got := strings.Join(order, " "); got != want {
				t.Errorf("with %d seats each the turns are %s, want %s", each, got, want)
			}
			first.give()
			second.give()
			(<-begins).give()
			q.wantEmpty(t)
		})
	}
}

// TestFairnessFirst: a seat that two queues share goes to the first of them, whoever has waited longer.
func TestFairnessFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := NewPool(1)
		first, second := pool.Queue(Bounds{Seats: 1, SeatsEach: 1}, Purpose{}), pool.Queue(Bounds{Seats: 1, SeatsEach: 1}, Purpose{})
		give, _ := first.Take(t.Context(), User("a"))
		began := make(chan *Queue, 2)
		for _, q := range []*Queue{second, first} {
			go func() {
				give, _ := q.Take(t.Context(), User("b"))
				began <- q
				give()
			}()
			synctest.Wait()
		}
		give()
		if <-began != first || <-began != second {
			t.Error("the second queue was first")
		}
	})
}

// TestFairnessPair: a read of the first queue waits for one turn at most, although the other queue's long reads
// have all seats, and others wait there.
func TestFairnessPair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, q := NewPair(t.Context(), 2, Purpose{})
		var lists sync.WaitGroup
		for _, name := range []string{"a", "b", "c", "d"} {
			lists.Go(func() {
				s := q.of(name)
				s.Begin()
				s.work(time.Second)
				s.Give()
			})
		}
		time.Sleep(100 * time.Millisecond)
		for range 10 {
			began := time.Now()
			s := first.of("admin")
			if !s.Begin() || time.Since(began) > seatTime {
				t.Errorf("it has waited for %s", time.Since(began))
			}
			s.Give()
			time.Sleep(time.Millisecond)
		}
		lists.Wait()
		q.wantEmpty(t)
		first.wantEmpty(t)
	})
}

// TestFairnessRefuses: a wait beyond the bounds is refused at once. A wait that leaves makes room.
func TestFairnessRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gauge := metrics.NewSet().NewGauge("waits", nil)
		q := NewPool(2).Queue(Bounds{Seats: 2, SeatsEach: 1, Waits: 5, WaitsEach: 3}, Purpose{Waiting: gauge})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		fill := func(name string, n int) {
			for range n {
				all.Go(func() {
					if give, err := q.Take(ctx, User(name)); err == nil {
						<-ctx.Done()
						give()
					}
				})
			}
			synctest.Wait()
		}
		refuses := func(name string, want bool) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			begin := time.Now()
			give, err := q.Take(ctx, User(name))
			if err == nil {
				give()
			}
			if errors.Is(err, ErrRefused) != want || want && time.Since(begin) != 0 {
				t.Errorf("%s: got %v after %s", name, err, time.Since(begin))
			}
		}
		fill("a", 1+2)
		refuses("a", false)
		fill("a", 1)
		refuses("a", true)
		refuses("b", false)
		fill("b", 1+2)
		refuses("b", true) // there are five
		refuses("c", true)
		if n := gauge.Get(); n != 5 {
			t.Errorf("the gauge shows %v waits", n)
		}
		cancel()
		all.Wait()
		refuses("c", false)
		q.wantEmpty(t)
	})
}

// TestFairnessAtRandom: many users of two queues, which share seats, act at random at the same time.
// There are never more seats held than exist, and no user has more than its share.
func TestFairnessAtRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := NewPool(5)
		queues := []*Queue{pool.Queue(Bounds{Seats: 4, SeatsEach: 2, Waits: 20, WaitsEach: 8}, Purpose{}),
			pool.Queue(Bounds{Seats: 3, SeatsEach: 2}, Purpose{})}
		seeds := steady.Rand(t)
		var mu sync.Mutex
		held, each, all := make(map[*Queue]int), make(map[string]int), 0
		count := func(q *Queue, name string, n int) {
			mu.Lock()
			defer mu.Unlock()
			held[q], each[name], all = held[q]+n, each[name]+n, all+n
			if all > 5 || held[q] > q.bounds.Seats || each[name] > 2 {
				t.Errorf("%d seats are held, %d of one queue, %d of one user", all, held[q], each[name])
			}
		}
		var users sync.WaitGroup
		for i := range 60 {
			name, rng, q := fmt.Sprint(i%6), rand.New(rand.NewPCG(seeds.Uint64(), 0)), queues[i%2]
			users.Go(func() {
				for range 50 {
					s := q.of(name)
					if rng.IntN(4) == 0 {
						s.limit = time.Duration(rng.Int64N(int64(time.Millisecond)))
					}
					if !s.Begin() {
						continue
					}
					count(q, name, 1)
					time.Sleep(time.Duration(rng.IntN(int(100 * time.Microsecond))))
					count(q, name, -1)
					s.Give()
				}
			})
		}
		users.Wait()
		for _, q := range queues {
			q.wantEmpty(t)
		}
	})
}
