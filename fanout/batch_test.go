package fanout_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/watchfan/watchfan/fanout"
)

// One write to a client is bounded, so the clients of a shard take turns.
func TestBatchBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := roomy
		w := newWorld(t, limits)
		const size = 3000
		var want []string
		for i := range 2000 {
			o := thing{namespace: "a", name: fmt.Sprintf("x%05d", i)}
			if i%2 == 0 {
				o.data = strings.Repeat("d", size)
			}
			w.put(o)
		}
		want = w.since(everything(t), 0)
		s, shuffled := everything(t), w.initial(everything(t), w.rv)
		_, replay := w.client(s, resume(100))
		_, snapshot := w.client(s, fanout.Request{Start: fanout.FromSnapshot})
		held := newStuck(0)
		w.flusher.Start(w.subscribe(s, fanout.Request{Start: fanout.FromNow}), held)
		synctest.Wait()
		replay.wantLines(t, want...)
		snapshot.wantLines(t, shuffled...)
		from := w.rv
		w.put(named("first")) // held is blocked by this one, and later has to catch up with all others
		synctest.Wait()
		for i := range 2000 {
			w.put(named(fmt.Sprintf("y%05d", i)))
		}
		held.readOn()
		synctest.Wait()
		diff(t, held.lines(t), w.since(s, from))
		for name, r := range map[string]*recorder{"replay": replay, "snapshot": snapshot, "live": &held.recorder} {
			if r.most[0] > 2*fanout.MaxBatchFrames || r.most[1] > fanout.MaxBatchBytes+size+1000 {
				t.Errorf("%s: a write of %d slices and %d bytes", name, r.most[0], r.most[1])
			}
			if len(r.at) < 4 {
				t.Errorf("%s: %d writes: this test measures nothing", name, len(r.at))
			}
		}
	})
}
