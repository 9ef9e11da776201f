package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
)

// A viewsBench is `bench views`: one cluster with unmodified programs, each straight at it, and in a quiet view of a
// watchfan of its own.
type viewsBench struct {
	common
	Programs                                string // their folder
	Pods, Secrets, ConfigMaps, Rolled, Rate int

	*program
	config  string // the file with the views
	rollout rollout
	readers []*viewReader
}

func (v *viewsBench) AddFlags(fs *flag.FlagSet) {
	v.addOut(fs)
	addNumber(fs, &v.Pods, "pods", 50_000, 2, "pods in the cluster")
	addNumber(fs, &v.Secrets, "secrets", 5000, 0, "Secrets, of which a fifth are Helm's releases")
	addNumber(fs, &v.ConfigMaps, "configmaps", 5000, 0, "ConfigMaps")
	addNumber(fs, &v.Rolled, "rolled", 10_000, 1, "pods that are replaced")
	addSetting(fs, &v.Rate, "rate", 50, "pods that are replaced each second", between(1, 1000))
	fs.StringVar(&v.Programs, "programs", "bin",
		"`folder` of the programs (make bin/controllers bin/kube-state-metrics); those that are not there are left out")
}

func (v *viewsBench) Validate() error {
	if v.Rolled >= v.Pods {
		return errors.New("--rolled must be less than --pods")
	}
	return v.validate(true, 0)
}

// A viewRow is an unmodified program, straight and in a view. All of them ask for protobuf.
type viewRow struct {
	program, view string
	pods          string   // begins the line of each pod that it knows, at /metrics or in $STATE; "" if it does not say
	args          []string // with $KUBECONFIG, $PORT and $STATE
}

var (
	controllers = []string{"--kubeconfig", "$KUBECONFIG", "--pprof", "127.0.0.1:$PORT", "", "$STATE"}
	viewRows    = []viewRow{
		{"controllers", "rollout", "*v1.Pod ", controllers},
		{"controllers", "kgateway", "*v1.Pod ", controllers},
		{"kube-state-metrics", "kube-state-metrics", "kube_pod_info{", []string{"--kubeconfig", "$KUBECONFIG",
			"--host", "127.0.0.1", "--port", "$PORT", "--telemetry-host", "127.0.0.2", "--telemetry-port", "$PORT"}},
		{"external-dns", "external-dns", "", []string{"--kubeconfig", "$KUBECONFIG", "--provider", "inmemory", "--registry", "noop",
			"--source", "service", "--source", "ingress", "--interval", "24h", "--metrics-address", "127.0.0.1:$PORT"}},
	}
)

func (v *viewsBench) sections() []*report.Section {
	return []*report.Section{{
		Bench: "Views", Title: "Unmodified programs, straight and through watchfan in quiet views",
		Note: "Heap = live after the sync. Peak = of resident memory until then. MB = what the process has read from its sockets. Events are those of pods. " +
			"Forms = watchfan's memory for pods in the view, beside that of their objects.",
		Columns: []report.Column{
			report.Col("heap MiB", "heap-B", 1.0/(1<<20)), report.Col("peak MiB", "peak-RSS-B", 1.0/(1<<20)),
			report.Col("sync: CPU s", "sync-cpu-ns", 1e-9), report.Col("MB", "sync-B", 1e-6),
			report.Col("rollout: CPU s", "rollout-cpu-ns", 1e-9), report.Col("MB", "rollout-B", 1e-6), report.Col("events", "rollout-events", 1),
			report.Col("forms MiB", "forms-B", 1.0/(1<<20)), report.Col("of the objects", "forms/objects", 1),
		},
		Costs: 7,
	}}
}

// A viewReader is a program of a row at one peer.
type viewReader struct {
	viewRow
	*server.Program
	peer    report.Peer
	proxy   *server.Proxy // of its own; nil at kube-apiserver
	used    viewUse
	metrics []report.Metric
	err     error // why it ended
}

// run starts the cluster, and stops all programs in the end.
func (v *viewsBench) run(ctx context.Context, p *program) (err error) {
	v.program, p.round = p, 1
	if v.rollout, err = recordedRollout(); err != nil {
		return err
	}
	views, err := quietViews()
	if err != nil {
		return err
	}
	if err := v.startStage(ctx, v.Devcluster, new(load.Collection), 0, 0); err != nil {
		return err
	}
	defer func() {
		for _, r := range v.readers {
			r.stop()
		}
	}()
	if v.config, err = v.stage.Cluster.WriteFile("views.yaml", []byte(views)); err != nil {
		return err
	}
	return v.measure(ctx)
}

func (r *viewReader) stop() {
	if r.Program != nil {
		r.Stop()
	}
	if r.proxy != nil {
		r.proxy.Child.Stop()
	}
}

// measure lets all programs sync, and rolls pods over before all of them at once.
func (v *viewsBench) measure(ctx context.Context) error {
	if err := v.fill(ctx); err != nil {
		return err
	}
	for _, row := range viewRows {
		if err := v.start(ctx, row); err != nil {
			return fmt.Errorf("%s: %w", row.program, err)
		}
	}
	if err := v.noteUse(ctx, "sync"); err != nil {
		return err
	}
	for _, r := range v.running() {
		if err := r.memory(ctx); err != nil {
			return fmt.Errorf("%s: %w", r.program, err)
		}
		v.say("%s in the view %s, %v: %v", r.program, r.view, r.peer, r.metrics)
	}
	if err := v.noteUse(ctx, ""); err != nil { // without what the profiles have cost
		return err
	}
	v.say("rolling over %d pods", v.Rolled)
	if err := v.rollout.over(ctx, v.stage.Writer, v.Rolled, v.Rate); err != nil {
		return err
	}
	if err := v.noteUse(ctx, "rollout"); err != nil {
		return err
	}
	for _, r := range v.readers {
		x := report.Sample{Peer: r.peer, Axes: report.Axes("program", r.program, "view", r.view), Metrics: r.metrics,
			Err: errors.Join(r.err, r.check(ctx, v.Pods))}
		if err := v.note(ctx, nil, "Views", x); err != nil {
			return err
		}
	}
	return nil
}

// fill creates the objects. The pods that will be replaced are in a namespace of their own.
func (v *viewsBench) fill(ctx context.Context) error {
	if err := load.CreatePods(ctx, v.stage.Writer, 0, v.Pods-v.Rolled, load.NewPod, v.say); err != nil {
		return err
	}
	v.say("creating the others, Secrets and ConfigMaps")
	w := v.stage.Writer
	return errors.Join(v.rollout.create(ctx, w, v.Rolled), createFiles(ctx, w, v.Secrets, v.ConfigMaps))
}

// start starts a program straight at kube-apiserver, and then in its view.
func (v *viewsBench) start(ctx context.Context, row viewRow) error {
	path, err := exec.LookPath(filepath.Join(v.Programs, row.program))
	if err != nil {
		v.say("left out: %v", err)
		return nil
	}
	for _, peer := range []report.Peer{report.Direct, report.WatchfanTLS} {
		r := &viewReader{viewRow: row, peer: peer}
		v.readers = append(v.readers, r)
		if peer != report.Direct {
			if r.proxy, err = server.StartProxy(ctx, v.Watchfan, v.stage.Cluster, "--config", v.config); err != nil {
				return err
			}
			// A client at a cache that is not filled gets whole objects after a while.
			if err := fillPods(ctx, r.proxy, scaleForms[1].accept, 1); err != nil {
				return err
			}
		}
		if r.Program, err = v.stage.Cluster.StartProgram(r.proxy, "/views/"+row.view, path, row.args...); err != nil {
			return err
		}
		if err := v.settle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// running returns the programs that have not ended. external-dns does if its sync takes a minute.
func (v *viewsBench) running() (all []*viewReader) {
	for _, r := range v.readers {
		if r.err = r.Alive(); r.proxy != nil {
			r.err = errors.Join(r.err, r.proxy.Child.Alive())
		}
		if r.err == nil {
			all = append(all, r)
		}
	}
	return all
}

// noteUse waits until all is quiet, and notes what each program has used since the last time, if that has a name.
func (v *viewsBench) noteUse(ctx context.Context, what string) error {
	if err := v.settle(ctx); err != nil {
		return err
	}
	for _, r := range v.running() {
		now, err := v.use(ctx, r)
		if err != nil {
			return err
		}
		if what != "" {
			r.metrics = append(r.metrics, report.M(what+"-cpu-ns", now.cpu-r.used.cpu), report.M(what+"-B", now.bytes-r.used.bytes),
				report.M(what+"-events", now.events-r.used.events))
		}
		r.used = now
	}
	return nil
}

// settle waits until all processes together have used little for some seconds.
func (v *viewsBench) settle(ctx context.Context) error {
	for quiet := 0; quiet < 3; quiet++ {
		processes := v.stage.Processes()
		for i, r := range v.running() {
			processes = append(processes, measure.Process{Name: fmt.Sprint(r.program, i), PID: r.Cmd.Process.Pid})
			if r.proxy != nil {
				processes = append(processes, measure.Process{Name: fmt.Sprint("watchfan", i), PID: r.proxy.Child.Cmd.Process.Pid})
			}
		}
		meter, err := measure.StartMeter(processes)
		if err := errors.Join(load.Sleep(ctx, 2*time.Second), v.stage.Alive()); err != nil {
			return err
		}
		used, failed := meter.Read()
		if err != nil || failed != nil || used.Percent(report.ServersCPU(&used)) > 20 { // errors: one has ended
			quiet = -1
		}
	}
	return nil
}

// A viewUse is what a program has used so far, and the events of pods that it was sent.
type viewUse struct{ cpu, bytes, events float64 }

func (v *viewsBench) use(ctx context.Context, r *viewReader) (u viewUse, err error) {
	pid := r.Cmd.Process.Pid
	cpu, err := r.Process().CPU()
	io, failed := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err = errors.Join(err, failed); err != nil {
		return u, errors.Join(err, r.Alive())
	}
	u.cpu = float64(cpu)
	if _, err := fmt.Sscanf(string(io), "rchar: %f", &u.bytes); err != nil { // sockets are among it
		return u, err
	}
	if r.proxy == nil {
		u.events, err = server.Sum(ctx, v.stage.Cluster.Endpoint, "apiserver_watch_cache_events_received_total", podLanes)
	} else {
		u.events, err = server.Sum(ctx, r.proxy.Admin, "watchfan_delivered_events_total", podLanes)
	}
	return u, err
}

var heapAlloc = regexp.MustCompile(`# HeapAlloc = (\d+)`)

// memory notes the memory of the program, and that for its view in watchfan.
func (r *viewReader) memory(ctx context.Context) error {
	peak, err := r.Process().Peak()
	if err != nil {
		return err
	}
	r.metrics = append(r.metrics, report.M("peak-RSS-B", float64(peak)))
	profile, _ := r.At.Get(ctx, "/debug/pprof/heap?gc=1&debug=1") // some programs have none
	heap := 0.0
	if match := heapAlloc.FindSubmatch(profile); match != nil {
		heap, err = strconv.ParseFloat(string(match[1]), 64)
	} else {
		heap, err = r.collected(ctx)
	}
	r.metrics = append(r.metrics, report.M("heap-B", heap))
	if err != nil || r.proxy == nil {
		return err
	}
	forms, err := server.Sum(ctx, r.proxy.Admin, "watchfan_cache_form_bytes", podLanes)
	objects, failed := server.Sum(ctx, r.proxy.Admin, "watchfan_cache_bytes", podLanes)
	r.metrics = append(r.metrics, report.M("forms-B", forms), report.M("forms/objects", forms/objects))
	return errors.Join(err, failed)
}

// collected returns the heap of a program without profiles after its next garbage collection; Go waits for two minutes
// at most.
func (r *viewReader) collected(ctx context.Context) (float64, error) {
	for start := time.Now(); ; {
		last, err := server.Sum(ctx, r.At, "go_memstats_last_gc_time_seconds")
		if err != nil {
			return 0, err
		}
		if last > float64(start.Unix()) {
			return server.Sum(ctx, r.At, "go_memstats_heap_alloc_bytes")
		}
		if err := load.Sleep(ctx, time.Second); err != nil {
			return 0, err
		}
	}
}

// check returns an error unless the program knows so many pods in the end.
func (r *viewReader) check(ctx context.Context, want int) error {
	if r.pods == "" {
		return nil
	}
	page, err := r.At.Get(ctx, "/metrics")
	if err != nil {
		r.Stop() // it says then what it knows
		if page, err = os.ReadFile(r.State); err != nil {
			return err
		}
	}
	if got := bytes.Count(page, []byte("\n"+r.pods)); got != want {
		return fmt.Errorf("it knows %d pods, want %d", got, want)
	}
	return nil
}

var yamlViews = regexp.MustCompile("(?s)```yaml\nviews:\n(.*?)```")

// quietViews returns a configuration with the view rollout, and with the ready-made ones of deploy/VIEWS.md.
func quietViews() (string, error) {
	page, err := os.ReadFile("deploy/VIEWS.md")
	if err != nil {
		return "", err
	}
	_, ready, _ := strings.Cut(string(page), "## Ready-made views")
	config := `apiVersion: watchfan.io/v1alpha1
kind: WatchfanConfiguration
views:
  - name: rollout
    quiet: true
    resources:
      - resource: pods
        keep: [metadata, spec.nodeName, status.podIPs, status.phase]
        where: status.phase notin (Succeeded, Failed)
`
	for _, block := range yamlViews.FindAllStringSubmatch(ready, -1) {
		config += block[1]
	}
	return config, nil
}
