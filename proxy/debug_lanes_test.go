package proxy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/diagnose"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

// debugLane is what the tests read of one lane.
type debugLane struct {
	Group, Version, Resource, Encoding, State string

	ResourceVersion, OldestResourceVersion   string
	Objects, HistoryEvents, Clients, Filters int
	Events, Breaks, Relists, Resets          int
	Served, Proofs, Unproven                 int
	Bytes, HistoryBytes                      int64
	Since                                    time.Time
	LastChange, LastHeard, WatchBegan        *time.Time
	LastError                                *struct {
		Kind string
		Time time.Time
	}
	SelfCheckDue *time.Time
	Filled       *struct {
		Source, Address, NoSibling string
		Time                       time.Time
		Seconds                    float64
		Objects                    int
	}
}

// askAdmin sends a GET to the admin port.
func (f *fan) askAdmin(path, accept string) (int, http.Header, string) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, f.admin+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, bodyOf(f.t, resp)
}

// theLane returns the only lane.
func (f *fan) theLane() debugLane {
	f.t.Helper()
	code, header, body := f.askAdmin("/debug/lanes?format=json", "")
	var d struct{ Lanes []debugLane }
	if err := json.Unmarshal([]byte(body), &d); err != nil || code != http.StatusOK ||
		header.Get("Content-Type") != "application/json" {
		f.t.Fatalf("got %d %v %q: %v", code, header, body, err)
	}
	if len(d.Lanes) != 1 {
		f.t.Fatalf("got %d lanes, want one", len(d.Lanes))
	}
	if strings.Contains(body, "secret") {
		f.t.Fatalf("what upstream says is repeated: %s", body)
	}
	return d.Lanes[0]
}

// awaitState waits until the lane is in a state and its last error is of a kind.
func (f *fan) awaitState(state, lastError string) debugLane {
	f.t.Helper()
	var l debugLane
	f.until(state+" lane with error "+lastError, func() bool {
		l = f.theLane()
		kind := ""
		if l.LastError != nil {
			kind = l.LastError.Kind
		}
		return l.State == state && kind == lastError
	})
	return l
}

// /debug/lanes shows a lane through its life. It shows nothing that upstream has sent.
func TestDebugLanes(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	f := startFan(t, proxytest.NewServer(t), func(o *proxy.Options) {
		o.AdminPort, o.Version = proxy.AnyPort, "v1.2.3"
	})
	f.cms.Put("ns", "a", "secret")
	f.cms.Put("ns", "b", "secret", "app", "x")
	fill := make(chan struct{})
	f.up.On(proxytest.WatchList, 1, func(c *proxytest.Call) { <-fill; c.Serve() })
	opened := make(chan error, 1)
	go func() {
		_, err := proxytest.TryOpen(t, f.insecure+anyState)
		opened <- err
	}()
	f.until("lane", func() bool {
		_, _, body := f.askAdmin("/debug/lanes", "")
		return strings.Contains(body, "configmaps")
	})
	if l := f.awaitState("Syncing", ""); l.Objects != 0 || l.LastHeard != nil || l.WatchBegan != nil ||
		l.Since.Before(begin) || l.Filled != nil || l.SelfCheckDue != nil {
		t.Errorf("while it is filled: got %+v", l)
	}
	close(fill)
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	w := f.watch(anyState + "&labelSelector=app")
	rv := f.cms.Put("ns", "c", "secret", "app", "x")
	w.AwaitVersion(rv)

	l := f.awaitState("Synced", "")
	if l.Group != "" || l.Version != "v1" || l.Resource != "configmaps" || l.Encoding != "json" {
		t.Errorf("got lane %+v", l)
	}
	if l.ResourceVersion != fmt.Sprint(rv) || l.OldestResourceVersion != fmt.Sprint(rv-1) {
		t.Errorf("got resourceVersion %s, history behind %s; want %d, %d", l.ResourceVersion,
			l.OldestResourceVersion, rv, rv-1)
	}
	for name, n := range map[string][2]int{
		"objects": {l.Objects, 3}, "history": {l.HistoryEvents, 1}, "events": {l.Events, 1}, "clients": {l.Clients, 2},
		"filters": {l.Filters, 2}, "served": {l.Served, 2}, "breaks": {l.Breaks, 0}, "relists": {l.Relists, 0},
		"proofs": {l.Proofs, 0},
	} {
		if n[0] != n[1] {
			t.Errorf("%s: got %d, want %d", name, n[0], n[1])
		}
	}
	if l.Filled == nil || l.Filled.Source != "upstream" || l.Filled.NoSibling != "" || l.Filled.Objects != 2 ||
		l.Filled.Time.Before(begin) || l.Filled.Seconds <= 0 || l.Filled.Seconds > time.Since(begin).Seconds() {
		t.Errorf("filled: %+v", l.Filled)
	}
	if l.Bytes < 300 || l.HistoryBytes < 100 || l.HistoryBytes > l.Bytes {
		t.Errorf("got %d bytes, %d of history", l.Bytes, l.HistoryBytes)
	}
	if l.LastChange == nil || l.LastChange.Before(*l.WatchBegan) || !l.LastHeard.Equal(*l.LastChange) ||
		!l.Since.Equal(*l.WatchBegan) {
		t.Errorf("got last change %v, last heard %v, watch %v", l.LastChange, l.LastHeard, l.WatchBegan)
	}

	f.cms.SendBookmark(proxytest.WatchList)
	f.until("bookmark", func() bool { return f.theLane().LastHeard.After(*l.LastHeard) })
	f.watch(fresh)
	if l := f.theLane(); l.Proofs != 1 || l.Unproven != 0 || l.Clients != 3 || l.Filters != 2 {
		t.Errorf("after a watch of the state as of now: got %+v", l)
	}

	f.up.On(proxytest.WatchList, 1, func(c *proxytest.Call) { c.Fail(500, "InternalError", "secret", 0) })
	f.cms.Reflector().Send("secret\n")
	f.awaitState("Relisting", "500 Internal Server Error")
	filled := *l.Filled
	again := *f.theLane().Filled
	if off := again.Time.Sub(filled.Time).Abs(); off > time.Millisecond { // pages read the clock
		t.Errorf("filled: %+v, at first %+v", again, filled)
	}
	if again.Time = filled.Time; again != filled {
		t.Errorf("filled: %+v, at first %+v", again, filled)
	}
	if l := f.awaitState("Synced", "500 Internal Server Error"); l.Relists != 1 || l.Breaks != 2 {
		t.Errorf("after a relist: got %+v", l)
	}
	broken := time.Now()
	f.up.On(proxytest.Watch, 1, func(c *proxytest.Call) { c.Fail(503, "ServiceUnavailable", "secret", 0) })
	f.cms.Reflector().Abort()
	if l := f.awaitState("Broken", "503 Service Unavailable"); l.WatchBegan != nil || l.Since.Before(broken) ||
		l.LastError.Time.Before(l.Since) || l.Clients != 3 {
		t.Errorf("broken: got %+v", l)
	}
	f.awaitState("Synced", "503 Service Unavailable")
}

// /debug/lanes says how far the process is and how its watches reach their clients.
func TestDebugProcess(t *testing.T) {
	t.Parallel()
	f := startWebSockets(t, func(o *proxy.Options) { o.AdminPort = proxy.AnyPort })
	state := func() (d diagnose.DebugState) {
		t.Helper()
		_, _, body := f.askAdmin("/debug/lanes?format=json", "")
		if err := json.Unmarshal([]byte(body), &d); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		return d
	}
	f.cms.Put("ns", "a", "1")
	f.watch(anyState).Await(2)
	proxytest.Open(t, f.insecure+anyState, "Accept-Encoding", "gzip").Await(1)
	next(t, f.webSocket(f.insecure, anyState, nil))
	f.idleConnections(1)
	f.until("watches", func() bool { return f.watchers("").Total == 4 })
	before := state()
	if got, want := before.Watches.Protocols, map[string]int{"HTTP/1.1": 2, "HTTP/2": 1, "WebSocket": 1}; !maps.Equal(got, want) || before.Watches.Gzip != 1 {
		t.Errorf("got %v, %d compressed; want %v, 1", got, before.Watches.Gzip, want)
	}
	if before.Upstream != f.up.URL || before.Processors != runtime.GOMAXPROCS(0) || before.SelfCheckSeconds != 300 {
		t.Errorf("in front of %s with %d processors, self-checks each %v s", before.Upstream, before.Processors, before.SelfCheckSeconds)
	}
	if n := before.Totals; n.Clients != 4 || n.Connections < 4 || n.HTTP2 != 1 || n.MemoryBytes < 1<<20 || n.ProcessorSeconds <= 0 {
		t.Errorf("totals %+v", n)
	}
	f.cms.Put("ns", "a", "2")
	f.until("the sample", func() bool {
		now := state()
		return now.Totals.UpstreamEvents == before.Totals.UpstreamEvents+1 && now.Now != nil && now.Now.Clients == 4
	})
}

// A lane without clients is idle, since the end of its last client's watch.
func TestDebugLanesIdle(t *testing.T) {
	t.Parallel()
	f := startFan(t, proxytest.NewServer(t), func(o *proxy.Options) { o.AdminPort = proxy.AnyPort })
	w := f.watch(anyState)
	f.awaitState("Synced", "")
	left := time.Now()
	w.Close()
	if l := f.awaitState("Idle", ""); l.Clients != 0 || l.Filters != 0 || l.Since.Before(left) || l.WatchBegan == nil {
		t.Errorf("got %+v", l)
	}
}

// What has been delivered does not fall when a lane ends.
func TestDebugLanesDelivered(t *testing.T) {
	t.Parallel()
	f := startFan(t, proxytest.NewServer(t), func(o *proxy.Options) { o.AdminPort, o.Lane.IdleTimeout = proxy.AnyPort, time.Second })
	f.cms.Put("ns", "a", "1")
	w := f.watch(anyState)
	w.Await(2)
	state := func() (lanes int, events, bytes uint64) {
		_, _, body := f.askAdmin("/debug/lanes?format=json", "")
		var d struct {
			Totals struct{ DeliveredEvents, DeliveredBytes uint64 }
			Lanes  []debugLane
		}
		if err := json.Unmarshal([]byte(body), &d); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		return len(d.Lanes), d.Totals.DeliveredEvents, d.Totals.DeliveredBytes
	}
	_, events, bytes := state()
	if events < 2 || bytes < 100 {
		t.Fatalf("%d events, %d bytes delivered, want at least an event and a bookmark", events, bytes)
	}
	w.Close()
	f.until("end of the lane", func() bool { lanes, _, _ := state(); return lanes == 0 })
	if _, after, bytesAfter := state(); after < events || bytesAfter < bytes {
		t.Errorf("%d events, %d bytes delivered after the end of the lane, %d, %d before", after, bytesAfter, events, bytes)
	}
}

func TestDebugLanesFormats(t *testing.T) {
	t.Parallel()
	f := startFan(t, proxytest.NewServer(t), func(o *proxy.Options) {
		o.AdminPort, o.Version = proxy.AnyPort, "v1.2.3"
	})
	f.watch(anyState)
	f.until("upstream", func() bool { _, _, body := f.askAdmin("/readyz", ""); return body == "ok" })
	check := func(path, accept string, code int, mediaType string, parts ...string) {
		t.Helper()
		got, header, body := f.askAdmin(path, accept)
		if got != code || header.Get("Content-Type") != mediaType {
			t.Errorf("%s %s: got %d, %s", path, accept, got, header.Get("Content-Type"))
		}
		for _, part := range parts {
			if !strings.Contains(body, part) {
				t.Errorf("%s %s: no %q in %s", path, accept, part, body)
			}
		}
	}
	const text, asJSON = "text/plain; charset=utf-8", "application/json"
	table := []string{"watchfan v1.2.3, up ", "[+]upstream ok\n", "RESOURCE ", "LAST ERROR\n",
		"v1/configmaps  json ", " Synced "}
	object := []string{`{"version":"v1.2.3",`, `{"name":"upstream"}`, `"totals":{"clients":`,
		`"endedWatches":{"backwards":`, `"delivery":{"buckets":[{"le":0.0001,`, `"resource":"configmaps"`}
	check("/debug/lanes", "", 200, text, table...)
	check("/debug/lanes", "*/*", 200, text, table...)
	check("/debug/lanes", "text/html, application/json;q=0.9", 200, asJSON, object...)
	check("/debug/lanes?format=json", "text/plain", 200, asJSON, object...)
	check("/debug/lanes?format=text", asJSON, 200, text, table...)
	check("/debug/lanes?format=xml", "", 400, text, `format="xml": give one of json, text`)
	check("/debug/lanes?limit=3", "", 400, text, `parameter "limit" is unknown: give any of format`)
	check("/debug/lanes?"+strings.Repeat("x", 1000), "", 400, text,
		`parameter "`+strings.Repeat("x", 50)+`" is unknown`)
}
