package fanout_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// quietPods returns a world whose Flusher and Indexer do not run, with n objects in 100 namespaces: 20 on
// each node, 20 with each value of the label hash, one in a hundred with a label rare, all with a label
// app of 20 values.
func quietPods(b testing.TB, n int) *world {
	limits := roomy
	limits.HistoryEvents = 10_000
	w := bareWorld(b, limits, newFlusher(1), 100)
	w.cache.IndexWith(fanout.NewIndexer())
	w.rv++
	list := make([]*framing.Object, n)
	for i := range list {
		o := pod(i, n)
		list[i] = object(o.at(w.rv))
	}
	if _, err := w.cache.Replace(list, w.rv, time.Now()); err != nil {
		b.Fatal(err)
	}
	return w
}

func pod(i, n int) thing {
	o := named(fmt.Sprintf("web-%07d", i), "app", fmt.Sprint("app-", i%20), "hash", fmt.Sprint(i/20))
	o.namespace, o.node = fmt.Sprint("ns", i%100), fmt.Sprintf("node-%05d", i*7919%n/20)
	if i%100 == 0 {
		o.labels["rare"] = "1"
	}
	return o
}

// BenchmarkSearch measures the initial events of one client, up to the write: with an index for its
// filter and without. A result that equal filters share is found by the first of them.
func BenchmarkSearch(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		w := quietPods(b, n)
		join := func(name string, s selector, least, most int) {
			b.Run(fmt.Sprintf("objects=%d/by=%s", n, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					sub := w.subscribe(s, fanout.Request{Start: fanout.FromSnapshot})
					_, frames, _ := sub.Fill()
					sub.Cancel()
					if frames < least || frames > most {
						b.Fatalf("%d objects", frames)
					}
				}
			})
		}
		for _, indexed := range []string{"none", "index"} {
			if indexed == "index" {
				for _, key := range []string{"spec.node", "hash", "app", "nobody"} {
					w.cache.BuildIndex(key, always)
				}
			}
			join(indexed+"/node", sel(b, "", "", "spec.node=node-00007"), 15, 25)
			join(indexed+"/label", sel(b, "", "hash=7", ""), 20, 20)
			join(indexed+"/labels", sel(b, "", "hash in (7,8,9)", ""), 60, 60)
			join(indexed+"/two", sel(b, "", "app=app-7,hash=7", ""), 1, 1)
			join(indexed+"/nobody", sel(b, "", "nobody=1", ""), 0, 0)
		}
		join("shared/exists", sel(b, "", "rare", ""), n/100, n/100)
		join("shared/absent", sel(b, "", "!app", ""), 0, 0)
		join("none/not", sel(b, "", "", "spec.node!=node-00007"), n-25, n-15)
	}
}

// BenchmarkIndexedApply measures the writer's work for a change with so many indexes: if the
// indexed values stay, if one changes, and if there is a join between each two changes.
func BenchmarkIndexedApply(b *testing.B) {
	const n = 100_000
	w := quietPods(b, n)
	keys := []string{"spec.node", "hash", "app"}
	built := 0
	versions := make([][]framing.Event, 2) // of the same objects, on different nodes
	for i := range 4096 {
		o := pod(i*17%n, n)
		versions[0] = append(versions[0], event("MODIFIED", o.at(1)))
		o.node = "other-" + o.node
		versions[1] = append(versions[1], event("MODIFIED", o.at(1)))
	}
	for _, k := range []int{0, 1, 2, 3} {
		for ; built < k; built++ {
			w.cache.BuildIndex(keys[built], always)
		}
		if got := w.cache.Stats().Indexes; got != k {
			b.Fatalf("%d indexes, want %d", got, k)
		}
		for _, way := range []string{"same", "moves", "joins"} {
			b.Run(fmt.Sprintf("indexes=%d/values=%s", k, way), func(b *testing.B) {
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					version := versions[0]
					if way == "moves" {
						version = versions[i/len(version)%2]
					}
					if way == "joins" {
						w.cache.Snapshot()
					}
					w.rv++
					apply(b, w.cache, again(version[i%len(version)], w.rv))
					i++
				}
			})
		}
	}
}

// BenchmarkIndexBuild measures the building of an index.
func BenchmarkIndexBuild(b *testing.B) {
	const n = 100_000
	w := quietPods(b, n)
	for b.Loop() {
		w.cache.BuildIndex("spec.node", func() bool { runtime.Gosched(); return true })
		if w.cache.Stats().Indexes != 1 {
			b.Fatal("no index")
		}
		w.cache.DropIndexes()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/object")
}

// An index takes less than 100 bytes for an object, whether its values are many or few. With the
// changes in the history it takes as much as the metric says.
func TestIndexMemory(t *testing.T) {
	const n = 40_000
	w := quietPods(t, n)
	check := func(when string, taken int64) {
		t.Helper()
		said := w.cache.Stats().IndexBytes
		t.Logf("%s: %d bytes, %d for each object; the metric says %d", when, taken, taken/n, said)
		if taken < said/2 || taken > said*3/2 {
			t.Errorf("%s: indexes take %d bytes, the metric says %d", when, taken, said)
		}
	}
	before := heap()
	w.cache.BuildIndex("spec.node", always)
	w.cache.BuildIndex("app", always)
	taken := heap() - before
	check("after they were built", taken)
	if each := taken / n / 2; each > 100 {
		t.Errorf("%d bytes for an object and index", each)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range n {
		o := pod(rng.IntN(n), n)
		o.node = fmt.Sprintf("other-%05d", rng.IntN(n/20))
		w.rv++
		apply(t, w.cache, event("MODIFIED", o.at(w.rv)))
	}
	before = heap()
	said := w.cache.Stats().IndexBytes
	w.cache.DropIndexes()
	if taken := before - heap(); taken < said/2 || taken > said*3/2 {
		t.Errorf("with changes, indexes take %d bytes, the metric said %d", taken, said)
	}
	runtime.KeepAlive(w)
}
