package fanout_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// keeper is a stuck Sink that answers for what it keeps.
type keeper struct {
	*stuck
	kept atomic.Int64
	most int64 // that it may keep; 0 is no bound
}

func (k *keeper) Kept(bytes int64) bool {
	k.kept.Store(bytes)
	return k.most == 0 || bytes <= k.most
}

// read makes the client read what is left of a batch, if it has stopped, and so many bytes more.
func (k *keeper) read(room int) {
	k.stuck.mu.Lock()
	k.room = room
	k.stuck.mu.Unlock()
	k.answer(nil)
	synctest.Wait()
}

// begin starts a keeper with initial events.
func (w *world) begin(of selector, room int, most int64) *keeper {
	k := &keeper{stuck: newStuck(room), most: most}
	w.flusher.Start(w.subscribe(of, fanout.Request{Start: fanout.FromSnapshot}), k)
	synctest.Wait()
	return k
}

// large is an object of n bytes and more.
func large(namespace, name string, n int) thing {
	return thing{namespace: namespace, name: name, data: strings.Repeat("d", n)}
}

// fill puts n objects of 4 kB into a namespace.
func (w *world) fill(namespace string, n int) {
	for i := range n {
		w.put(large(namespace, fmt.Sprintf("o%03d", i), 4000))
	}
}

// A client of one namespace that stops within its initial events keeps that namespace's objects of
// that time, and none of the others. When it goes on, it gets what it would have got.
func TestParkedKeepsItsPart(t *testing.T) {
	for name, of := range map[string]selector{
		"namespace": sel(t, "mine", "", ""),
		"one label": sel(t, "", "app=mine", ""),
		"one field": sel(t, "", "", "spec.node=mine"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limits := roomy
				limits.HistoryEvents = 10
				w := newWorld(t, limits)
				w.fill("theirs", 40)
				put := func(i, size int) {
					o := large("mine", fmt.Sprintf("o%03d", i), size)
					o.labels, o.node = map[string]string{"app": "mine"}, "mine"
					w.put(o)
				}
				for i := range 100 {
					put(i, 4000)
				}
				var theirs []weak.Pointer[framing.Object]
				for o := range w.cache.Snapshot().All {
					if o.Namespace == "theirs" {
						theirs = append(theirs, weak.Make(o))
					}
				}
				want := w.initial(of, w.rv)
				began := w.rv
				slow := w.begin(of, 10, 0)
				time.Sleep(3 * time.Second)
				for range 10 {
					w.fill("theirs", 40)
				}
				slow.read(10)
				for i := range 5 { // of its own, before and behind its place
					put(i*8, 100)
				}
				time.Sleep(50 * time.Second)
				slow.read(10)
				time.Sleep(50 * time.Second)
				w.fill("theirs", 20) // now the history forgets what is older than 75 s
				synctest.Wait()
				runtime.GC()
				if slices.ContainsFunc(theirs, func(o weak.Pointer[framing.Object]) bool { return o.Value() != nil }) {
					t.Error("objects of another namespace are kept")
				}
				if got := slow.kept.Load(); got < fanout.MaxBatchBytes || got > fanout.MaxBatchBytes+100*5000 {
					t.Errorf("keeps %d bytes", got)
				}
				slow.read(1 << 30)
				time.Sleep(3 * time.Second)
				slow.wantLines(t, append(want, w.since(of, began)...)...)
				if got := slow.kept.Load(); got != 0 {
					t.Errorf("keeps %d bytes when it has read everything", got)
				}
			})
		})
	}
}

// What the cache has given up counts for those that keep it, in equal shares.
func TestParkedShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldOf(t, roomy, newFlusher(1))
		w.fill("all", 100)
		begin := func() *keeper { return w.begin(everything(t), 10, 0) }
		first, second := begin(), begin()
		w.fill("all", 50) // 200 kB, which two keep
		third := begin()
		w.fill("all", 25) // 100 kB, which three keep
		time.Sleep(3 * time.Second)
		share := func(k *keeper) int64 { return (k.kept.Load() - fanout.MaxBatchBytes) / 1000 }
		for i, c := range []struct {
			k           *keeper
			least, most int64
		}{{first, 130, 160}, {second, 130, 160}, {third, 33, 40}} {
			if got := share(c.k); got < c.least || got > c.most {
				t.Errorf("client %d keeps %d kB, want %d to %d", i, got, c.least, c.most)
			}
		}
	})
}

// A client that keeps too much, or takes nothing of its initial events for a minute, is evicted. One
// that goes on is not.
func TestParkedEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, roomy)
		w.fill("all", 100)
		begin := func(most int64) *keeper { return w.begin(everything(t), 10, most) }
		greedy, silent, steady := begin(fanout.MaxBatchBytes+100_000), begin(0), begin(0)
		time.Sleep(10 * time.Second)
		w.fill("all", 100)
		time.Sleep(2*time.Second + fanout.LastBytesTimeout)
		greedy.wantEnd(t, fanout.Evicted, false)
		if silent.ended() || len(greedy.evicted) != 1 {
			t.Fatal("the wrong client was evicted, or without notice")
		}
		for range 2 {
			time.Sleep(35 * time.Second)
			steady.read(10)
		}
		silent.wantEnd(t, fanout.Evicted, false)
		steady.read(1 << 30)
		if steady.ended() || len(steady.evicted) > 0 {
			t.Error("a client that reads was evicted")
		}
	})
}

// Wherever a client stops, and whatever changes meanwhile, it gets its initial events as they were,
// and then the changes.
func TestParkedModel(t *testing.T) {
	draw := steady.Rand(t)
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, roomy)
			change := func() {
				o := large([]string{"a", "b"}[draw.IntN(2)], fmt.Sprintf("o%02d", draw.IntN(60)), draw.IntN(9000))
				o.labels = map[string]string{"app": []string{"x", "y"}[draw.IntN(2)]}
				if w.things[o.key()] != nil && draw.IntN(4) == 0 {
					w.del(o.key())
				} else {
					w.put(o)
				}
			}
			for range 150 {
				change()
			}
			of := []selector{sel(t, "a", "", ""), sel(t, "", "app=x", ""), sel(t, "b", "app!=x", ""), everything(t)}[draw.IntN(4)]
			want, began := w.initial(of, w.rv), w.rv
			slow := w.begin(of, draw.IntN(100_000), 0)
			for range draw.IntN(20) {
				time.Sleep(time.Duration(draw.IntN(3000)) * time.Millisecond)
				for range draw.IntN(20) {
					change()
				}
				slow.read(draw.IntN(20_000))
			}
			slow.read(1 << 30)
			time.Sleep(time.Second)
			slow.read(1 << 30)
			time.Sleep(2 * time.Second)
			slow.wantLines(t, append(want, w.since(of, began)...)...)
		})
	}
}
