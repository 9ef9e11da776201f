package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
)

// memoryMetrics returns memory, also as a multiple of the objects' bytes.
func memoryMetrics(grown, objects float64) []report.Metric {
	return []report.Metric{
		report.M("grown-B", grown), report.M("objects-B", objects), report.M("x-objects", grown/objects),
	}
}

// cacheBytes returns the bytes of the pods that watchfan caches.
func (s *scaleBench) cacheBytes(ctx context.Context) (float64, error) {
	return server.Sum(ctx, s.stage.Proxy.Admin, "watchfan_cache_bytes", podLanes)
}

// spent returns the CPU time of watchfan so far, in nanoseconds, and the most memory that it had, in bytes.
func (s *scaleBench) spent() (cpu, peak float64, err error) {
	process := s.stage.Proxy.Child.Process()
	used, err := process.CPU()
	if err != nil {
		return 0, 0, err
	}
	most, err := process.Peak()
	return float64(used), float64(most), err
}

// measureFill measures the time until a watchfan has all pods, and the most memory that it had meanwhile.
func (s *scaleBench) measureFill(ctx context.Context) (m []report.Metric, err error) {
	err = s.stage.Behind(ctx, s.Watchfan, nil, func() error {
		began := time.Now()
		if err := fillPods(ctx, s.stage.Proxy, scaleForms[0].accept, 1); err != nil {
			return err
		}
		wall := time.Since(began)
		cpu, peak, err := s.spent()
		if err != nil {
			return err
		}
		objects, err := s.cacheBytes(ctx)
		m = append(memoryMetrics(peak, objects), report.M("cpu-ns/request", cpu), report.M("wall-ns", float64(wall)))
		return err
	})
	return m, err
}

// measureRestart kills a watchfan that has all pods in --cache-dir, and measures another one from its start
// until it has answered a watch of one node, and a list.
func (s *scaleBench) measureRestart(ctx context.Context) (m []report.Metric, err error) {
	dir, err := os.MkdirTemp("", "watchfan-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	flags, file := []string{"--cache-dir=" + dir}, filepath.Join(dir, "v1_pods_json.watch")
	if err = s.stage.Behind(ctx, s.Watchfan, flags, func() error { return s.keepAndKill(ctx, file) }); err != nil {
		return nil, err
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if err = load.Sleep(ctx, settleTime); err != nil { // kube-apiserver ends the watch
		return nil, err
	}
	before, err := s.upstreamReads(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	err = s.stage.Behind(ctx, s.Watchfan, flags, func() error {
		if m, err = s.measureAnswers(ctx, began); err != nil {
			return err
		}
		after, err := s.upstreamReads(ctx)
		m = append(m, report.M("lists", after.lists-before.lists), report.M("watches", after.watches-before.watches),
			report.M("file-B", float64(info.Size())))
		return err
	})
	return m, err
}

// keepAndKill fills a watchfan, waits until it has written its file, and kills it.
func (s *scaleBench) keepAndKill(ctx context.Context, file string) error {
	err := fillPods(ctx, s.stage.Proxy, scaleForms[0].accept, 1)
	for size := int64(-1); err == nil; {
		if err = load.Sleep(ctx, 3*time.Second); err != nil {
			break
		}
		if info, failed := os.Stat(file); failed == nil && info.Size() == size {
			break
		} else if failed == nil {
			size = info.Size()
		}
	}
	s.stage.Proxy.Child.Kill()
	return err
}

// measureAnswers measures the first answers of a watchfan that began to start at a time.
func (s *scaleBench) measureAnswers(ctx context.Context, began time.Time) ([]report.Metric, error) {
	crowd, err := s.crowd(ctx, s.stage.Proxy.TLS, 1, podsOfNode)
	if err != nil {
		return nil, err
	}
	defer crowd.Close()
	if _, _, err = crowd.Measure(ctx, nil); err != nil {
		return nil, err
	}
	watched := time.Since(began)
	if _, err := s.stage.Proxy.TLS.Get(ctx, load.PodsPath+"?"+podsOfNode(s.pods, 0).Query[1:]+anyState); err != nil {
		return nil, err
	}
	answered := time.Since(began)
	cpu, peak, err := s.spent()
	if err != nil {
		return nil, err
	}
	listed, err := server.Sum(ctx, s.stage.Proxy.Admin, "watchfan_lanes_filled_total", `source="upstream"`)
	if err == nil && listed > 0 {
		err = fmt.Errorf("%v lanes were not filled from disk", listed)
	}
	if err != nil {
		return nil, err
	}
	rest, err := s.stage.Rest(ctx)
	if err != nil {
		return nil, err
	}
	objects, err := s.cacheBytes(ctx)
	return append(memoryMetrics(float64(rest[report.WatchfanTLS.Name]), objects),
		report.M("cpu-ns/request", cpu), report.M("wall-ns", float64(watched)),
		report.M("list-ns", float64(answered)), report.M("peak-B", peak)), err
}

// upstreamReads are what kube-apiserver has done for all its clients: lists of pods of all namespaces, and
// watches that are open. A watchfan that starts lists no pod once, to see how lists are written.
type upstreamReads struct{ lists, watches float64 }

func (s *scaleBench) upstreamReads(ctx context.Context) (r upstreamReads, err error) {
	sum := func(metric string, labels ...string) float64 {
		n, failed := server.Sum(ctx, s.stage.Cluster.Endpoint, metric, append(labels, podLanes)...)
		err = errors.Join(err, failed)
		return n
	}
	const requests = "apiserver_request_total"
	r.lists = sum(requests, `verb="LIST"`, `scope="cluster"`) + sum(requests, `verb="WATCHLIST"`)
	r.watches = sum("apiserver_longrunning_requests", `verb="WATCH"`)
	return r, err
}

// leanPatience is how long a watchfan may take to hold objects as lean clients want them. It waits for five
// minutes before.
const leanPatience = 8 * time.Minute

// measureLean measures the heap of a watchfan all of whose clients are lean, once it has noticed, and before
// there was a client. Resident memory would follow the heap only when the runtime wants memory again.
func (s *scaleBench) measureLean(ctx context.Context) (m []report.Metric, err error) {
	err = s.stage.Behind(ctx, s.Watchfan, nil, func() error {
		empty, err := s.heap(ctx)
		if err == nil {
			err = fillPods(ctx, s.stage.Proxy, scaleForms[0].accept, 1)
		}
		if err != nil {
			return err
		}
		whole, err := s.heap(ctx)
		if err != nil {
			return err
		}
		objects, err := s.cacheBytes(ctx)
		if err != nil {
			return err
		}
		client := load.Habit{Clients: 1}.At(s.stage.Proxy.TLS)
		defer client.Close()
		watching, end := context.WithCancel(ctx)
		defer end()
		events, err := client.Follow(watching, "/views/lean"+load.PodsPath)
		if err != nil {
			return err
		}
		go func() {
			for range events {
			}
		}()
		if err := s.awaitPacked(ctx, objects); err != nil {
			return err
		}
		lean, err := s.heap(ctx)
		m = append(memoryMetrics(lean-empty, objects), report.M("x-whole", (lean-empty)/(whole-empty)))
		return err
	})
	return m, err
}

// heap returns the bytes on watchfan's heap, after a garbage collection.
func (s *scaleBench) heap(ctx context.Context) (float64, error) {
	if _, err := s.stage.Rest(ctx); err != nil {
		return 0, err
	}
	return server.Sum(ctx, s.stage.Proxy.Admin, "go_memstats_heap_alloc_bytes")
}

// awaitPacked waits until the objects take less memory than whole, and no less from one look to the next.
func (s *scaleBench) awaitPacked(ctx context.Context, whole float64) error {
	for deadline, last := time.Now().Add(leanPatience), whole; ; {
		if err := load.Sleep(ctx, 5*time.Second); err != nil {
			return err
		}
		now, err := s.cacheBytes(ctx)
		switch {
		case err != nil:
			return err
		case now < whole && now == last:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("the objects still take %v bytes of %v", now, whole)
		}
		last = now
	}
}
