package main

import (
	"context"
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
		peak, err := s.stage.Proxy.Child.Process().Peak()
		if err != nil {
			return err
		}
		m, err = s.memoryMetrics(ctx, peak)
		m = append(m, report.M("wall-ns", float64(wall)))
		return err
	})
	return m, err
}

// measureRestart kills a watchfan that has all pods in --cache-dir, and measures another one from its start
// until it has answered a list of one node, and a watch.
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
	before, err := s.upstreamLists(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	err = s.stage.Behind(ctx, s.Watchfan, flags, func() error {
		m, err = s.measureAnswers(ctx, began)
		return err
	})
	if err != nil {
		return nil, err
	}
	after, err := s.upstreamLists(ctx)
	return append(m, report.M("lists", after-before), report.M("file-B", float64(info.Size()))), err
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
	if _, err := s.stage.Proxy.TLS.Get(ctx, load.PodsPath+"?resourceVersion=0"+node.Query); err != nil {
		return nil, err
	}
	listed := time.Since(began)
	node.Query += "&resourceVersion=0"
	crowd, err := load.NewSyncers(s.stage.Proxy.TLS, 1, false, func(int) load.PodSelection { return node })
	if err != nil {
		return nil, err
	}
	defer crowd.Close()
	if _, _, err = crowd.Measure(ctx, nil); err != nil {
		return nil, err
	}
	watched := time.Since(began)
	peak, err := s.stage.Proxy.Child.Process().Peak()
	if err != nil {
		return nil, err
	}
	disk, err := server.Sum(ctx, s.stage.Proxy.Admin, "watchfan_lanes_filled_total", `source="disk"`)
	if err == nil && disk != 1 {
		err = fmt.Errorf("%v lanes were filled from disk, want 1", disk)
	}
	if err != nil {
		return nil, err
	}
	watches, err := server.Sum(ctx, s.stage.Cluster.Endpoint, "apiserver_longrunning_requests", podLanes, `verb="WATCH"`)
	if err != nil {
		return nil, err
	}
	rest, err := s.stage.Rest(ctx)
	if err != nil {
		return nil, err
	}
	m, err := s.memoryMetrics(ctx, rest[report.WatchfanTLS.Name])
	return append(m, report.M("wall-ns", float64(listed)), report.M("watch-ns", float64(watched)), report.M("peak-B", float64(peak)),
		report.M("watches", watches)), err
}

// upstreamLists returns how many lists of pods kube-apiserver has answered.
func (s *scaleBench) upstreamLists(ctx context.Context) (n float64, err error) {
	for _, verb := range []string{"LIST", "WATCHLIST"} {
		lists, err := server.Sum(ctx, s.stage.Cluster.Endpoint, "apiserver_request_total", podLanes, fmt.Sprintf("verb=%q", verb))
		if err != nil {
			return 0, err
		}
		n += lists
	}
	return n, nil
}

// leanPatience is how long a watchfan may take to hold objects as lean clients want them. It waits for five
// minutes before.
const leanPatience = 8 * time.Minute

// measureLean measures the memory of a watchfan all of whose clients are lean, once it has noticed.
func (s *scaleBench) measureLean(ctx context.Context) (m []report.Metric, err error) {
	err = s.stage.Behind(ctx, s.Watchfan, nil, func() error {
		before, err := s.stage.Rest(ctx)
		if err != nil {
			return err
		}
		crowd, err := load.NewSyncers(s.stage.Proxy.TLS, 1, false, func(int) load.PodSelection {
			return load.PodSelection{Query: "&resourceVersion=0", Objects: s.pods, View: "/views/lean"}
		})
		if err != nil {
			return err
		}
		defer crowd.Close()
		if _, _, err = crowd.Measure(ctx, nil); err != nil {
			return err
		}
		whole, err := s.memoryMetrics(ctx, 0)
		if err != nil {
			return err
		}
		objects, _ := report.Find(whole, "objects-B")
		if err := s.awaitPacked(ctx, objects); err != nil {
			return err
		}
		after, err := s.stage.Rest(ctx)
		grown := float64(after[report.WatchfanTLS.Name] - before[report.WatchfanTLS.Name])
		m = []report.Metric{report.M("grown-B", grown), report.M("objects-B", objects), report.M("x-objects", grown/objects)}
		return err
	})
	return m, err
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
