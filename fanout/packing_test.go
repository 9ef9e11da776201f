package fanout_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// A cache packs its objects once its watches have been lean for some time, and unpacks them for a watch that
// is not, and after whole lists of everything. Watches that no client is sent count for nothing. Whoever reads
// gets what it always gets: see TestDelivery.
func TestPacking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := fanout.NewIndexer()
		w := newWorldWith(t, roomy, newFlusher(2), x)
		const things = 3000
		var listed []*framing.Object
		for i := range things {
			o := managedThing(fmt.Sprintf("x%04d", i))
			listed = append(listed, object(o.at(w.rv+1)))
		}
		w.rv++
		w.cache.Reset(listed, w.rv, fanout.Ending{Reason: fanout.Gone})
		whole := w.cache.Stats().Bytes
		want := func(want int, why string) {
			t.Helper()
			x.Pack(time.Now())
			packed, bytes := 0, int64(0)
			for o := range w.cache.Snapshot().All {
				if o.Packed() {
					packed++
				}
				bytes += int64(o.Size())
			}
			if s := w.cache.Stats(); packed != want || s.Bytes != bytes || s.FormBytes < 0 || want == 0 && bytes != whole {
				t.Errorf("%s: %d of %d objects are packed, in %d bytes of %d, which count as %d",
					why, packed, things, bytes, whole, s.Bytes)
			}
		}
		rest := func() { time.Sleep(fanout.PackAfter) }
		client := func(r fanout.Request) *fanout.Subscription {
			sub, _ := w.client(everything(t), r)
			return sub
		}
		rest()
		want(0, "without a watch")
		client(fanout.Request{Beside: true})
		client(fanout.Request{Variant: fanout.Lean})
		want(things, "with a lean watch")
		for i := range 10 {
			w.cache.WholeRead(things / 10)
			want(things, fmt.Sprintf("after %d lists of a tenth", i+1))
			time.Sleep(fanout.SweepIndexes)
		}
		w.cache.WholeRead(2 * things)
		want(0, "after two lists of everything")
		w.put(managedThing("x0001"))
		whole = w.cache.Stats().Bytes
		want(0, "just after")
		rest()
		want(things-1, "but for what the history has whole")
		w.put(managedThing("x0002"))
		want(things-1, "and new versions")
		other := client(fanout.Request{Variant: withoutData})
		whole += int64(event("MODIFIED", w.things["a/x0002"]).Object.As(framing.Modified).Size() - listed[2].Size())
		want(0, "with another watch")
		rest()
		want(0, "as long as it is there")
		other.End(fanout.Ending{Reason: fanout.Gone})
		synctest.Wait()
		rest()
		want(things-2, "without it")
		w.cache.Close(fanout.Ending{Reason: fanout.LaneClosed})
		synctest.Wait()
	})
}

// What is compressed for one client alone, because its objects were packed, is not kept for others.
func TestPackedRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, flusher := fanout.NewIndexer(), newFlusher(2)
		w := newWorldWith(t, roomy, flusher, x)
		var listed []*framing.Object
		for i := range 300 {
			o := managedThing(fmt.Sprintf("x%04d", i))
			listed = append(listed, object(o.at(w.rv+1)))
		}
		w.rv++
		w.cache.Reset(listed, w.rv, fanout.Ending{Reason: fanout.Gone})
		lean, _ := w.client(everything(t), fanout.Request{Variant: fanout.Lean})
		time.Sleep(fanout.PackAfter)
		x.Pack(time.Now())
		for range 3 {
			w.client(everything(t), fanout.Request{Start: fanout.FromSnapshot, Gzip: true})
			synctest.Wait()
		}
		if n := flusher.RunsKept(); n != 0 {
			t.Errorf("%d runs are kept of packed objects", n)
		}
		x.Pack(time.Now())
		for range 3 {
			w.client(everything(t), fanout.Request{Start: fanout.FromSnapshot, Gzip: true})
			synctest.Wait()
		}
		if n := flusher.RunsKept(); n != 1 {
			t.Errorf("%d runs are kept of whole objects", n)
		}
		lean.End(fanout.Ending{Reason: fanout.Gone})
		w.cache.Close(fanout.Ending{Reason: fanout.LaneClosed})
		synctest.Wait()
	})
}
