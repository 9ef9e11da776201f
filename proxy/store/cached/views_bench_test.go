package cached_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/gate/view"
)

// pod is the JSON of a pod of about 6 KB, a third of it managedFields.
func pod(n int, rv uint64, ip, heartbeat string) string {
	container := `{"name":"c%d","image":"registry.example.com/team/app:v1.2.3","args":[` + strings.Repeat(`"--flag=value",`, 20) + `"x"],` +
		`"env":[` + strings.Repeat(`{"name":"SOME_NAME","value":"some value"},`, 10) + `{"name":"X","value":"y"}],"resources":{"requests":{"cpu":"100m"}}}`
	managed := `{"manager":"kubelet","operation":"Update","fieldsV1":{` + strings.Repeat(`"f:status":{"f:conditions":{".":{}}},`, 50) + `"f:x":{}}}`
	return fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"pod-%d","namespace":"ns","uid":"u%d","resourceVersion":"%d",`+
		`"labels":{"app":"x","pod-template-hash":"abcdef"},"managedFields":[%s]},"spec":{"containers":[%s,%s],"nodeName":"node-%d"},`+
		`"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastProbeTime":%q}],"podIPs":[{"ip":%q}]}}`,
		n, n, rv, managed, fmt.Sprintf(container, 1), fmt.Sprintf(container, 2), n%100, heartbeat, ip)
}

type counter struct{ frames atomic.Int64 }

func (c *counter) Write(batch [][]byte) (bool, error) { c.frames.Add(1); return false, nil }
func (c *counter) Drain(func(error))                  {}
func (c *counter) End(fanout.Reason, bool)            {}

// podCache returns a cache of n pods, and the quiet view of what external-dns needs of them.
func podCache(b *testing.B, n int) (*fanout.Cache, *fanout.Flusher, *fanout.Variant) {
	set := metrics.NewSet()
	flusher := fanout.NewFlusher(runtime.GOMAXPROCS(0), 0, fanout.NewMetrics(set))
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() { defer close(done); flusher.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-done })
	limits := fanout.Limits{HistoryEvents: 1000, HistoryBytes: 64 << 20, ClientFrames: 1 << 20, ClientBytes: 1 << 40}
	cache, scanner := fanout.NewCache(limits, flusher), framing.NewScanner(framing.JSON, nil)
	var pods []*framing.Object
	for i := range n {
		o, err := scanner.Item([]byte(pod(i, uint64(i+1), "10.0.0.1", "")), nil)
		if err != nil {
			b.Fatal(err)
		}
		pods = append(pods, o)
	}
	if _, err := cache.Replace(pods, uint64(n), time.Now()); err != nil {
		b.Fatal(err)
	}
	views := view.New(&view.Options{Views: view.Configs{{Name: "q", Quiet: true, Resources: []view.Part{{Resource: "pods",
		Keep: []view.Kept{"metadata", "spec.nodeName", "status.phase", "status.podIPs"}, Where: "status.phase notin (Succeeded, Failed)"}}}}}, set)
	variant, err := views.Get("q").Variant(schema.GroupVersionResource{Version: "v1", Resource: "pods"}, framing.JSON, false, false)
	if err != nil {
		b.Fatal(err)
	}
	return cache, flusher, variant
}

// BenchmarkView measures an event to 1,000 watches, of whole objects and in a view, and one that the view
// does not show. bytes/op of heap is what 20,000 pods take, and what one view in use adds.
func BenchmarkView(b *testing.B) {
	for name, told := range map[string]bool{"whole": true, "told": true, "quiet": false} {
		b.Run(name, func(b *testing.B) {
			const watches = 1000
			cache, flusher, variant := podCache(b, 100)
			filter, _ := fanout.NewFilter("", nil, nil, nil)
			if name == "whole" {
				variant = fanout.Whole
			}
			filter = filter.In(variant.Trim, nil)
			sinks := make([]counter, watches)
			for i := range sinks {
				sub, err := cache.Subscribe(fanout.Request{Filter: filter, Variant: variant, Timeout: time.Hour})
				if err != nil {
					b.Fatal(err)
				}
				flusher.Start(sub, &sinks[i])
			}
			scanner, rv, spent, n := framing.NewScanner(framing.JSON, nil), uint64(100), time.Duration(0), int64(0)
			for b.Loop() {
				rv++
				ip := "10.0.0.1"
				if told {
					ip = fmt.Sprintf("10.0.%d.%d", rv/200%200, rv%200)
				}
				ev, err := scanner.Event([]byte(`{"type":"MODIFIED","object":` + pod(int(rv/2)%100, rv, ip, fmt.Sprint(rv)) + `}`))
				if err != nil {
					b.Fatal(err)
				}
				began := time.Now()
				if err := cache.Apply(ev, began); err != nil {
					b.Fatal(err)
				}
				if n++; told {
					for i := range sinks {
						for sinks[i].frames.Load() < n {
							runtime.Gosched()
						}
					}
				}
				spent += time.Since(began)
			}
			b.ReportMetric(float64(spent.Nanoseconds())/float64(n), "ns/event")
		})
	}
	b.Run("memory", func(b *testing.B) {
		for b.Loop() {
			before := heap()
			cache, flusher, variant := podCache(b, 20_000)
			whole := heap() - before
			filter, _ := fanout.NewFilter("", nil, nil, nil)
			sub, err := cache.Subscribe(fanout.Request{Filter: filter.In(variant.Trim, nil), Variant: variant, Start: fanout.FromSnapshot, Timeout: time.Hour})
			if err != nil {
				b.Fatal(err)
			}
			sink := &counter{}
			flusher.Start(sub, sink)
			for last := int64(-1); sink.frames.Load() != last; time.Sleep(100 * time.Millisecond) { //testlint:allow timer a benchmark
				last = sink.frames.Load()
			}
			b.ReportMetric(float64(whole), "whole-B")
			b.ReportMetric(float64(heap()-before-whole)/float64(whole), "view/whole")
			runtime.KeepAlive(cache)
		}
	})
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
