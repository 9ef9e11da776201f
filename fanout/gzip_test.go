package fanout_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// collection fills a world with objects of some size.
func (w *world) collection(n, size int) {
	rng := rand.New(rand.NewPCG(uint64(n), uint64(size)))
	for i := range n {
		o := named(fmt.Sprintf("x%05d", i))
		o.data = randomText(rng, size)
		w.put(o)
	}
}

// randomText does not compress to less than three quarters of its size.
func randomText(rng *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-"[rng.IntN(64)]
	}
	return string(b)
}

// Objects that compress to next to nothing still take a turn for each MiB, because compressing them
// takes time.
func TestGzipTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, roomy)
		const objects, size = 100, 80 << 10
		for i := range objects {
			o := named(fmt.Sprint(i))
			o.data = strings.Repeat("d", size)
			w.put(o)
		}
		for _, r := range []fanout.Request{{Start: fanout.FromSnapshot, Gzip: true},
			{Start: fanout.FromVersion, ResourceVersion: 100, Gzip: true}} {
			_, rec := w.client(everything(t), r)
			synctest.Wait()
			if least := objects * size / (fanout.MaxBatchPlain + 1<<19); len(rec.at) < least || len(rec.at) > 2*least {
				t.Errorf("%d writes, want %d or a few more", len(rec.at), least)
			}
			if n := len(rec.lines(t)); n != objects {
				t.Errorf("%d events", n)
			}
		}
	})
}

// Bytes that many clients share are compressed once: an event for each list, up to a bound, and
// initial events for all filters, as long as they stay the same.
func TestGzipOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, roomy)
		compressions := func(do func()) float64 {
			t.Helper()
			before := scrape(t, w.set)["watchfan_gzip_compressions_total"]
			do()
			synctest.Wait()
			return scrape(t, w.set)["watchfan_gzip_compressions_total"] - before
		}
		want := func(what string, got, least, most float64) {
			t.Helper()
			if got < least || got > most {
				t.Errorf("%s: compressed %v times, want %v to %v", what, got, least, most)
			}
		}
		want("nobody takes gzip", compressions(func() { w.collection(200, 4000) }), 0, 0)
		join := func(n int, s selector) func() {
			return func() {
				for range n {
					w.client(s, fanout.Request{Start: fanout.FromSnapshot, Gzip: true})
				}
			}
		}
		first := compressions(join(1, everything(t)))
		want("one joins", first, 200*4000/(256<<10), 200*4000/(64<<10)+1)
		want("fifty join", compressions(join(50, everything(t))), 0, 0)
		want("by another filter", compressions(join(50, sel(t, "", "!nope", ""))), 0, 0)
		want("a change", compressions(func() { w.put(named("x00100")) }), 1, 1) // each after another event
		want("another", compressions(func() { w.put(named("x00100")) }), 2, 2)
		want("some join after two changes in one object", compressions(join(50, everything(t))), 1, 3)

		want("others join", compressions(func() {
			for i := range 30 {
				join(2, sel(t, "", fmt.Sprintf("!nope%d", i), ""))()
			}
		}), 0, 0)
		want("a change for 32 lists", compressions(func() { w.put(named("x00001")) }), 1+2, 1+8)
		want("and another", compressions(func() { w.put(named("x00001")) }), 1+8, 1+8)
		want("what nobody selects",
			compressions(func() { w.put(thing{name: "y", labels: map[string]string{"nope": "1"}}) }), 1, 32)

		replay := func() {
			w.client(everything(t), fanout.Request{Start: fanout.FromVersion, ResourceVersion: 110, Gzip: true})
		}
		want("a replay", compressions(replay), 1, 13)
		want("the same", compressions(replay), 0, 0)

		join(1, everything(t))()
		for range 4 { // the runs stay as long as somebody asks for them
			time.Sleep(fanout.RunFor * 2 / 3)
			want("one joins in time", compressions(join(1, everything(t))), 0, 0)
		}
		time.Sleep(2 * fanout.RunFor)
		want("one joins later", compressions(join(1, everything(t))), 2, first+1)
	})
}

func TestRunsBound(t *testing.T) {
	runs := fanout.NewRuns()
	noise := []byte(randomText(rand.New(rand.NewPCG(1, 2)), 4<<20))
	size := 0
	for range 24 {
		f := framing.ErrorFrame(framing.JSON, noise)
		size += len(runs.Get(f).Bytes())
		if runs.Bytes() > fanout.MaxRuns {
			t.Fatalf("%d bytes kept", runs.Bytes())
		}
	}
	if size < fanout.MaxRuns+1<<20 || runs.Bytes() < fanout.MaxRuns-8<<20 {
		t.Errorf("runs of %d bytes kept, of %d", runs.Bytes(), size)
	}
}

// Half of a group takes gzip, and joins and leaves. The list keeps checksums only while such a
// member is there.
func TestGzipComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, roomy)
		plain, recorded := w.client(everything(t), fanout.Request{})
		for range 5 {
			before := len(recorded.lines(t))
			sub, r := w.client(everything(t), fanout.Request{Gzip: true})
			for range 3 {
				w.put(named("x"))
				synctest.Wait()
			}
			other, _ := w.client(everything(t), fanout.Request{Gzip: true})
			w.put(named("y"))
			synctest.Wait()
			sub.End(fanout.Ending{Reason: fanout.Gone})
			r.wantEnd(t, fanout.Gone, true)
			diff(t, r.lines(t), recorded.lines(t)[before:])
			other.End(fanout.Ending{Reason: fanout.Gone})
			if !plain.Counted() {
				t.Error("the list does not count")
			}
			synctest.Wait()
			w.put(named("z"))
			synctest.Wait()
			if plain.Counted() {
				t.Error("the list counts for nobody")
			}
		}
		plain.End(fanout.Ending{Reason: fanout.Gone})
		synctest.Wait()
		if w.cache.Stats().Subscriptions != 0 {
			t.Error("clients are left")
		}
	})
}
