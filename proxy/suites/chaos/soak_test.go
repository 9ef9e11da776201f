package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// soak is a suite with two replicas that are measured: steady, and watchfan, which is replaced again
// and again.
type soak struct {
	*suite
	period  time.Duration // one of the equal parts of the run
	ways    map[*watchfan][]way
	began   time.Time           // the first period
	samples map[string][]sample // by replica, or of both when both were there; in the order of time
}

// replicaNames are in the order of suite.replicas.
var replicaNames = []string{"steady replica", "replaced replica"}

const both = "both replicas"

// TestSoak: see the package's documentation.
func TestSoak(t *testing.T) {
	if *watches == 0 {
		t.Skip("make soak runs it, for an hour")
	}
	k := newSoak(t)
	t.Logf("seed %d, %s: %d watches, %g writes a second; one of two replicas is replaced each %s", *seed, *duration,
		*watches, *rate, k.period)
	measuring := k.running()
	measuring.Go(func() { k.observe(measuring.ctx) })
	k.watch()
	clients, writers := k.startClients(), k.startWriters()
	if err := awaitBegun(k.watchers); err != nil {
		t.Fatal(err)
	}

	k.began = time.Now()
	r := k.inject(k.plan())
	if !t.Failed() {
		pause(t.Context(), time.Until(k.began.Add(*duration)))
	}
	k.rest(writers)
	measuring.stop()
	k.end(clients, r)
	k.judge(r)
}

// newSoak starts both replicas behind one relay. The one that is replaced is filled from the other.
func newSoak(t *testing.T) *soak {
	period := *duration / periods
	seconds := max(1, int(period.Seconds()/2))
	k := &soak{period: period, samples: make(map[string][]sample)}
	k.suite = newSuite(t, "soak", "watchfan", workload{filters: allFilters, names: 40, labels: append([]labelDrawn{nodeLabel()}, fewLabels...),
		rate: *rate, lasts: seconds, longer: seconds, pace: max(*duration/60/time.Duration(*watches), 3*time.Millisecond)})
	k.acks = new(sync.Map)
	drain := "--drain-duration=" + min(10*time.Second, period/6).String()
	steady := k.startWatchfan(k.relayed, drain)
	k.enter(k.startWatchfan(k.relayed, drain, "--seed-from", fmt.Sprintf("127.0.0.1:%d", steady.ports.secure)))
	return k
}

// plan returns the faults: in each period but the first a replacement at its beginning, in each a
// reset of the connections upstream and clients that stop reading, and in the third a restart of
// kube-apiserver.
func (k *soak) plan() (all []fault) {
	rng := rand.New(rand.NewPCG(*seed, 0))
	kinds := make(map[string]faultKind)
	for _, kind := range faultKinds() {
		kinds[kind.name] = kind
	}
	add := func(name string, at float64) {
		all = append(all, fault{kind: kinds[name], at: time.Duration(at * float64(k.period)),
			lasting: min(kinds[name].longest, k.period/10)})
	}
	for n := range periods {
		begin := float64(n)
		if n > 0 {
			add("watchfan restarted", begin)
		}
		add("connections reset", begin+.3+.1*rng.Float64())
		add("clients stalled", begin+.5+.1*rng.Float64())
		if n == 2 {
			add("kube-apiserver restarted", begin+.8)
		}
	}
	return all
}

// observe measures both replicas until ctx ends, and reports progress.
func (k *soak) observe(ctx context.Context) {
	every := min(max(k.period/60, 500*time.Millisecond), 10*time.Second)
	said, latest := time.Now(), make(map[string]map[string]float64)
	for pause(ctx, every) {
		var files []float64
		for i, name := range replicaNames {
			if s, err := k.replicas[i].sample(); err == nil { // it may be away
				k.samples[name] = append(k.samples[name], s)
				latest[name] = s.uses
				files = append(files, s.uses["files"])
			}
		}
		if len(files) == len(k.replicas) {
			k.samples[both] = append(k.samples[both], sample{time.Now(), map[string]float64{"files": files[0] + files[1]}})
		}
		if time.Since(said) >= min(20*time.Second, *duration/4) { //testlint:allow elapsed when to say something
			said = time.Now()
			k.t.Logf("%s: %d changes, %d events, %d bookmarks; %v", time.Since(started).Round(time.Second), k.truth.total(),
				k.oracle.counts.of("events"), k.oracle.counts.of("bookmarks"), latest)
		}
	}
}

// sample measures the process.
func (p *watchfan) sample() (sample, error) {
	page, err := p.admin("/metrics")
	if err != nil {
		return sample{}, err
	}
	resident, err := proxytest.ResidentMemory(p.pid())
	metric := func(name string) float64 { return proxytest.SumMetric(string(page), name) }
	return sample{time.Now(), map[string]float64{"watches": metric("watchfan_watchers"), "resident memory, MB": float64(resident) / 1e6,
		"heap, MB": metric("go_memstats_heap_inuse_bytes") / 1e6, "goroutines": metric("go_goroutines"),
		"files": metric("process_open_fds"), "p99 of delivery, ms": float64(p.deliveries.p99()) / 1e6}}, err
}

// judge fails the run if a replica has grown, or if too little happened to say so.
func (k *soak) judge(r *report) {
	for _, of := range append(replicaNames, both) {
		judged := quantities
		if of == both {
			judged = commonQuantities
		}
		table, wrong := flat(judged, k.samples[of], k.began, k.period, *duration >= strictFrom)
		k.t.Logf("%s, medians of each %s from %s on:\n%s", of, k.period, k.period, table)
		for _, w := range wrong {
			k.t.Errorf("%s: %s", of, w)
		}
	}
	for _, f := range k.plan() {
		if strings.Contains(f.kind.name, *only) && len(r.recovery[f.kind.name]) == 0 {
			k.t.Errorf("%s: it never happened", f.kind.name)
		}
	}
	if n := k.oracle.counts.of("events"); n < 1000 {
		k.t.Errorf("%d events are too few to show anything", n)
	}
}
