package fresh

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// apart fails the test if two of the times are less than d apart.
func apart(t *testing.T, what string, times []time.Time, d time.Duration) {
	t.Helper()
	for i := range times[1:] {
		if got := times[i+1].Sub(times[i]); got < d {
			t.Errorf("%s: %d and %d are %s apart", what, i, i+1, got)
		}
	}
}

// load has a read begin every millisecond for a time, and returns how long each took.
func (l *modelLane) load(duration time.Duration) (took []time.Duration) {
	var mu sync.Mutex
	for range int(duration / time.Millisecond) {
		l.requests.Go(func() {
			d, proved := l.prove()
			mu.Lock()
			defer mu.Unlock()
			if took = append(took, d); !proved {
				l.t.Error("a read was not proved")
			}
		})
		time.Sleep(time.Millisecond)
	}
	l.requests.Wait()
	slices.Sort(took)
	return took
}

// The first question is asked at once, and each other when the last is answered. While reads come, no
// bookmark of kube-apiserver's goes by, and no scout begins when none comes.
func TestProofsUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newModelLane(t, true)
		time.Sleep(300 * time.Millisecond)
		began := time.Now()
		took := l.load(10 * time.Second)
		asked := l.read(&l.asked)
		apart(t, "questions", asked, 2*time.Millisecond)
		// A scout that ends at a bookmark, just before the next question, is followed sooner.
		if n := len(l.read(&l.watched)); n > int(10*time.Second/scoutEvery)+3 {
			t.Errorf("%d scouts", n)
		}
		if asked[0] != began {
			t.Errorf("the first question came after %s", asked[0].Sub(began))
		}
		// A read waits for its question, and then for the next tick. The first waits for the first
		// scout's first tick.
		if most := modelTick + 20*time.Millisecond; took[len(took)*8/10] > most {
			t.Errorf("eight of ten reads took up to %s, want at most %s", took[len(took)*8/10], most)
		}
		if most := time.Second + modelTick + 20*time.Millisecond; took[len(took)-1] > most {
			t.Errorf("a read took %s, want at most %s", took[len(took)-1], most)
		}
		time.Sleep(scoutEvery)
		questions, scouts := len(l.read(&l.asked)), len(l.read(&l.watched))
		time.Sleep(time.Minute)
		if len(l.read(&l.asked)) != questions || len(l.read(&l.watched)) != scouts || l.open.Load() != 0 {
			t.Errorf("questions or scouts without a read, %d open", l.open.Load())
		}
		if most := l.mostOpen.Load(); most > mostScouts {
			t.Errorf("%d scouts at a time", most)
		}
	})
}

// A collection that is listed soon is proved by lists, each for all questions that wait. Those begin at
// once if the reads cost upstream as much, and else now and then.
func TestProofsByLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newModelLane(t, false)
		if took, proved := l.prove(); !proved || took > 10*time.Millisecond {
			t.Errorf("a read that is alone took %s", took)
		}
		took := l.load(3 * time.Second)
		if most := 10 * time.Millisecond; took[len(took)-1] > most {
			t.Errorf("a read took %s, want at most %s", took[len(took)-1], most)
		}
		apart(t, "lists", l.read(&l.listed), 2*time.Millisecond)
		apart(t, "questions", l.read(&l.asked), 2*time.Millisecond)
		before := len(l.read(&l.listed))
		for range 3 {
			l.proveFrom(l.bump(), Need{Little: true})
		}
		apart(t, "lists for little reads", l.read(&l.listed)[before:], listEvery)
		if _, failed := l.p.Attempts(); failed != 0 {
			t.Errorf("%d proofs failed", failed)
		}
	})
}

// While nothing is written, a read takes as long as a question, and one question at a time serves
// all reads. A write ends that.
func TestProofsWhileQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newModelLane(t, false)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go l.follow(ctx, time.Millisecond)
		for range 2 {
			l.put("a")
			rv := l.bump()
			for range 3 { // by a list, and then by that list
				l.proveFrom(rv, Need{})
			}
			lists, began := len(l.read(&l.listed)), len(l.read(&l.asked))
			for range 8 {
				l.requests.Go(func() {
					for range 100 {
						if took, proved := l.proveFrom(rv, Need{}); !proved || took > 5*time.Millisecond {
							t.Errorf("a read took %s, proved %t", took, proved)
						}
					}
				})
			}
			l.requests.Wait()
			asked := l.read(&l.asked)[began:]
			if apart(t, "questions", asked, 2*time.Millisecond); len(asked) > 210 || len(l.read(&l.listed)) > lists {
				t.Errorf("%d questions and %d more lists", len(asked), len(l.read(&l.listed))-lists)
			}
		}
	})
}

// A part is proved by a list of it, however large the collection is. Reads of the same part share it. As
// long as upstream is where the list was, a question is enough. While other resources are written, the
// list does not wait for a question that is not answered at once. Many parts are proved by one list of all.
func TestProofsOfParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newModelLane(t, true)
		l.fill(5 * listedPerPart / 2)
		reads := func(rv uint64, names int, want ...int) { // lists of parts, and other lists
			t.Helper()
			asked, lists, parts := len(l.read(&l.asked)), len(l.read(&l.listed)), len(l.read(&l.listedParts))
			for i := range 100 {
				l.requests.Go(func() {
					if took, proved := l.proveFrom(rv, needOf(fmt.Sprint("still", i%names))); !proved || took > 20*time.Millisecond {
						t.Errorf("a read took %s, proved %t", took, proved)
					}
				})
			}
			l.requests.Wait()
			parts = len(l.read(&l.listedParts)) - parts
			questions, got := len(l.read(&l.asked))-asked, []int{parts, len(l.read(&l.listed)) - lists - parts}
			if !slices.Equal(got, want) || questions > 2 {
				t.Errorf("%d parts at %d: %d lists of parts and of all, want %d; %d questions", names, rv, got, want, questions)
			}
		}
		l.lists.Store(int64(3 * time.Millisecond))
		reads(l.bump(), 2, 2, 0)
		reads(l.rv, 2, 0, 0)
		l.answers.Store(int64(time.Second))
		if took, _ := l.proveFrom(l.bump(), needOf("still1")); took > mostSoon+3*time.Millisecond {
			t.Errorf("beside writes of other resources, a read took %s", took)
		}
		l.answers.Store(0)
		time.Sleep(time.Second + straysFor)
		reads(l.bump(), 100, 2, 1)
	})
}

// Lists of many parts take turns.
func TestPartsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newModelLane(t, true)
		l.fill((mostParts + 8) * listedPerPart)
		l.lists.Store(int64(3 * time.Millisecond))
		rv := l.bump()
		for i := range mostParts + 4 {
			l.requests.Go(func() {
				if _, proved := l.proveFrom(rv, needOf(fmt.Sprint("still", i))); !proved {
					t.Error("a read was not proved")
				}
			})
		}
		l.requests.Wait()
		at := make(map[time.Time]int)
		for _, listed := range l.read(&l.listedParts) {
			at[listed]++
		}
		for when, n := range at {
			if n > mostParts || len(at) < 2 {
				t.Errorf("%d lists at %s, at %d times", n, when, len(at))
			}
		}
	})
}

// A list that was slow keeps others from being made for listBelieved, and no longer.
func TestSlowList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newModelLane(t, false)
		l.lists.Store(int64(listWait))
		for i, want := range []int{1, 1, 2} {
			_, proved := l.prove()
			if n := len(l.read(&l.listed)); n != want || !proved {
				t.Errorf("read %d: proved %t, %d lists, want %d", i, proved, n, want)
			}
			time.Sleep(listBelieved / 2)
		}
	})
}

// Whatever upstream does, a read shows one state that upstream had at or after the read: streams
// lag, bookmarks are late, overtake one another or are lost, scouts break off, and lists are late
// and fail.
func TestProofsSimulation(t *testing.T) {
	for _, spare := range []bool{false, true} {
		t.Run(fmt.Sprintf("spare=%t", spare), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newModelLane(t, spare)
				l.fill(listedPerPart)
				l.faults = true
				ctx, stop := context.WithCancel(t.Context())
				var world sync.WaitGroup
				world.Go(func() { l.follow(ctx, 40*time.Millisecond) })
				world.Go(func() { l.change(ctx) })
				reads, unproved := 0, 0
				var mu sync.Mutex
				for reader := range 16 {
					need := Need{}
					if reader%2 == 1 {
						need = needOf(fmt.Sprint("o", reader/2))
					}
					l.requests.Go(func() {
						for range 200 {
							_, proved := l.proveFrom(l.sometimesBump(), need)
							mu.Lock()
							if reads++; !proved {
								unproved++
							}
							mu.Unlock()
							time.Sleep(l.upTo(100 * time.Millisecond))
						}
					})
				}
				l.requests.Wait()
				stop()
				world.Wait()
				questions, scouts, lists := len(l.read(&l.asked)), len(l.read(&l.watched)), len(l.read(&l.listed))
				quiet := l.p.Series.Counter(freshnessProofs, "method", "quiet", "result", "ok").Get()
				parts := len(l.read(&l.listedParts))
				t.Logf("%d reads, %d not proved; %d questions, %d while quiet, %d scouts, %d lists, %d of parts",
					reads, unproved, questions, quiet, scouts, lists, parts)
				if unproved > reads/3 || scouts == 0 || parts == 0 || !spare && (lists == 0 || quiet == 0) {
					t.Error("the simulation proves too little")
				}
			})
		})
	}
}

// sometimesBump is bump, but for two of four seconds. It returns the current resourceVersion.
func (l *modelLane) sometimesBump() uint64 {
	if time.Since(l.started)/(2*time.Second)%2 == 0 {
		return l.bump()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rv
}

// change writes pods until ctx ends, with quiet times in between.
func (l *modelLane) change(ctx context.Context) {
	for ctx.Err() == nil {
		exchange.Sleep(ctx, l.upTo(60*time.Millisecond))
		if l.rng.IntN(20) == 0 {
			exchange.Sleep(ctx, l.upTo(4*time.Second))
		}
		name := fmt.Sprint("o", l.rng.IntN(8))
		switch l.rng.IntN(5) {
		case 0:
			l.remove(name)
		case 1:
			l.bump()
		default:
			l.put(name)
		}
	}
}

// After a restore of etcd from a backup, upstream is behind the cache until the lane notices it. The
// cache's state is then no longer upstream's, whatever its resourceVersion.
func TestProofAfterRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newModelLane(t, true)
		l.put("a")
		l.apply(l.events[1], "")
		l.mu.Lock()
		l.rv = l.p.Cache.Progress() - 1
		l.mu.Unlock()
		if proof, err := l.p.Prove(t.Context(), 3*time.Second, Need{}); err == nil {
			t.Errorf("proved by an upstream at %d: %+v", l.p.Cache.Progress()-1, proof)
		}
	})
}
