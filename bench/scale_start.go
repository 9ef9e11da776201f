package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
)

// A startRow is a row of a watchfan that starts.
type startRow struct {
	name    string
	measure func(*scaleBench, context.Context) ([]report.Metric, error)
	beside  bool // kube-apiserver sends all pods to one client, in the same round
}

var startRows = []startRow{
	{"fill", (*scaleBench).measureFill, true},
	{"restart", (*scaleBench).measureRestart, false},
	{"memory-lean", (*scaleBench).measureLean, false},
}

func (s *scaleBench) starts() []startRow {
	return slices.DeleteFunc(slices.Clone(startRows), func(r startRow) bool { return !s.Only.MatchString(r.name) })
}

// start measures the rows of starts, each round with a new watchfan. A row begins no other round after the patience.
func (s *scaleBench) start(ctx context.Context) error {
	for _, row := range s.starts() {
		begun := time.Now()
		for s.round = 1; s.round <= s.Rounds && (s.round == 1 || time.Since(begun) < s.Patience); s.round++ {
			var err error
			if row.beside {
				s.stage.Peer = report.Direct
				err = s.noteStart(ctx, row.name, func() ([]report.Metric, error) { return s.measureJoin(ctx, joinRows[0]) })
			}
			if s.stage.Peer = report.WatchfanTLS; err == nil {
				err = s.noteStart(ctx, row.name, func() ([]report.Metric, error) { return row.measure(s, ctx) })
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *scaleBench) noteStart(ctx context.Context, name string, measure func() ([]report.Metric, error)) error {
	x := report.Sample{Peer: s.stage.Peer, Axes: s.axes(name)}
	x.Metrics, x.Err = measure()
	return s.note(ctx, s.stage, "Scale", x)
}

// memoryMetrics returns memory, also as a multiple of the objects' bytes.
func (s *scaleBench) memoryMetrics(ctx context.Context, grown int64) ([]report.Metric, error) {
	objects, err := server.Sum(ctx, s.stage.Proxy.Admin, "watchfan_cache_bytes", podLanes)
	return []report.Metric{report.M("grown-B", float64(grown)), report.M("objects-B", objects), report.M("x-objects", float64(grown)/objects)}, err
}

// measureFill measures the time until a watchfan has all pods, and the most memory that it had meanwhile.
func (s *scaleBench) measureFill(ctx context.Context) (m []report.Metric, err error) {
	err = s.stage.Behind(ctx, s.Watchfan, nil, func() error {
		began := time.Now()
		if err := fillPods(ctx, s.stage.Proxy, scaleForms[0].accept, 1); err != nil {
			return err
		}
		wall := time.Since(began)
		cpu, err := s.stage.Proxy.Child.Process().CPU()
		if err != nil {
			return err
		}
		peak, err := s.stage.Proxy.Child.Process().Peak()
		if err != nil {
			return err
		}
		m, err = s.memoryMetrics(ctx, peak)
		m = append(m, report.M("cpu-ns/request", float64(cpu)), report.M("wall-ns", float64(wall)))
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
	node := joinRows[1].choice(s.pods, 0)
	node.Query += "&resourceVersion=0"
	crowd, err := load.NewSyncers(ctx, s.stage.Proxy.TLS, 1, false, func(int) load.PodSelection { return node })
	if err != nil {
		return nil, err
	}
	defer crowd.Close()
	if _, _, err = crowd.Measure(ctx, nil); err != nil {
		return nil, err
	}
	watched := time.Since(began)
	if _, err := s.stage.Proxy.TLS.Get(ctx, load.PodsPath+"?"+node.Query[1:]); err != nil {
		return nil, err
	}
	answered := time.Since(began)
	cpu, err := s.stage.Proxy.Child.Process().CPU()
	if err != nil {
		return nil, err
	}
	peak, err := s.stage.Proxy.Child.Process().Peak()
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
	m, err := s.memoryMetrics(ctx, rest[report.WatchfanTLS.Name])
	return append(m, report.M("cpu-ns/request", float64(cpu)), report.M("wall-ns", float64(watched)),
		report.M("list-ns", float64(answered)), report.M("peak-B", float64(peak))), err
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
		if m, err = s.memoryMetrics(ctx, 0); err != nil {
			return err
		}
		crowd, err := load.NewSyncers(ctx, s.stage.Proxy.TLS, 1, false, func(int) load.PodSelection {
			return load.PodSelection{Query: "&resourceVersion=0", Objects: s.pods, View: "/views/lean"}
		})
		if err != nil {
			return err
		}
		defer crowd.Close()
		if _, _, err = crowd.Measure(ctx, nil); err != nil {
			return err
		}
		objects, _ := report.Find(m, "objects-B")
		if err := s.awaitPacked(ctx, objects); err != nil {
			return err
		}
		lean, err := s.heap(ctx)
		m = []report.Metric{report.M("grown-B", lean-empty), report.M("objects-B", objects), report.M("x-objects", (lean-empty)/objects),
			report.M("x-whole", (lean-empty)/(whole-empty))}
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
		now, err := server.Sum(ctx, s.stage.Proxy.Admin, "watchfan_cache_bytes", podLanes)
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
