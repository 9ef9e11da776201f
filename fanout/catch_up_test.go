package fanout_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/fanout"
)

// costly is a Sink whose writes take time, and that knows when the last one was.
type costly struct {
	silent
	cost   time.Duration
	mu     sync.Mutex
	frames int // one slice each, because all events here are sent as they came
	last   time.Time
}

//testlint:allow timer these sinks are for bubbles
func (c *costly) Write(batch [][]byte) (bool, error) {
	time.Sleep(c.cost)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frames += len(batch)
	c.last = time.Now()
	return false, nil
}

func (c *costly) seen() (frames int, last time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.frames, c.last
}

// crowded returns a world with many objects in a namespace, and how to start clients: of those objects, or
// of an empty namespace. The clock is synctest's: only writes take time.
func crowded(t *testing.T, shards int) (w *world, crowd, live func(sink fanout.Sink)) {
	w = newWorldOf(t, roomy, newFlusher(shards))
	for i := range crowdObjects {
		w.put(thing{namespace: "many", name: fmt.Sprint(i)})
	}
	crowd = func(sink fanout.Sink) {
		w.flusher.Start(w.subscribe(sel(t, "many", "", ""), fanout.Request{Start: fanout.FromSnapshot}), sink)
	}
	live = func(sink fanout.Sink) { w.flusher.Start(w.subscribe(sel(t, "live", "", ""), fanout.Request{}), sink) }
	return w, crowd, live
}

// startCosts starts clients whose writes cost so much.
func startCosts(n int, cost time.Duration, start func(fanout.Sink)) (sinks []*costly) {
	for range n {
		sinks = append(sinks, &costly{cost: cost})
		start(sinks[len(sinks)-1])
	}
	synctest.Wait()
	return sinks
}

const crowdObjects = 4 * fanout.MaxBatchFrames

// An event of a live client waits for one write to a crowd that begins with all objects, however
// large the crowd is.
func TestCrowdDelaysEventsByOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const crowd, cost = 500, 200 * time.Microsecond
		w, begin, follow := crowded(t, 1)
		live, crowds := startCosts(1, cost, follow), startCosts(crowd, cost, begin)
		events := 0
		for ; events < 100; events++ {
			time.Sleep(1700 * time.Microsecond) // anywhere within a turn
			put := time.Now()
			w.put(thing{namespace: "live", name: "x"})
			for frames := 0; frames <= events; frames, _ = live[0].seen() {
				time.Sleep(cost / 10)
				if time.Since(put) > time.Second {
					t.Fatal("the event does not come")
				}
			}
			// The current write, and the event's own.
			if _, got := live[0].seen(); got.Sub(put) > 2*cost {
				t.Fatalf("event %d came after %v", events, got.Sub(put))
			}
		}
		begun := 0
		for _, c := range crowds {
			if frames, _ := c.seen(); frames > 0 {
				begun++
			}
		}
		if done := crowdDone(crowds); begun == 0 || done == crowd {
			t.Errorf("of the crowd of %d, %d have begun and %d are done: the events were to come in between",
				crowd, begun, done)
		}
	})
}

// A crowd gets half of the time of a shard that has more events than it can write.
func TestCrowdIsNotStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const live, crowd, cost = 50, 200, 200 * time.Microsecond
		w, begin, follow := crowded(t, 1)
		startCosts(live, cost, follow)
		crowds := startCosts(crowd, cost, begin)
		begun := time.Now()
		for crowdDone(crowds) < crowd {
			w.put(thing{namespace: "live", name: "x"})
			time.Sleep(live * cost / 4)
			if time.Since(begun) > time.Minute {
				t.Fatalf("%d of %d are done after %v", crowdDone(crowds), crowd, time.Since(begun))
			}
		}
		// The time that the crowd takes alone.
		alone := time.Duration(crowd*(crowdObjects/fanout.MaxBatchFrames+1)) * cost
		if took := time.Since(begun); took > 4*alone {
			t.Errorf("the crowd took %v, and %v alone", took, alone)
		}
	})
}

// overlapping is a Sink that counts how many of its kind are written to at the same time.
type overlapping struct {
	costly
	now, most *atomic.Int32
}

func (o *overlapping) Write(batch [][]byte) (bool, error) {
	o.most.Store(max(o.most.Load(), o.now.Add(1)))
	defer o.now.Add(-1)
	return o.costly.Write(batch)
}

// Half of the shards serve a crowd while a client is sent changes, and all shards when nobody is.
func TestCrowdLeavesShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const shards, crowd, cost = 4, 400, 10 * time.Millisecond
		w, begin, follow := crowded(t, shards)
		follow(newRecorder())
		w.put(thing{namespace: "live", name: "x"})
		synctest.Wait()
		var now, most atomic.Int32
		for range crowd {
			begin(&overlapping{costly: costly{cost: cost}, now: &now, most: &most})
		}
		for range 20 {
			time.Sleep(cost)
			w.put(thing{namespace: "live", name: "x"})
		}
		time.Sleep(fanout.QuietFor - cost)
		if got := most.Load(); got != shards/2 {
			t.Errorf("%d shards served the crowd beside changes, want %d", got, shards/2)
		}
		time.Sleep(11 * cost)
		if got := most.Load(); got != shards {
			t.Errorf("%d shards served the crowd without changes, want %d", got, shards)
		}
	})
}

// crowdDone counts the members that have been sent all objects.
func crowdDone(crowd []*costly) (done int) {
	for _, c := range crowd {
		if frames, _ := c.seen(); frames >= crowdObjects {
			done++
		}
	}
	return done
}
