package fanout_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// prepare returns n changes of one object of about 2 KiB after resourceVersion rv. They share the
// bytes of one object, so the resourceVersion in those is wrong, but nobody here reads it.
func prepare(rv uint64, n int) []framing.Event {
	events := make([]framing.Event, n)
	template := event("MODIFIED",
		(&thing{namespace: "a", name: "x", node: "n1", data: strings.Repeat("d", 1800), managed: "kubelet"}).at(rv+1))
	for i := range events {
		events[i] = again(template, rv+1+uint64(i))
	}
	return events
}

func again(template framing.Event, rv uint64) framing.Event {
	template.Object, template.ResourceVersion = template.Object.Repeated(rv), rv
	return template
}

func apply(t testing.TB, c *fanout.Cache, ev framing.Event) {
	if err := c.Apply(ev, time.Now()); err != nil {
		t.Fatal(err)
	}
}

// await waits until a sink has n frames.
func await(s *counter, n int) {
	for spins := 0; s.count() < n; spins++ {
		switch {
		case spins < 1000:
			runtime.Gosched()
		case spins < 1_000_000:
			time.Sleep(100 * time.Microsecond) //testlint:allow timer a benchmark leaves the processors to the cache
		default:
			panic(fmt.Sprintf("lost events: %d of %d have come", s.count(), n))
		}
	}
}

// BenchmarkApply measures one event's way to all clients of one filter, without the system calls.
// pace=each waits for the delivery before the next event. pace=burst waits for the first client after 256
// events, to let batches grow: a backlog without a bound would measure the garbage collector.
func BenchmarkApply(b *testing.B) {
	for _, clients := range []int{1, 1000, 10_000} {
		for pace, every := range map[string]int{"each": 1, "burst": 256} {
			b.Run(fmt.Sprintf("clients=%d/pace=%s", clients, pace), func(b *testing.B) {
				limits := roomy
				limits.HistoryEvents, limits.HistoryBytes = 10_000, 64<<20
				w := newWorldOf(b, limits, newFlusher(runtime.GOMAXPROCS(0)))
				sinks := make([]*counter, clients)
				for i := range sinks {
					sinks[i] = &counter{}
					w.flusher.Start(w.subscribe(everything(b), fanout.Request{}), sinks[i])
				}
				template, n := prepare(w.rv, 1)[0], 0
				delivered := func(to []*counter) {
					for _, s := range to {
						await(s, n)
					}
				}
				b.ReportAllocs()
				for b.Loop() {
					w.rv++
					apply(b, w.cache, again(template, w.rv))
					if n++; every == 1 {
						delivered(sinks)
					} else if n%every == 0 {
						delivered(sinks[:1])
					}
				}
				delivered(sinks)
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*clients), "ns/delivery")
			})
		}
	}
}

// heap returns the reachable bytes.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
