//go:build linux

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"

	"github.com/watchfan/watchfan/bench/measure"
	corev1 "k8s.io/api/core/v1"
)

func TestScaleOptions(t *testing.T) {
	f := checkOptions(t, scaleDefaults)
	f("")
	f("", "--quick", "--clients", "10")
	f("", "--pods", "2000,1000,2000")
	f("must be multiples of 1000", "--pods", "1500")
	f("must be multiples of 1000", "--pods", "0")
	f("invalid syntax", "--pods", "many")
	f("must be positive", "--clients", "0")
	f("must be positive", "--rounds", "-1")
	f("", "--only", "join|memory")
	f("no row has such a name", "--only", "nothing")
	f("missing closing", "--only", "(")
	f("not a path", "--out", "a/b")
	f("raise the hard limit", "--clients", "100000000")
	f("make build", "--watchfan", "/nonexistent")

	o := scaleDefaults()
	o.Only = regexp.MustCompile("^memory-json$")
	if len(o.joins()) != 0 || len(o.forms()) != len(scaleForms) {
		t.Errorf("%d joins and %d forms are measured", len(o.joins()), len(o.forms()))
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
			d := json.NewDecoder(strings.NewReader(p.Json))
			d.DisallowUnknownFields()
			var decoded corev1.Pod
			if err := d.Decode(&decoded); err != nil || len(decoded.Labels) != 4 {
				t.Fatalf("%v: %s", err, p.Json)
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
			byNode, byLabel := joinRows[1].choice(n, i), joinRows[2].choice(n, i)
			_, node, _ := strings.Cut(byNode.Query, "spec.nodeName%3D")
			_, release, _ := strings.Cut(byLabel.Query, scaleLabel+"%3D")
			if nodes[node] != byNode.Objects || releases[release] != byLabel.Objects {
				t.Fatalf("client %d: %+v, %+v", i, byNode, byLabel)
			}
		}
		if all := joinRows[0].choice(n, 3); all.Objects != n || all.Query != "" {
			t.Errorf("got %+v", all)
		}
	}
}

// TestScaleJoins: a row has the CPU of each of its clients, and a client that misses a pod fails it.
func TestScaleJoins(t *testing.T) {
	join := func(pods int) ([]report.Metric, error) {
		o := scaleDefaults()
		o.Direct = 3
		upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, strings.Repeat(`{"type":"ADDED","object":{}}`+"\n", pods)+
				`{"type":"BOOKMARK","object":{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}))
		t.Cleanup(upstream.Close)
		own := []measure.Process{{Name: report.Direct.Name, PID: os.Getpid()}}
		e := load.Endpoint{Addr: netip.MustParseAddrPort(upstream.Listener.Addr().String())}
		st := &server.Stage{Peer: report.Direct, Cluster: &server.Cluster{Endpoint: e, Processes: own}}
		s := &scaleBench{opts: o, stage: st, pods: scaleBlock}
		return s.measureJoin(t.Context(), joinRows[1])
	}
	m, err := join(scalePerNode)
	if err != nil {
		t.Fatal(err)
	}
	for _, unit := range []string{unitRequestCPU, unitAllRequestCPU, unitWall, unitRequestBytes} {
		if v, ok := report.Find(m, unit); !ok || v <= 0 {
			t.Errorf("%s: got %v, %t", unit, v, ok)
		}
	}
	if n, _ := report.Find(m, "clients"); n != 3 {
		t.Errorf("%v clients, want 3", n)
	}
	if _, err = join(scalePerNode - 1); err == nil || !strings.Contains(err.Error(), "19 objects came") {
		t.Errorf("a missing pod went unnoticed: %v", err)
	}
}
