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

// bench runs a cache with clients.
type bench struct {
	*world
	sinks []*counter
}

func newBench(b *testing.B, clients int, request func(i int) (selector, fanout.Request)) *bench {
	limits := roomy
	limits.HistoryEvents, limits.HistoryBytes = 10_000, 64<<20
	bm := &bench{world: newWorldOf(b, limits, newFlusher(runtime.GOMAXPROCS(0)))}
	for i := range clients {
		s, r := request(i)
		sink := &counter{}
		bm.flusher.Start(bm.subscribe(s, r), sink)
		bm.sinks = append(bm.sinks, sink)
	}
	return bm
}

// loop applies events again and again, and returns their number. An unbounded backlog would measure the
// garbage collector, so the first client is waited for.
func (bm *bench) loop(b *testing.B, events ...framing.Event) (n int) {
	b.ReportAllocs()
	for b.Loop() {
		bm.rv++
		apply(b, bm.cache, again(events[n%len(events)], bm.rv))
		if n++; n%256 == 0 && len(bm.sinks) > 0 {
			await(bm.sinks[0], n-128)
		}
	}
	return n
}

// drained waits until all sinks have n frames each. It fails the benchmark if one got more or has
// ended.
func (bm *bench) drained(b *testing.B, n int) {
	for i, s := range bm.sinks {
		await(s, n)
		if s.count() != n || s.ended.Load() {
			b.Fatalf("client %d got %d events, want %d; ended %v", i, s.count(), n, s.ended.Load())
		}
	}
}

// BenchmarkApply measures one event's way to all clients of one filter, without the system calls.
// pace=each waits for the delivery before the next event. pace=burst does not, to let batches grow.
func BenchmarkApply(b *testing.B) {
	for _, clients := range []int{1, 1000, 10_000} {
		for _, pace := range []string{"each", "burst"} {
			b.Run(fmt.Sprintf("clients=%d/pace=%s", clients, pace), func(b *testing.B) {
				all := everything(b)
				bm := newBench(b, clients, func(int) (selector, fanout.Request) { return all, fanout.Request{} })
				template := prepare(bm.rv, 1)[0]
				b.ReportAllocs()
				n := 0
				if pace == "burst" {
					n = bm.loop(b, template)
				}
				for pace == "each" && b.Loop() {
					bm.rv++
					apply(b, bm.cache, again(template, bm.rv))
					n++
					bm.drained(b, n)
				}
				bm.drained(b, n)
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*clients), "ns/delivery")
			})
		}
	}
}

// BenchmarkDispatch measures an event that concerns one of many filters, or about which all of them
// must be asked.
func BenchmarkDispatch(b *testing.B) {
	bench := func(name string, filters int, request func(i int) selector) {
		b.Run(fmt.Sprintf("index=%s/filters=%d", name, filters), func(b *testing.B) {
			bm := newBench(b, filters, func(i int) (selector, fanout.Request) { return request(i), fanout.Request{} })
			bm.sinks = bm.sinks[min(1, filters-1):][:1] // the one that the event concerns
			bm.drained(b, bm.loop(b, prepare(bm.rv, 1)[0]))
		})
	}
	node := func(i int) selector { return sel(b, "", "", fmt.Sprintf("spec.node=n%d", i)) }
	bench("field", 1, func(int) selector { return node(1) })
	bench("field", 5000, node)
	bench("field", 100_000, node)
	for _, filters := range []int{100, 1000} {
		bench("none", filters, func(i int) selector {
			if i == 1 {
				return everything(b)
			}
			return sel(b, "", fmt.Sprintf("!l%d,l%d", i, i), "")
		})
	}
}

// BenchmarkShards measures an event among clients that each follow one of equal shards. It is found
// for one shard, and written to its clients only.
func BenchmarkShards(b *testing.B) {
	measure := func(shards, clients int) {
		b.Run(fmt.Sprintf("shards=%d/clients=%d", shards, clients), func(b *testing.B) {
			of := func(i int) selector { return nth(everything(b), i, shards) }
			bm := newBench(b, shards*clients, func(i int) (selector, fanout.Request) {
				return of(i % shards), fanout.Request{}
			})
			template := prepare(bm.rv, 1)[0]
			mine, others := &bench{world: bm.world}, &bench{world: bm.world}
			for i, sink := range bm.sinks {
				if of(i % shards).filter(b).Match(template.Object) {
					mine.sinks = append(mine.sinks, sink)
				} else {
					others.sinks = append(others.sinks, sink)
				}
			}
			if len(mine.sinks) != clients {
				b.Fatalf("%d clients follow the event's shard, want %d", len(mine.sinks), clients)
			}
			asked, n := 0, 0
			bm.cache.OnAsk(func(*fanout.Filter) { asked++ })
			b.ReportAllocs()
			for b.Loop() {
				bm.rv++
				apply(b, bm.cache, again(template, bm.rv))
				n++
				mine.drained(b, n)
			}
			others.drained(b, 0)
			b.ReportMetric(float64(asked)/float64(n), "asked/event")
			b.ReportMetric(float64(len(mine.sinks)), "written/event")
		})
	}
	measure(1, 1000)
	measure(2, 1000)
	measure(4, 500)
	for _, shards := range []int{1, 64, 4096} {
		measure(shards, 1)
	}
}

// BenchmarkIdle measures an idle subscription: its memory in bytes, and the time of each sweep.
func BenchmarkIdle(b *testing.B) {
	const clients = 20_000
	bench := func(name string, s func(i int) selector, bookmarks bool) {
		b.Run(fmt.Sprintf("clients=%d/filters=%s/overdue=%v", clients, name, bookmarks), func(b *testing.B) {
			flusher := newFlusher(1)
			w := bareWorld(b, roomy, flusher, 100)
			before := heap()
			sink := &counter{}
			for i := range clients {
				flusher.Start(w.subscribe(s(i), fanout.Request{Timeout: time.Hour, Bookmarks: bookmarks}), sink)
			}
			flusher.Adopt()
			held := heap() - before
			now := time.Now()
			if bookmarks {
				now = now.Add(2 * time.Minute) // due, but a bookmark would say nothing new
			}
			for b.Loop() {
				flusher.Sweep(now)
			}
			b.ReportMetric(float64(held)/clients, "heap-B/client")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/clients, "ns/client")
			runtime.KeepAlive(w)
		})
	}
	all := everything(b)
	own := make([]selector, clients)
	for i := range own {
		own[i] = sel(b, "", "", fmt.Sprintf("spec.node=node-%05d", i))
	}
	bench("1", func(int) selector { return all }, false)
	bench("1", func(int) selector { return all }, true)
	bench("own", func(i int) selector { return own[i] }, false)
}

// heap returns the reachable bytes.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkReplace measures a relist of 10,000 objects with one client. One object in ten has
// changed.
func BenchmarkReplace(b *testing.B) {
	const objects = 10_000
	all := everything(b)
	bm := newBench(b, 1, func(int) (selector, fanout.Request) { return all, fanout.Request{} })
	var templates []framing.Event
	list := make([]*framing.Object, objects)
	for i := range objects {
		o := thing{namespace: fmt.Sprintf("ns%d", i%100), name: fmt.Sprintf("x%05d", i), data: strings.Repeat("d", 500)}
		templates = append(templates, event("ADDED", o.at(uint64(101+i))))
		list[i] = templates[i].Object
	}
	bm.rv = 101 + objects
	if _, err := bm.cache.Replace(list, bm.rv, time.Now()); err != nil {
		b.Fatal(err)
	}
	frames := objects
	bm.drained(b, frames)
	b.ReportAllocs()
	for b.Loop() {
		for i := 0; i < objects; i += 10 {
			bm.rv++
			list[i] = again(templates[i], bm.rv).Object
		}
		n, err := bm.cache.Replace(list, bm.rv, time.Now())
		if err != nil || n != objects/10 {
			b.Fatal(n, err)
		}
		frames += n
	}
	bm.drained(b, frames)
}

// BenchmarkScope measures a change that concerns one client, while others make the writer ask as
// many filters as they may: in the change's namespace, or in another.
func BenchmarkScope(b *testing.B) {
	labels := map[string]string{"app": "web", "pod-template-hash": "5d4f8c7b9", "tier": "front"}
	many := make([]string, 2000)
	for i := range many {
		many[i] = fmt.Sprintf("v%d", i)
	}
	bench := func(name, namespace string, s func(i int) selector) {
		b.Run("asked="+name, func(b *testing.B) {
			bm := newBench(b, 1, func(int) (selector, fanout.Request) { return sel(b, "a", "", ""), fanout.Request{} })
			for i := 0; ; i++ {
				if _, err := bm.cache.Subscribe(fanout.Request{Filter: s(i).filter(b),
					Timeout: time.Hour}); err != nil {
					break
				}
			}
			template := event("MODIFIED",
				(&thing{namespace: namespace, name: "x", data: strings.Repeat("d", 500), labels: labels}).at(1))
			if namespace != "a" { // nobody is sent anything
				bm.sinks = nil
			}
			bm.loop(b, template)
		})
	}
	bench("hundreds", "a", func(i int) selector { return hundred(b, "a", i) })
	bench("values", "a", func(i int) selector {
		return sel(b, "a", fmt.Sprintf("app notin (%s,x%d)", strings.Join(many, ","), i), "")
	})
	bench("ones", "a", func(i int) selector { return sel(b, "a", fmt.Sprintf("!l%d", i), "") })
	bench("labels", "a", func(i int) selector { return sel(b, "a", fmt.Sprintf("l%d=1", i), "") })
	bench("elsewhere", "b", func(i int) selector { return hundred(b, "a", i) })
}
