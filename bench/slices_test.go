//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/watchfan/watchfan/bench/measure"
)

// TestEndpointSlice: an EndpointSlice is one to kube-apiserver, has about 10 KB, and differs from
// the one before in one endpoint.
func TestEndpointSlice(t *testing.T) {
	decode := func(object, n int) *discoveryv1.EndpointSlice {
		t.Helper()
		text := endpointSlice("object-0007", object, uint64(n), n)
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		slice := new(discoveryv1.EndpointSlice)
		if err := d.Decode(slice); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if len(text) < 9000 || len(text) > 10_000 || len(slice.Endpoints) != sliceEndpoints {
			t.Fatalf("%d bytes, %d endpoints", len(text), len(slice.Endpoints))
		}
		return slice
	}
	before := decode(3, 0)
	for n := 1; n <= 2*sliceEndpoints+1; n++ {
		now := decode(3, n)
		for e := range now.Endpoints {
			same := now.Endpoints[e].TargetRef.UID == before.Endpoints[e].TargetRef.UID
			if replaced := e == (n-1)%sliceEndpoints; same == replaced {
				t.Fatalf("write %d, endpoint %d: replaced is %t", n, e, !same)
			}
		}
		before = now
	}
	if decode(3, 5).Endpoints[0].TargetRef.UID == decode(4, 5).Endpoints[0].TargetRef.UID {
		t.Error("two slices have the same endpoint")
	}
}

// TestSlicePaths: the collection of EndpointSlices has paths and bodies of its own.
func TestSlicePaths(t *testing.T) {
	c := &collection{namespace: slicesSpace, slices: true, objects: 5}
	const want = "/apis/discovery.k8s.io/v1/namespaces/slices/endpointslices/object-0002"
	if got := c.objectPath(2); got != want {
		t.Errorf("got %s want %s", got, want)
	}
	body := c.body(2, 2+3*5)
	if !strings.Contains(body, `"bench-seq":"17"`) || body != endpointSlice("object-0002", 2, 17, 3) {
		t.Errorf("got %s", body)
	}
}

func TestSlicesReport(t *testing.T) {
	o := defaults()
	s := slicesSection(o)
	for _, p := range []peer{direct, watchfanTLS} {
		var h measure.Histogram
		h.Record(100 * time.Millisecond)
		r := result{peer: p, clients: 2500, writes: 30, Usage: measure.Usage{Window: 3 * time.Second,
			CPU: map[string]time.Duration{p.name: 3 * time.Second}, RSS: map[string]int64{p.name: 1 << 30}}}
		if p == watchfanTLS {
			r.clients, r.CPU[p.name] = 5000, 300*time.Millisecond
		}
		r.got.deliveries, r.got.bytes = 150_000, 1_500_000_000
		r.got.latency.Add(&h)
		for _, c := range sliceCases {
			s.add(sample{peer: p, axes: c.axes(o.SliceClients, unpaced), metrics: sliceMetrics(r, 10_000)})
		}
	}
	var tables bytes.Buffer
	s.writeTables(&tables)
	for _, want := range []string{
		// 20 µs for a delivery are 20 core-s for a million, and 2,000 for 100 million.
		"kube-apiserver/tls  h1        5000     identity  max   2,500     50,000        20.0            20.0         0.50",
		"watchfan/tls        h2        5000     gzip      max   5,000     50,000        2.00",
		"The full case: 20,000 updates to 5,000 watchers, 100 M deliveries\nArithmetic",
		"kube-apiserver/tls  h1        5000     identity  max   2,000   2,000        1.00            0.56",
		"watchfan/tls  h1        5000     identity  max   0.10            0.10",
	} {
		if !strings.Contains(tables.String(), want) {
			t.Errorf("no %q in\n%s", want, &tables)
		}
	}
}

// TestSliceTwins: a floor writes what watchfan has written over HTTP/1.1 in the same round.
func TestSliceTwins(t *testing.T) {
	o := defaults()
	s := slicesSection(o)
	m := []metric{{unitWatchers, 2500}, {unitWrites, 27.5}, {unitBatch, 2.4}, {unitBytes, 1429.6}}
	for round := 1; round <= 2; round++ {
		for _, p := range []peer{direct, watchfanTLS} {
			for _, c := range sliceCases {
				s.add(sample{peer: p, round: round, axes: c.axes(o.SliceClients, unpaced), metrics: m})
			}
		}
	}
	s.add(sample{peer: watchfanTLS, round: 2, axes: sliceCases[0].axes(o.SliceClients, 5), err: errEnded})
	twins := s.sliceTwins(2)
	if len(twins) != 2 {
		t.Fatalf("%d twins, want those of plain and gzip over HTTP/1.1", len(twins))
	}
	for i, x := range twins {
		if x.round != 2 || x.peer != watchfanTLS || x.axes[0].value != "h1" || x.axes[2].value != []string{"identity", "gzip"}[i] {
			t.Errorf("twin %d is %s of round %d", i, s.name(&x), x.round)
		}
		if got, want := sliceLoadOf(&x), (floorLoad{watchers: 2500, rate: 27.5, batch: 2.4, bytes: 1429}); got != want {
			t.Errorf("the load is %v, want %v", got, want)
		}
	}
	single := sample{metrics: []metric{{unitWatchers, 1}, {unitWrites, 5}, {unitBytes, 9800}}}
	if got := sliceLoadOf(&single); got.batch != 1 {
		t.Errorf("%v events in a write of unknown size, want 1", got.batch)
	}
}

func TestJoinRemarks(t *testing.T) {
	f := func(all, more, want string) {
		t.Helper()
		if got := joinRemarks(all, more); got != want {
			t.Errorf("got %q want %q", got, want)
		}
	}
	f("", "a", "a")
	f("a; b", "b", "a; b")
	f("a", "b", "a; b")
}
