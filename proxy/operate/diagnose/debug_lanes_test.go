package diagnose_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/operate/diagnose"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// theLane returns the only lane.
func theLane(p *bubble.Proxy) diagnose.DebugLane {
	p.T.Helper()
	synctest.Wait()
	var d diagnose.DebugState
	p.AdminJSON("/debug/lanes", &d)
	if len(d.Lanes) != 1 {
		p.T.Fatalf("got %d lanes, want one", len(d.Lanes))
	}
	if _, body := p.Admin("/debug/lanes?format=json"); strings.Contains(body, "secret") {
		p.T.Fatalf("what upstream says is repeated: %s", body)
	}
	return d.Lanes[0]
}

// inState returns the only lane, which must be in a state, and its last error of a kind.
func inState(p *bubble.Proxy, state, lastError string) diagnose.DebugLane {
	p.T.Helper()
	l := theLane(p)
	kind := ""
	if l.LastError != nil {
		kind = l.LastError.Kind
	}
	if string(l.State) != state || kind != lastError {
		p.T.Fatalf("%s lane with error %q, want %s with %q", l.State, kind, state, lastError)
	}
	return l
}

// /debug/lanes shows a lane through its life. It shows nothing that upstream has sent.
func TestDebugLanes(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "secret")
		p.CMs.Put("ns", "b", "secret", "app", "x")
		p.Up.On(proxytest.WatchList, 1, func(c *proxytest.Call) { time.Sleep(3 * time.Second); c.Serve() })
		time.Sleep(time.Hour)
		asked := time.Now()
		first := p.Begin(bubble.Request{Target: bubble.AnyState})
		if l := inState(p, "Syncing", ""); l.Objects != 0 || l.LastHeard != nil || l.WatchBegan != nil ||
			!l.Since.Equal(asked) || l.Filled != nil || l.SelfCheckDue != nil {
			t.Errorf("while it is filled: got %+v", l)
		}
		first.Watch()
		filled := time.Now()
		p.Watch(bubble.AnyState + "&labelSelector=app")
		time.Sleep(time.Second)
		changed := time.Now()
		rv := p.CMs.Put("ns", "c", "secret", "app", "x")

		l := inState(p, "Synced", "")
		if l.Group != "" || l.Version != "v1" || l.Resource != "configmaps" || l.Encoding != "json" ||
			l.ResourceVersion != fmt.Sprint(rv) || l.OldestResourceVersion != fmt.Sprint(rv-1) ||
			l.Bytes < 300 || l.HistoryBytes < 100 || l.HistoryBytes > l.Bytes || l.FormBytes != 0 {
			t.Errorf("got lane %+v at %d", l, rv)
		}
		counts := func(l diagnose.DebugLane, want string) {
			t.Helper()
			got := fmt.Sprintf("%d objects, %d in history, %d events, %d clients, %d filters, %d served, %d breaks, %d relists, %d proofs, %d in vain",
				l.Objects, l.HistoryEvents, l.Events, l.Clients, l.Filters, l.Served, l.Breaks, l.Relists, l.Proofs, l.Unproven)
			if got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		counts(l, "3 objects, 1 in history, 1 events, 2 clients, 2 filters, 2 served, 0 breaks, 0 relists, 0 proofs, 0 in vain")
		if f := l.Filled; f == nil || f.Source != "upstream" || f.NoSibling != "" || f.Objects != 2 || !f.Time.Equal(filled) || f.Seconds != 3 {
			t.Errorf("filled: %+v", l.Filled)
		}
		if !l.LastChange.Equal(changed) || !l.LastHeard.Equal(changed) || !l.WatchBegan.Equal(filled) || !l.Since.Equal(filled) {
			t.Errorf("got last change %v, last heard %v, watch %v", l.LastChange, l.LastHeard, l.WatchBegan)
		}

		time.Sleep(time.Second)
		p.CMs.SendBookmark(proxytest.WatchList)
		if l := theLane(p); l.LastHeard.Sub(changed) != time.Second || !l.LastChange.Equal(changed) {
			t.Errorf("after a bookmark: got last change %v, last heard %v", l.LastChange, l.LastHeard)
		}
		p.Watch(bubble.Fresh)
		counts(theLane(p), "3 objects, 1 in history, 1 events, 3 clients, 2 filters, 3 served, 0 breaks, 0 relists, 1 proofs, 0 in vain")

		p.Up.On(proxytest.WatchList, 1, func(c *proxytest.Call) { c.Fail(500, "InternalError", "secret", 0) })
		p.CMs.Reflector().Send("secret\n")
		inState(p, "Relisting", "Unreadable")
		p.Up.AwaitCount(proxytest.WatchList, 2)
		inState(p, "Relisting", "500 Internal Server Error")
		p.Up.AwaitCount(proxytest.WatchList, 3)
		again := inState(p, "Synced", "500 Internal Server Error")
		if again.Relists != 1 || again.Breaks != 2 || *again.Filled != *l.Filled {
			t.Errorf("after a relist: got %+v, filled %+v, at first %+v", again, again.Filled, l.Filled)
		}
		broken := time.Now()
		p.Up.On(proxytest.Watch, 1, func(c *proxytest.Call) { c.Fail(503, "ServiceUnavailable", "secret", 0) })
		p.CMs.Reflector().Abort()
		inState(p, "Broken", "ConnectionBroken")
		p.Up.AwaitCount(proxytest.Watch, 1)
		if l := inState(p, "Broken", "503 Service Unavailable"); l.WatchBegan != nil || !l.Since.Equal(broken) ||
			l.LastError.Time.Before(l.Since) || l.Clients != 3 {
			t.Errorf("broken: got %+v", l)
		}
		p.Up.AwaitCount(proxytest.Watch, 2)
		inState(p, "Synced", "503 Service Unavailable")
	})
}

// A lane without clients is idle, since the end of its last client's watch. What has been delivered
// does not fall when a lane ends.
func TestDebugLanesIdle(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")
		w := p.Watch(bubble.AnyState)
		inState(p, "Synced", "")
		var before, after diagnose.DebugState
		p.AdminJSON("/debug/lanes", &before)
		if n := before.Totals; n.DeliveredEvents != 2 || n.DeliveredBytes < 100 {
			t.Errorf("%d events, %d bytes delivered, want an event and a bookmark", n.DeliveredEvents, n.DeliveredBytes)
		}
		time.Sleep(time.Second)
		left := time.Now()
		w.Close()
		if l := inState(p, "Idle", ""); l.Clients != 0 || l.Filters != 0 || !l.Since.Equal(left) || l.WatchBegan == nil {
			t.Errorf("got %+v", l)
		}
		time.Sleep(2 * time.Minute)
		p.AdminJSON("/debug/lanes", &after)
		if n := after.Totals; len(after.Lanes) != 0 || n.DeliveredEvents != before.Totals.DeliveredEvents || n.DeliveredBytes != before.Totals.DeliveredBytes {
			t.Errorf("%d lanes, %d events, %d bytes delivered after the end of the lane", len(after.Lanes), n.DeliveredEvents, n.DeliveredBytes)
		}
	}, func(o *proxy.Options) { o.Lane.IdleTimeout = time.Minute })
}

// /debug/lanes is a table or JSON, and says how far the process is and how its watches reach their
// clients.
func TestDebugLanesFormats(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.Watch(bubble.AnyState)
		p.Send(bubble.Request{Target: bubble.AnyState, HTTP2: true, Header: []string{"Accept-Encoding", "gzip"}})
		synctest.Wait()
		var d diagnose.DebugState
		p.AdminJSON("/debug/lanes", &d)
		if got := fmt.Sprint(d.Watches); got != "{map[HTTP/1.1:1 HTTP/2:1 WebSocket:0] 1}" {
			t.Errorf("got watches %s", got)
		}
		if d.Upstream != p.Up.URL || d.Processors != runtime.GOMAXPROCS(0) || d.SelfCheckSeconds != 300 {
			t.Errorf("in front of %s with %d processors, self-checks each %v s", d.Upstream, d.Processors, d.SelfCheckSeconds)
		}
		check := func(path, accept string, code int, mediaType string, parts ...string) {
			t.Helper()
			resp, body := p.Admin(path, "Accept", accept)
			if resp.StatusCode != code || resp.Header.Get("Content-Type") != mediaType {
				t.Errorf("%s %s: got %s, %s", path, accept, resp.Status, resp.Header.Get("Content-Type"))
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
		check("/debug/lanes", "", http.StatusOK, text, table...)
		check("/debug/lanes", "*/*", http.StatusOK, text, table...)
		check("/debug/lanes", "text/html, application/json;q=0.9", http.StatusOK, asJSON, object...)
		check("/debug/lanes?format=json", "text/plain", http.StatusOK, asJSON, object...)
		check("/debug/lanes?format=text", asJSON, http.StatusOK, text, table...)
		check("/debug/lanes?format=xml", "", http.StatusBadRequest, text, `format="xml": give one of json, text`)
		check("/debug/lanes?limit=3", "", http.StatusBadRequest, text, `parameter "limit" is unknown: give any of format`)
		check("/debug/lanes?"+strings.Repeat("x", 1000), "", http.StatusBadRequest, text,
			`parameter "`+strings.Repeat("x", 50)+`" is unknown`)
	}, func(o *proxy.Options) { o.Version = "v1.2.3" })
}
