package cached

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

var (
	alonePods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	aloneFoos = schema.GroupVersionResource{Group: "ex.io", Version: "v1", Resource: "foos"}
)

// The first few reads of a resource pass through. Reads beside many others do not, and no read does
// within the next second.
func TestEasyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newPassing(t.Context(), 2, nil)
		f := func(gvr schema.GroupVersionResource, want bool) {
			t.Helper()
			if got := a.takeEasy(easyKind{gvr, "get"}, time.Now()); got != want {
				t.Errorf("%s passes: %t, want %t", gvr, got, want)
			}
		}
		f(alonePods, true)
		f(alonePods, true)
		f(aloneFoos, true)
		a.giveEasy(easyKind{alonePods, "get"})
		f(alonePods, true)
		f(alonePods, false)
		a.giveEasy(easyKind{alonePods, "get"})
		f(alonePods, false) // the crowd
		if !a.takeEasy(easyKind{alonePods, "list"}, time.Now()) {
			t.Error("a list of pods does not pass beside a crowd of gets")
		}
		f(aloneFoos, true)
		time.Sleep(crowd)
		f(alonePods, true)
		f(alonePods, false)
		a = newPassing(t.Context(), 0, nil)
		f(alonePods, false)
	})
}

// For a while, it is remembered that a resource has no lane, unless a lane starts, and that proofs take long.
func TestLaneless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newPassing(t.Context(), 2, nil)
		f := func(want bool) {
			t.Helper()
			if got := a.through(alonePods); got != want {
				t.Errorf("gets pass through: %t, want %t", got, want)
			}
		}
		f(false)
		a.passGets(alonePods, lanelessFor)
		f(true)
		time.Sleep(lanelessFor)
		f(false)
		a.passGets(alonePods, lanelessFor)
		a.passGets(alonePods, 0)
		f(false)
		a.passGets(aloneFoos, 0)
		a.passGets(alonePods, slowFor)
		f(true)
		time.Sleep(slowFor)
		f(false)
	})
}

// Reads of ever new resources take bounded memory. A resource with a read under way is not
// forgotten.
func TestEasyReadsBounded(t *testing.T) {
	a := newPassing(t.Context(), 1, nil)
	named := func(i int) easyKind {
		return easyKind{schema.GroupVersionResource{Group: fmt.Sprint("g", i), Version: "v1", Resource: "x"}, "get"}
	}
	passed, now := 0, time.Now()
	for i := range 10 * mostCounted {
		if a.takeEasy(named(i), now) {
			passed++
		}
	}
	if passed != mostCounted || len(a.easy) != mostCounted {
		t.Errorf("%d passed, %d resources are remembered", passed, len(a.easy))
	}
	for i := range mostCounted - 1 {
		a.giveEasy(named(i + 1))
	}
	if !a.takeEasy(named(-1), now) {
		t.Error("nothing was forgotten")
	}
	if a.takeEasy(named(0), now) {
		t.Error("a read under way was forgotten")
	}
}

// testLanes returns no lanes yet, of upstream.
func testLanes(ctx context.Context, upstream auth.APIServer, opts *lane.Options) *lane.Lanes {
	set := metrics.NewSet()
	return lane.NewLanes(ctx, lane.Config{
		Options: opts, Upstream: upstream, Flusher: fanout.NewFlusher(1, 0, fanout.NewMetrics(set)),
		Metrics: set, Guard: proxytest.Guard(),
	})
}

// emptyLane is a lane of pods, of which there are none.
func emptyLane(t *testing.T) *lane.Lane {
	t.Helper()
	ls := testLanes(t.Context(), nil, &lane.Options{})
	l := lane.NewLane(ls, lane.Key{GVR: alonePods}, upstream.ResourceInfo{GVR: alonePods, Namespaced: true})
	if _, err := l.Cache.Replace(nil, 1, time.Now()); err != nil {
		t.Fatal(err)
	}
	return l
}

// readOf returns the read that a request line asks for, of a lane.
func readOf(t *testing.T, l *lane.Lane, line string) *read {
	t.Helper()
	r := &read{Request: proxytest.MustParse(t, request.Parse, line), lane: l, variant: &fanout.Variant{}, conn: proxytest.Conn{},
		arrived: time.Now(), info: upstream.ResourceInfo{GVR: alonePods, Namespaced: true}}
	r.namespace, r.selector = r.Request.Namespace, r.Fields
	var ok bool
	if r.filter, ok = fanout.NewFilter(r.namespace, r.Labels, r.selector, nil); !ok {
		t.Fatalf("%s: no filter", line)
	}
	return r
}

// A page is small if kube-apiserver answers it at once.
func TestWantsSmallPage(t *testing.T) {
	l := emptyLane(t)
	scanner := framing.NewScanner(framing.JSON, nil)
	var objects []*framing.Object
	for i := range 20 {
		o, err := scanner.Item(fmt.Appendf(nil, `{"metadata":{"name":"o%d","namespace":"ns","uid":"u","resourceVersion":"2",`+
			`"annotations":{"pad":%q}}}`, i, strings.Repeat("x", 1<<20)), nil)
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
	f := func(n int, query string, want bool) {
		t.Helper()
		l.Cache.Reset(objects[:n], 2, fanout.Ending{Reason: fanout.Expired})
		if got := readOf(t, l, "/api/v1/namespaces/ns/pods"+query).wantsLittle(); got != want {
			t.Errorf("%s of %d: %t, want %t", query, n, got, want)
		}
	}
	f(20, "?limit=3", true)
	f(20, "?limit=5", false)
	f(3, "?limit=500", true)
	f(20, "?limit=9223372036854775807", false)
	f(20, "?limit=5&fieldSelector=metadata.name%3Do7", true)
}
