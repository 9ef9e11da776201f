package assess

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"
)

// metricsOf writes the metrics of a kube-apiserver after so many seconds of a steady load: watches of
// pods and of deployments, of which each gets all events.
type load struct {
	pods, deployments float64 // watches
	events            float64 // per second, of pods
	starts            float64 // watches of pods that have begun and ended
	restarts          float64 // per second, of such watches
	objects           float64 // that each start takes
	cpu               float64 // cores
	old               bool    // labels as before Kubernetes 1.34
}

func (l load) after(seconds float64) string {
	var b strings.Builder
	begun := l.starts + l.restarts*seconds
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# HELP apiserver_longrunning_requests [STABLE] Gauge of all active long-running apiserver requests.")
	line("# TYPE apiserver_longrunning_requests gauge")
	open := func(resource, group, version string, n float64) {
		line(`apiserver_longrunning_requests{component="apiserver",group=%q,resource=%q,scope="cluster",subresource="",verb="WATCH",version=%q} %g`, group, resource, version, n)
	}
	open("pods", "", "v1", l.pods)
	open("deployments", "apps", "v1", l.deployments)
	line(`apiserver_longrunning_requests{component="apiserver",group="",resource="pods",scope="resource",subresource="log",verb="CONNECT",version="v1"} 17`)
	line(`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="cluster",subresource="",verb="WATCH",version="v1"} %g`, begun)
	line(`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="cluster",subresource="",verb="LIST",version="v1"} 99`)
	line("# TYPE apiserver_watch_events_sizes histogram")
	initial := (l.pods + begun) * l.objects
	deliveries := l.pods*l.events*seconds + initial
	labels := `group="",resource="pods",version="v1"`
	if l.old {
		labels = `group="",kind="Pod",version="v1"`
	}
	line(`apiserver_watch_events_sizes_bucket{%s,le="+Inf"} %g`, labels, deliveries)
	line(`apiserver_watch_events_sizes_sum{%s} %g`, labels, deliveries*2000)
	line(`apiserver_watch_events_total{%s} %g`, labels, deliveries)
	cached := `group="",resource="pods"`
	if l.old {
		cached = `resource="pods"`
	}
	line(`apiserver_watch_cache_events_received_total{%s} %g`, cached, l.events*seconds)
	line(`apiserver_watch_cache_events_dispatched_total{%s} %g`, cached, 2*l.events*seconds) // bookmarks too
	line(`apiserver_init_events_total{%s} %g`, cached, initial)
	line(`apiserver_cache_list_returned_objects_total{%s} 0`, cached)
	if l.old {
		line(`apiserver_storage_objects{resource="deployments.apps"} 7`)
		line(`apiserver_storage_objects{resource="pods"} 5000`)
	} else {
		line(`apiserver_resource_objects{group="apps",resource="deployments"} 7`)
		line(`apiserver_resource_objects{group="",resource="pods"} 5000`)
	}
	line("process_cpu_seconds_total %g", 100+l.cpu*seconds)
	line("process_resident_memory_bytes 2e+09")
	line("process_start_time_seconds 1.7e+09")
	line(`kubernetes_build_info{git_version="v1.36.3",major="1"} 1`)
	return b.String()
}

// assessed returns the assessment of a load over ten seconds.
func assessed(t *testing.T, l load, replicas int) *Assessment {
	t.Helper()
	var samples [2]*sample
	for i, seconds := range []float64{100, 110} {
		families, err := scrape(strings.NewReader(l.after(seconds)))
		if err != nil {
			t.Fatal(err)
		}
		samples[i] = newSample(families, time.Unix(int64(seconds), 0))
	}
	a, err := assess(samples[0], samples[1], replicas)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func near(got, want float64) bool { return math.Abs(got-want) <= 1e-9*math.Max(1, math.Abs(want)) }

// The counts of a known load come out, for the metrics of old and new versions.
func TestAssess(t *testing.T) {
	for _, old := range []bool{false, true} {
		a := assessed(t, load{pods: 1000, deployments: 3, events: 50, starts: 1000, objects: 20, cpu: 1.5, old: old}, 3)
		if len(a.Resources) != 2 || len(a.Missing) != 0 || a.Seconds != 10 || a.Version != "v1.36.3" {
			t.Fatalf("old=%t: got %+v", old, a)
		}
		pods, deployments := a.Resources[0], a.Resources[1]
		for what, got := range map[string][2]float64{
			"watches":             {pods.Watches, 1000},
			"events":              {pods.Events, 50},
			"deliveries":          {pods.Deliveries, 50_000},
			"bytes":               {pods.Bytes, 100e6},
			"stored":              {pods.Stored, 5000},
			"watches left":        {pods.WatchesLeft, 3 * representations},
			"deliveries left":     {pods.DeliveriesLeft, 50 * 3 * representations},
			"saved":               {pods.SavedCPU.Mid, (50_000 - 50*3*representations) * deliveryCost.apiserver.Mid},
			"few watches stay":    {deployments.WatchesLeft, 3},
			"total":               {a.Total.Watches, 1003},
			"storm":               {a.Storm.Objects, 20_000},
			"CPU":                 {a.APIServer.CPU, 1.5},
			"watches' CPU":        {a.APIServer.WatchCPU.Mid, 50_000 * deliveryCost.apiserver.Mid},
			"never all of it":     {a.APIServer.WatchCPU.High, min(1.5, 50_000*deliveryCost.apiserver.High)},
			"watches' memory":     {a.APIServer.WatchMemory.Mid, 1003 * watchMemory.apiserver.Mid},
			"tier's CPU":          {a.Tier.CPU.Mid, 50_000 * deliveryCost.watchfan.Mid},
			"reviews":             {a.APIServer.Reviews.High, 1003 / 63.0 * 0.85e-3},
			"reviews of no token": {a.APIServer.Reviews.Low, 0},
		} {
			if !near(got[0], got[1]) {
				t.Errorf("old=%t, %s: got %g, want %g", old, what, got[0], got[1])
			}
		}
		if m := a.Tier.Memory; m.Low < 3*processMemory || m.Mid < m.Low || m.High < m.Mid {
			t.Errorf("the tier's memory: %+v", m)
		}
	}
}

// kube-apiserver counts the events that a watch begins with among all events. They are not deliveries.
func TestInitialEvents(t *testing.T) {
	pods := assessed(t, load{pods: 1000, events: 50, restarts: 2, objects: 20}, 3).Resources[0]
	if !near(pods.Deliveries, 50_000) || !near(pods.Objects, 2*20) {
		t.Errorf("got %g deliveries and %g objects a second, want 50000 and 40", pods.Deliveries, pods.Objects)
	}
}

// The metrics of a real kube-apiserver are read as testdata/README says.
func TestCaptured(t *testing.T) {
	var samples [2]*sample
	for i, name := range []string{"before", "after"} {
		f, err := os.Open("testdata/" + name + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		families, err := scrape(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		samples[i] = newSample(families, time.Unix(int64(10*i), 0))
	}
	a, err := assess(samples[0], samples[1], 1)
	if err != nil {
		t.Fatal(err)
	}
	if a.Verdict != NotNeeded || a.Version != "v1.36.3" || len(a.Missing) != 0 || len(a.Resources) != 1 {
		t.Fatalf("got %+v", a)
	}
	r := a.Resources[0]
	for what, got := range map[string][2]float64{
		"watches":    {r.Watches, 20 + 2}, // two are kube-apiserver's own
		"events":     {r.Events * 10, 20},
		"deliveries": {r.Deliveries * 10, 20 * 20},
		"bytes":      {r.Bytes * 10, 262325 - 13925},
		"left":       {r.WatchesLeft, representations},
		"CPU":        {a.APIServer.CPU * 10, 1.54 - 1.38},
	} {
		if !near(got[0], got[1]) {
			t.Errorf("%s: got %g, want %g", what, got[0], got[1])
		}
	}
}

// A cluster that needs watchfan is told from one that does not.
func TestVerdicts(t *testing.T) {
	f := func(want Verdict, l load) {
		t.Helper()
		if a := assessed(t, l, 3); a.Verdict != want || len(a.Reasons) == 0 || sentences[want] == "" {
			t.Errorf("%+v: got %s, want %s; %v", l, a.Verdict, want, a.Reasons)
		}
	}
	f(NotNeeded, load{cpu: 0.1})
	f(NotNeeded, load{pods: 200, deployments: 200, events: 5, objects: 100, cpu: 0.3})
	f(NotNeeded, load{pods: 300, events: 1, cpu: 8})
	f(HelpsInStorms, load{pods: 5000, events: 0.1, objects: 5000, cpu: 0.3})
	f(Helps, load{pods: 1000, events: 20, cpu: 1})
	f(Helps, load{pods: 30_000, events: 0.1, cpu: 2})
	f(Needed, load{pods: 5000, events: 50, cpu: 5})
}

// What kube-apiserver does not say is named, and nothing else becomes wrong by it.
func TestMissing(t *testing.T) {
	text := load{pods: 1000, events: 50, cpu: 1}.after(100)
	for _, m := range wanted {
		name := m.name
		var without strings.Builder
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, name+"{") && !strings.HasPrefix(line, name+" ") {
				without.WriteString(line)
			}
		}
		families, err := scrape(strings.NewReader(without.String()))
		if err != nil {
			t.Fatal(err)
		}
		before, after := newSample(families, time.Unix(0, 0)), newSample(families, time.Unix(10, 0))
		a, err := assess(before, after, 3)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		says := strings.Contains(strings.Join(a.Missing, "\n"), name+":")
		if want := !strings.Contains(" "+requests+" "+initEvents+" "+listedObjects+" "+storedObjects0+" "+processStart+" "+buildInfo+" ", " "+name+" "); says != want {
			t.Errorf("%s: missing %q", name, a.Missing)
		}
		for _, r := range []Range{a.APIServer.WatchCPU, a.Tier.Memory, a.Storm.APIServer} {
			if math.IsNaN(r.Mid) || math.IsInf(r.High, 0) || r.Low < 0 {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
}

// Samples of two servers, or of one that has restarted, are not compared.
func TestTwoServers(t *testing.T) {
	f := func(change func(*sample)) {
		t.Helper()
		before := &sample{at: time.Unix(0, 0), start: 1, cpu: 5}
		after := &sample{at: time.Unix(9, 0), start: 1, cpu: 6}
		if _, err := assess(before, after, 3); err != nil {
			t.Fatal(err)
		}
		change(after)
		if _, err := assess(before, after, 3); err != errOtherServer {
			t.Errorf("got %v", err)
		}
	}
	f(func(s *sample) { s.start = 2 })
	f(func(s *sample) { s.cpu = 4 })
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.0004: "<0.001", 0.0123: "0.012", 3.14159: "3.1", 42.4: "42", 9999: "9999", 12_345: "12k", 3e7: "30M"} {
		if got := number(v); got != want {
			t.Errorf("number(%g) = %s, want %s", v, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 48 * kib: "48 KiB", 3 << 30: "3.0 GiB"} {
		if got := size(v); got != want {
			t.Errorf("size(%g) = %s, want %s", v, got, want)
		}
	}
}

// Agents that are not there yet cost what a cluster's objects and events make of them, and through watchfan a few
// requests a second.
func TestWhatIf(t *testing.T) {
	var samples [2]*sample
	for i, seconds := range []float64{100, 110} {
		families, err := scrape(strings.NewReader(load{pods: 1000, events: 50, cpu: 1}.after(seconds)))
		if err != nil {
			t.Fatal(err)
		}
		samples[i] = newSample(families, time.Unix(int64(seconds), 0))
	}
	const lists, object = 5000 / 15., 2000
	for given, want := range map[string]WhatIf{
		"agents=5000 list=pods every=15s": {
			Straight: Load{exactly(lists), exactly(lists * 5000 * object), requestCost.apiserver.times(lists).plus(objectCost.apiserver.times(lists * 5000))},
			Through: Load{Range{30, 30 + lists/2, 30 + lists}, exactly(30 * object),
				requestCost.apiserver.times(30).plus(Range{0, reviewCost.Mid * lists / 2, reviewCost.High * lists})}},
		"agents=5000 list=pods every=15s resourceVersion=0": {
			Straight: Load{exactly(lists), exactly(lists * 5000 * object), requestCost.apiserver.times(lists).plus(objectCost.apiserver.times(lists * 5000))},
			Through:  Load{Range{0, lists / 2, lists}, Range{}, Range{0, reviewCost.Mid * lists / 2, reviewCost.High * lists}}},
		"agents=20 get=pods every=1s": {
			Straight: Load{exactly(20), exactly(20 * object), requestCost.apiserver.times(20)},
			Through: Load{Range{20, 21, 22}, exactly(20 * object),
				requestCost.apiserver.times(20).plus(Range{0, reviewCost.Mid, reviewCost.High * 2})}},
		"agents=900 watch=pods": {
			Straight: Load{exactly(2), exactly(900 * 50 * object), requestCost.apiserver.times(2).plus(deliveryCost.apiserver.times(900 * 50))},
			Through: Load{Range{0, 450. / reviewInterval, 900. / reviewInterval}, Range{},
				Range{0, reviewCost.Mid * 450 / reviewInterval, reviewCost.High * 900 / reviewInterval}}},
	} {
		pairs := make(map[string]string)
		for field := range strings.FieldsSeq(given) {
			key, value, _ := strings.Cut(field, "=")
			pairs[key] = value
		}
		a, err := parseAgents(pairs)
		if err != nil {
			t.Fatal(err)
		}
		got, err := a.estimate(samples[0], samples[1], 3)
		if err != nil {
			t.Fatal(err)
		}
		for at, loads := range map[string][2]Load{"straight": {got.Straight, want.Straight}, "through": {got.Through, want.Through}} {
			for what, r := range map[string][2]Range{"requests": {loads[0].Requests, loads[1].Requests},
				"bytes": {loads[0].Bytes, loads[1].Bytes}, "CPU": {loads[0].CPU, loads[1].CPU}} {
				if !near(r[0].Low, r[1].Low) || !near(r[0].Mid, r[1].Mid) || !near(r[0].High, r[1].High) {
					t.Errorf("%s, %s, %s: got %v, want %v", given, at, what, r[0], r[1])
				}
			}
		}
		if got.Watchfan.CPU.Mid <= 0 || got.Watchfan.CPU.Mid >= got.Straight.CPU.Mid {
			t.Errorf("%s: watchfan takes %v", given, got.Watchfan.CPU)
		}
	}
	missing := &Agents{Agents: 1, Verb: "get", Resource: "things.example.com", Every: 1}
	if _, err := missing.estimate(samples[0], samples[1], 3); err == nil || !strings.Contains(err.Error(), "things.example.com") {
		t.Errorf("an unknown resource: %v", err)
	}
}
