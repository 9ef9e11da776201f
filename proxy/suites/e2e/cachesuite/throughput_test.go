package cachesuite

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
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
// In the suite the latency ends in a cache, and here at a client. Of DeleteCreate it is that of
// creations, because a deleted object carries the time of the write before. An update reads at
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
			version, err := pods.GetCurrentResourceVersion(ctx)
			if err != nil {
				b.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- pods.follow(ctx, version, tracker) }()
			defer func() {
				cancel()
				if err := <-done; err != nil {
					b.Errorf("the watch that latency is measured by: %v", err)
				}
			}()
			data := upstream.PrepareBenchmarkData(*namespaces, *podsEach, *nodes)
			b.Run(fmt.Sprintf("Namespaces=%d/Pods=%d/Nodes=%d", *namespaces, len(data.Pods), *nodes), func(b *testing.B) {
				upstream.RunBenchmarkWriteThroughput(ctx, b, pods, data, true, tracker)
			})
		})
	}
}

// follow tells a tracker of all pods that are written after a resourceVersion, until ctx is done. A
// watch that ends is opened again where it ended: kube-apiserver ends those of a custom resource when
// its definition changes.
func (s *store) follow(ctx context.Context, version uint64, tracker *upstream.WatchLatencyTracker) error {
	for {
		w, err := s.watch(ctx, place{}, storage.ListOptions{ResourceVersion: strconv.FormatUint(version, 10)})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for event := range w.ResultChan() {
			pod, ok := event.Object.(*example.Pod)
			if !ok {
				return fmt.Errorf("got %v", event)
			}
			if version, err = s.Versioner().ObjectResourceVersion(pod); err != nil {
				return err
			}
			if event.Type != watch.Deleted {
				tracker.HandleEvent(pod)
			}
		}
	}
}
