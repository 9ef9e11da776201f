//go:build throughput

package cachesuite

import (
	"context"
	"flag"
	"fmt"
	"testing"

	"k8s.io/apiserver/pkg/storage"
	upstream "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/utils/clock"
)

var (
	namespaces = flag.Int("namespaces", 10, "namespaces of BenchmarkWriteThroughput")
	podsEach   = flag.Int("pods", 30, "pods in each namespace")
	nodes      = flag.Int("nodes", 30, "nodes that the pods are on")
)

// BenchmarkWriteThroughput is Kubernetes' RunBenchmarkWriteThroughput at each server, with its
// units:
//
//	writes/s             creates, deletes and updates
//	watch-events/s       events that ten watches get together
//	list-calls/s         lists by one client that lists each 10 ms, or watches that stream a list
//	list-objs/s          the objects of those
//	watch-latency-p99-s  from just before a write until a client has its event
//
// In the suite the latency ends in a cache, and here at a client. An update reads at
// resourceVersion 0, writes, and if the object has changed meanwhile, does so again from the current
// state. A cache and a controller do the same.
func BenchmarkWriteThroughput(b *testing.B) {
	for _, s := range startServers(b) {
		if s.Crowd { // which is all the load that there may be
			s.Name, s.Crowd = "watchfan over HTTP/2", false
		}
		b.Run(s.Name, func(b *testing.B) {
			pods, _, err := s.stores()
			if err != nil {
				b.Fatal(err)
			}
			pods.serve(b)
			pods.truth, pods.lazy = pods, true // a write reads at the same server, and begins there in a cache too
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			tracker := upstream.NewWatchLatencyTracker(clock.RealClock{})
			w, err := pods.watch(ctx, place{}, storage.ListOptions{})
			if err != nil {
				b.Fatal(err)
			}
			go func() {
				for event := range w.ResultChan() {
					tracker.HandleEvent(event.Object)
				}
			}()
			data := upstream.PrepareBenchmarkData(*namespaces, *podsEach, *nodes)
			b.Run(fmt.Sprintf("Namespaces=%d/Pods=%d/Nodes=%d", *namespaces, len(data.Pods), *nodes), func(b *testing.B) {
				upstream.RunBenchmarkWriteThroughput(ctx, b, pods, data, true, tracker)
			})
		})
	}
}
