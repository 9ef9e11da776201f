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

// The first question is asked at once, and others 100 ms apart, whatever the load, unless the last was
// easy. While reads come, no bookmark of kube-apiserver's goes by, and no scout begins when none comes.
func TestProofsUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newModelLane(t, true)
		time.Sleep(300 * time.Millisecond)
		began := time.Now()
		took := l.load(10 * time.Second)
		asked := l.read(&l.asked)
		apart(t, "questions", asked, easyEvery)
		if most := int(10*time.Second/questionEvery) + 2*int(10*time.Second/modelTick); len(asked) > most { // bookmarks make some easy
			t.Errorf("%d questions, want at most %d", len(asked), most)
		}
		// A scout that ends at a bookmark, just before the next question, is followed sooner.
		if n := len(l.read(&l.watched)); n > int(10*time.Second/scoutEvery)+3 {
			t.Errorf("%d scouts", n)
		}
		if asked[0] != began {
			t.Errorf("the first question came after %s", asked[0].Sub(began))
		}
		// A read waits for its question, and then for the next tick. The first waits for the first
		// scout's first tick.
		if most := questionEvery + modelTick + 20*time.Millisecond; took[len(took)*8/10] > most {
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

// A collection that is listed soon is proved by lists, each for all questions that wait, and the first
// at once.
func TestProofsByLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newModelLane(t, false)
		if took, proved := l.prove(); !proved || took > 10*time.Millisecond {
			t.Errorf("a read that is alone took %s", took)
		}
		took := l.load(3 * time.Second)
		if most := 2*questionEvery + 50*time.Millisecond; took[len(took)-1] > most {
			t.Errorf("a read took %s, want at most %s", took[len(took)-1], most)
		}
		apart(t, "lists", l.read(&l.listed), questionEvery)
		apart(t, "questions", l.read(&l.asked), easyEvery)
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
				l.proveFrom(rv)
			}
			lists, began := len(l.read(&l.listed)), len(l.read(&l.asked))
			for range 8 {
				l.requests.Go(func() {
					for range 100 {
						if took, proved := l.proveFrom(rv); !proved || took > 5*time.Millisecond {
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

// While reads pass through and none is proved, upstream is asked once a second whether it is quiet.
func TestWorth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newModelLane(t, false)
		time.Sleep(busyFor)
		for i, want := range []int{0, 0, 1, 1, 0, 1} { // the first two answers say that it is, and the fourth that it was not
			if i == 3 {
				l.bump()
			}
			for range 4 {
				if got := l.p.Worth(); got != want {
					t.Errorf("second %d: %d reads are worth a proof, want %d", i, got, want)
				}
			}
			time.Sleep(quietFor)
		}
		apart(t, "questions", l.read(&l.asked), quietFor)
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
				l.faults = true
				ctx, stop := context.WithCancel(t.Context())
				var world sync.WaitGroup
				world.Go(func() { l.follow(ctx, 40*time.Millisecond) })
				world.Go(func() { l.change(ctx) })
				reads, unproved := 0, 0
				var mu sync.Mutex
				for range 8 {
					l.requests.Go(func() {
						for range 200 {
							_, proved := l.proveFrom(l.sometimesBump())
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
				t.Logf("%d reads, %d not proved; %d questions, %d while quiet, %d scouts, %d lists", reads, unproved, questions, quiet, scouts, lists)
				if unproved > reads/3 || scouts == 0 || !spare && (lists == 0 || quiet == 0) {
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
		if proof, err := l.p.Prove(t.Context(), 3*time.Second); err == nil {
			t.Errorf("proved by an upstream at %d: %+v", l.p.Cache.Progress()-1, proof)
		}
	})
}
