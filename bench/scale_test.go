package main

import (
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
)

func TestScaleOptions(t *testing.T) {
	f := checkOptions[scaleBench](t)
	f("")
	f("", "--quick", "--pods", "2000,1000,2000", "--only", "join|memory")
	f("must be multiples of 1000", "--pods", "1500")
	f("0 is not from 1", "--clients", "0")
	f("no row has such a name", "--only", "nothing")

	o := new(scaleBench)
	o.Only = regexp.MustCompile("^memory-json$")
	if len(o.wanted(joinRows)) != 0 || !o.wantsForms() {
		t.Errorf("joins %v are measured, forms: %t", o.wanted(joinRows), o.wantsForms())
	}
	o.Devcluster, o.Watchfan = os.Args[0], os.Args[0]
	o.Pods = []int{2000, 1000, 2000}
	if err := o.Validate(); err != nil || o.Pods.String() != "1000,2000" {
		t.Errorf("got %v, %v", o.Pods, err)
	}
}

// TestScaleJoins: a row has the CPU of each of its clients, and a client that misses a pod fails it.
func TestScaleJoins(t *testing.T) {
	join := func(pods int) ([]report.Metric, error) {
		upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/version" {
				return
			}
			io.WriteString(w, strings.Repeat(`{"type":"ADDED","object":{}}`+"\n", pods)+
				`{"type":"BOOKMARK","object":{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}))
		t.Cleanup(upstream.Close)
		own := []measure.Process{{Name: report.Direct.Name, PID: os.Getpid()}}
		e := load.Endpoint{Addr: netip.MustParseAddrPort(upstream.Listener.Addr().String())}
		st := &server.Stage{Peer: report.Direct, Cluster: &server.Cluster{Endpoint: e, Processes: own}}
		s := &scaleBench{Clients: 500, Direct: 3, program: &program{stage: st}, pods: scaleBlock}
		return joinNode(s, t.Context())
	}
	m, err := join(scalePerNode)
	if err != nil {
		t.Fatal(err)
	}
	for _, unit := range []string{"cpu-ns/request", "all-cpu-ns/request", "wall-ns", "B/request"} {
		if v, ok := report.Find(m, unit); !ok || v <= 0 {
			t.Errorf("%s: got %v, %t", unit, v, ok)
		}
	}
	if n, _ := report.Find(m, "clients"); n != 3 {
		t.Errorf("%v clients, want 3", n)
	}
	if _, err = join(scalePerNode - 1); err == nil || !strings.Contains(err.Error(), "after 19 objects") {
		t.Errorf("a missing pod went unnoticed: %v", err)
	}
}
