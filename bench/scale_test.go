//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/watchfan/watchfan/bench/measure"
)

func TestScaleOptions(t *testing.T) {
	f := checkOptions(t, scaleDefaults)
	f("")
	f("", "--quick", "--joiners", "10")
	f("", "--pods", "2000,1000,2000")
	f("must be multiples of 1000", "--pods", "1500")
	f("must be multiples of 1000", "--pods", "0")
	f("invalid syntax", "--pods", "many")
	f("must be positive", "--joiners", "0")
	f("must be positive", "--rounds", "-1")
	f("at least 100ms", "--window", "1ms")
	f("", "--only", "join|memory")
	f("no row has such a name", "--only", "nothing")
	f("missing closing", "--only", "(")
	f("not a path", "--out", "a/b")
	f("raise the hard limit", "--joiners", "100000000")
	f("make build", "--watchfan", "/nonexistent")

	o := scaleDefaults()
	o.Only = regexp.MustCompile("^memory-json$")
	memory := o.wants(func(r *scaleRow) bool { return strings.HasPrefix(r.name, "memory-") })
	if cold := o.wants(func(r *scaleRow) bool { return r.name == "cold" }); !memory || cold {
		t.Errorf("memory is measured: %t, a cold lane: %t", memory, cold)
	}
	o.binaries = binaries{os.Args[0], os.Args[0]}
	o.Pods = []int{2000, 1000, 2000}
	if err := o.Validate(); err != nil || join(o.Pods) != "1000,2000" {
		t.Errorf("got %v, %v", o.Pods, err)
	}
}

// TestScalePods: each node and each release has twenty pods, in a cluster of any size, and the
// choices of the clients say how many pods they find.
func TestScalePods(t *testing.T) {
	for _, n := range []int{1000, 3000} {
		nodes, releases := make(map[string]int), make(map[string]int)
		for i := range n {
			p := scalePod(i)
			d := json.NewDecoder(strings.NewReader(p.json))
			d.DisallowUnknownFields()
			var decoded corev1.Pod
			if err := d.Decode(&decoded); err != nil || len(decoded.Labels) != 4 {
				t.Fatalf("%v: %s", err, p.json)
			}
			nodes[decoded.Spec.NodeName]++
			releases[decoded.Labels[scaleLabel]]++
		}
		for name, found := range map[string]map[string]int{"node": nodes, "release": releases} {
			for value, pods := range found {
				if pods != 20 {
					t.Errorf("%d pods: %s %s has %d", n, name, value, pods)
				}
			}
		}
		for i := range 2 * n {
			byNode, byLabel := choiceNode(n, i), choiceLabel(n, i)
			_, node, _ := strings.Cut(byNode.query, "spec.nodeName%3D")
			_, release, _ := strings.Cut(byLabel.query, scaleLabel+"%3D")
			if nodes[node] != byNode.objects || releases[release] != byLabel.objects {
				t.Fatalf("client %d: %+v, %+v", i, byNode, byLabel)
			}
		}
		if all := choiceAll(n, 3); all.objects != n || all.query != "" {
			t.Errorf("got %+v", all)
		}
	}
}

// TestPodCounter: each pod of a list counts once, wherever the list is cut.
func TestPodCounter(t *testing.T) {
	const list = `{"items":[{"f:podIP":{},"podIP":"10.0.0.1"},{"podIP":"10.0.0.2","podIPs":[{"ip":"1"}]},{"podIP":"`
	for size := 1; size <= len(list); size++ {
		var c podCounter
		for p := []byte(list); len(p) > 0; p = p[min(size, len(p)):] {
			if n, err := c.Write(p[:min(size, len(p))]); n != min(size, len(p)) || err != nil {
				t.Fatal(n, err)
			}
		}
		if c.count != 3 {
			t.Errorf("pieces of %d bytes: got %d want 3", size, c.count)
		}
	}
}

// scaleOf returns a bench whose kube-apiserver is this process, at e.
func scaleOf(e endpoint, pods int) *scaleBench {
	o := scaleDefaults()
	o.Direct, o.Window = 3, 10*time.Millisecond
	own := []measure.Process{{Name: direct.name, PID: os.Getpid()}}
	return &scaleBench{opts: o, pods: pods, round: 1, results: &section{bench: "Scale"},
		cluster: &cluster{endpoint: e, processes: own}}
}

func TestScaleJoins(t *testing.T) {
	s := scaleOf(serveInitialEvents(t, true, scalePerNode, true), scaleBlock)
	m, err := joins(choiceNode, crowdAt)(t.Context(), s, direct)
	if err != nil {
		t.Fatal(err)
	}
	for _, unit := range []string{unitRequestCPU, unitAllRequestCPU, unitWall, unitRequestBytes} {
		if v, ok := find(m, unit); !ok || v <= 0 {
			t.Errorf("%s: got %v, %t", unit, v, ok)
		}
	}
	if n, _ := find(m, "clients"); n != 3 {
		t.Errorf("%v clients, want 3", n)
	}
	s = scaleOf(serveInitialEvents(t, true, scalePerNode-1, true), scaleBlock)
	_, err = joins(choiceNode, crowdAt)(t.Context(), s, direct)
	if err == nil || !strings.Contains(err.Error(), "19 objects came") {
		t.Errorf("a missing pod went unnoticed: %v", err)
	}
}

func TestScaleLists(t *testing.T) {
	pods := scalePerNode
	e := serve(t, true, func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); q.Get("resourceVersion") != "0" || q.Get("fieldSelector") == "" {
			t.Errorf("asked for %v", r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		for range pods {
			fmt.Fprint(w, `{"status":{"podIP":"10.0.0.1"}},`)
		}
	})
	s := scaleOf(e, scaleBlock)
	m, err := anyLists(choiceNode, 2)(t.Context(), s, direct)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := find(m, "lists"); n < 2 {
		t.Errorf("%v lists, want one of each client at least", n)
	}
	if v, _ := find(m, unitP50); v <= 0 {
		t.Errorf("no latency: %v", m)
	}
	pods--
	_, err = anyLists(choiceNode, 2)(t.Context(), s, direct)
	if err == nil || !strings.Contains(err.Error(), "19 pods, want 20") {
		t.Errorf("a missing pod went unnoticed: %v", err)
	}
}

// TestScaleRows: the names of rows are unique and fit into a benchmark's name, and a row that is
// not measured at kube-apiserver says why.
func TestScaleRows(t *testing.T) {
	names := make(map[string]bool)
	for i := range scaleRows {
		r := &scaleRows[i]
		fits := regexp.MustCompile(`^[a-z-]+$`).MatchString(r.name)
		if names[r.name] || !fits || r.title == "" || len(r.figures) == 0 {
			t.Errorf("row %q", r.name)
		}
		names[r.name] = true
		if rowNamed(r.name) != r {
			t.Errorf("row %q is not found", r.name)
		}
		for _, f := range r.figures {
			if strings.ContainsAny(f.unit, " \t") || f.scale == 0 {
				t.Errorf("row %q: unit %q, scale %v", r.name, f.unit, f.scale)
			}
		}
	}
	for _, f := range scaleForms {
		if rowNamed(f.row) == nil {
			t.Errorf("no row %q", f.row)
		}
	}
}

// sampleScale is a run of two rounds, in which one measurement failed.
func sampleScale() (*section, *scaleOptions) {
	o := scaleDefaults()
	results := &section{bench: "Scale"}
	for factor, pods := range o.Pods {
		for i := range scaleRows {
			r := &scaleRows[i]
			for round := 1; round <= 2; round++ {
				for _, p := range []peer{direct, watchfanTLS} {
					x := sample{peer: p, axes: scaleAxes(r.name, pods), round: round}
					for j, f := range r.figures {
						v := float64(round*(j+1)) / f.scale
						if p == direct {
							v *= 10 * float64(1+9*factor)
						}
						x.metrics = append(x.metrics, metric{f.unit, v})
					}
					if p == direct && r.single != "" {
						continue
					}
					if r.name == "list-all" && p == direct && pods == o.Pods[1] {
						x.err = errors.New("list answered 429")
					}
					results.add(x)
				}
			}
		}
	}
	return results, o
}

func TestScaleReport(t *testing.T) {
	var got bytes.Buffer
	results, o := sampleScale()
	writeScale(&got, results, o)
	text := got.String()
	sameAsGolden(t, "scale.golden", text)
	lines := benchmarkLines(t, text)
	if want := len(results.samples) - 2; lines != want || results.failed() != 2 {
		t.Errorf("%d benchmark lines and %d failures, want %d and 2", lines, results.failed(), want)
	}
	var none bytes.Buffer
	writeScale(&none, &section{bench: "Scale"}, o)
	if strings.Contains(none.String(), "pods, by arithmetic") {
		t.Errorf("arithmetic without figures: %s", &none)
	}
}

// TestScaleRepeat: a row has one round at least, no more than asked for, and begins none when it has
// taken too long or failed.
func TestScaleRepeat(t *testing.T) {
	f := func(want, rounds int, patience time.Duration, failAt int) {
		t.Helper()
		s := &scaleBench{opts: &scaleOptions{Rounds: rounds, Patience: patience}}
		got := 0
		err := s.repeat(t.Context(), func(_ context.Context, round int) error {
			if got++; got != round {
				t.Errorf("round %d comes as number %d", round, got)
			}
			if round == failAt {
				return errors.New("no answer")
			}
			return nil
		})
		if got != want || (err != nil) != (failAt == got) {
			t.Errorf("%d of %d rounds, want %d; %v", got, rounds, want, err)
		}
	}
	f(3, 3, time.Hour, 0)
	f(1, 3, 0, 0)
	f(2, 3, time.Hour, 2)
}

func TestMultiple(t *testing.T) {
	f := func(v, first []float64, want string) {
		t.Helper()
		if got := multiple(v, first); got != want {
			t.Errorf("%v of %v: got %s want %s", v, first, got, want)
		}
	}
	f([]float64{30, 10, 20}, []float64{10, 5}, "2.67")
	f(nil, []float64{1}, "–")
	f([]float64{1}, nil, "–")
	f([]float64{1}, []float64{0}, "–")
}
