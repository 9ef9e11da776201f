package cached_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// tables opens a watch as kubectl does.
func tables(p *bubble.Proxy, target string, args ...any) *proxytest.Watcher {
	p.T.Helper()
	return p.Send(bubble.Request{Target: fmt.Sprintf(target, args...), Header: []string{"Accept", proxytest.TableAccept}}).Watch()
}

const tablesSince = bubble.CMs + "?watch=true&resourceVersion=%d"

// Kubectls of all namespaces share one upstream watch, which begins where the first of them begins.
// No list fills the lane.
func TestTables(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1") // 101
		listed := p.CMs.Put("other", "b", "1")
		p.CMs.Put("ns", "a", "2") // 103: between the first client's list and its watch
		first := tables(p, tablesSince, listed)
		first.Want("MODIFIED ns/a 103")
		all, ns, name := tables(p, tablesSince, 103), tables(p, "/api/v1/namespaces/ns/configmaps?watch=true&resourceVersion=%d", 102),
			tables(p, bubble.CMs+"?watch=true&resourceVersion=%d&fieldSelector=metadata.name%%3Db", 102)
		zipped := p.Send(bubble.Request{Target: fmt.Sprintf(tablesSince, listed),
			Header: []string{"Accept", proxytest.TableAccept, "Accept-Encoding", "gzip"}}).Watch()
		p.CMs.Put("other", "b", "2") // 104
		p.CMs.Delete("ns", "a")      // 105

		events := []string{"MODIFIED ns/a 103", "MODIFIED other/b 104", "DELETED ns/a 105"}
		proxytest.WantStrings(t, "the first", proxytest.Strings(first.Await(3)), events...)
		proxytest.WantStrings(t, "all", proxytest.Strings(all.Await(2)), events[1:]...)
		ns.Want(events[0], events[2])
		name.Want(events[1])
		proxytest.WantStrings(t, "gzip", proxytest.Strings(zipped.Await(3)), events...)
		for what, w := range map[string]*proxytest.Watcher{"the first": first, "all": all, "one namespace": ns, "one name": name, "gzip": zipped} {
			for i, e := range w.Events() {
				columns := "null"
				if i == 0 {
					columns = proxytest.DefaultColumns
				}
				if !strings.Contains(e.Raw, `"columnDefinitions":`+columns+`,"rows":[{"cells":["`) {
					t.Errorf("%s, event %d: %s, want columns %s", what, i, e.Raw, columns)
				}
			}
		}
		watches, lists := p.Up.Requests(proxytest.Watch), p.Up.Count(proxytest.WatchList)+p.Up.Count(proxytest.List)
		if len(watches) != 1 || watches[0].Query.Get("resourceVersion") != fmt.Sprint(listed) || lists != 0 {
			t.Errorf("upstream watches %v and %d lists, want one from %d and none", watches, lists, listed)
		}
		p.Passed(0)
		if want := "application/json"; first.Header.Get("Content-Type") != want {
			t.Errorf("Content-Type %s, want %s", first.Header.Get("Content-Type"), want)
		}
	})
}

// A client whose list is older than the lane is served from a replay.
func TestTablesBackfill(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1") // 101
		p.CMs.Put("ns", "a", "2") // 102
		p.CMs.Put("ns", "b", "1") // 103
		late := tables(p, tablesSince, 103)
		p.Up.Bump(1)
		early := tables(p, tablesSince, 101)
		early.Want("MODIFIED ns/a 102", "ADDED ns/b 103")
		p.CMs.Put("ns", "c", "1") // 105
		late.Want("ADDED ns/c 105")
		early.Want("MODIFIED ns/a 102", "ADDED ns/b 103", "ADDED ns/c 105")
		if columns := strings.Count(early.Events()[0].Raw+early.Events()[1].Raw, proxytest.DefaultColumns); columns != 1 {
			t.Errorf("a replay has columns %d times", columns)
		}
		p.Passed(0)
	})
}

// Upstream words the 410 for a resourceVersion that is too old, also if it would be the lane's first.
// The lane then begins now.
func TestTablesTooOld(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")
		p.CMs.Put("ns", "a", "2")
		p.Up.Bump(10)
		p.CMs.Compact() // at 112
		w := tables(p, tablesSince, 101)
		w.Want("ERROR 410")
		p.Passed(1)
		now := tables(p, tablesSince, 112)
		p.CMs.Put("ns", "a", "3")
		now.Want("MODIFIED ns/a 113")
		tables(p, tablesSince, 101).Want("ERROR 410")
		p.Passed(2)
		if n := p.Up.Open(proxytest.Watch); n != 1 {
			t.Errorf("%d upstream watches, want 1", n)
		}
	})
}

// Rows have ages. A client whose first rows would be old asks upstream.
func TestTablesStale(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		rv := p.CMs.Put("ns", "a", "1")
		tables(p, tablesSince, rv)
		p.CMs.Put("ns", "a", "2")
		p.CMs.Put("other", "b", "1")
		time.Sleep(time.Second + 1)
		w := tables(p, tablesSince, rv)
		w.Await(2)
		synctest.Wait()
		p.Passed(1)
		if passed := p.Watchers("").Passed; passed.Reasons[request.History] != 1 {
			t.Errorf("passed through because %v, want %s", passed.Reasons, request.History)
		}
		// Old rows of other namespaces do not matter.
		tables(p, "/api/v1/namespaces/quiet/configmaps?watch=true&resourceVersion=%d", rv)
		p.Passed(1)
	})
}

// A broken upstream watch is resumed, and clients notice nothing. If the history is gone, their
// watches end properly, and upstream says 410 to those that resume.
func TestTablesUpstreamBreaks(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		rv := p.CMs.Put("ns", "a", "1")
		w := tables(p, tablesSince, rv)
		p.CMs.Put("ns", "a", "2") // 102
		w.Await(1)
		p.Up.Stream(proxytest.Watch).Abort()
		p.CMs.Put("ns", "b", "1") // 103
		p.Up.AwaitCount(proxytest.Watch, 2)
		p.CMs.Put("ns", "c", "1") // 104
		w.Want("MODIFIED ns/a 102", "ADDED ns/b 103", "ADDED ns/c 104")
		if raw := w.Events()[1].Raw; strings.Contains(raw, proxytest.DefaultColumns) {
			t.Errorf("the first event of the resumed watch: %s", raw)
		}

		broken := p.Up.Stream(proxytest.Watch)
		broken.Hold()
		p.CMs.Delete("ns", "a") // 105
		p.CMs.Compact()
		broken.Abort()
		if err := w.Ended(); err != nil || len(w.Events()) != 3 {
			t.Errorf("the stream ended with %v and %d events, want a proper end behind 3", err, len(w.Events()))
		}
		tables(p, tablesSince, 104).Want("ERROR 410")
		p.Passed(1)
		again := tables(p, tablesSince, p.Up.RV())
		p.CMs.Put("ns", "a", "3")
		again.Want("ADDED ns/a 106")
		p.Passed(1)

		p.CMs.Restore(50) // etcd, from a backup
		proxytest.WantStrings(t, "restored", proxytest.Strings(again.Await(2))[1:], "ERROR 410")
	})
}

// If the columns change, watches end properly. Clients that come back get the new columns.
func TestTablesColumnsChange(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		rv := p.CMs.Put("ns", "a", "1")
		w := tables(p, tablesSince, rv)
		p.CMs.Put("ns", "a", "2")
		w.Await(1)
		const other = `[{"name":"Other"}]`
		p.Up.SetColumns(other)
		p.Up.Stream(proxytest.Watch).Abort()
		p.Up.AwaitCount(proxytest.Watch, 2)
		last := p.CMs.Put("ns", "a", "3")
		w.WantEnd()
		proxytest.WantStrings(t, "before", w.Strings(), "MODIFIED ns/a 102")
		again := tables(p, tablesSince, last-1)
		if e := again.Await(1)[0]; e.RV != last || !strings.Contains(e.Raw, other) {
			t.Errorf("after: %s, want columns %s", e.Raw, other)
		}
		p.Passed(0)
	})
}

// Clients with the same selector share an upstream watch with that selector, which ends with the
// last of them. The watch of all ends like others when nobody uses it.
func TestTablesSelector(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		rv := p.CMs.Put("ns", "a", "1", "app", "x")
		path := "/api/v1/namespaces/ns/configmaps?watch=true&labelSelector=%s&resourceVersion=%d"
		one, two := tables(p, path, "app%3Dx,b", rv), tables(p, path, "b,app%3Dx", rv)
		all := tables(p, tablesSince, rv)
		p.CMs.Put("ns", "a", "2", "app", "x")
		for _, w := range []*proxytest.Watcher{one, two} {
			w.Want("MODIFIED ns/a 102")
		}
		selecting := 0
		for _, r := range p.Up.Requests(proxytest.Watch) {
			if r.Query.Get("labelSelector") == "app=x,b" && r.Path == "/api/v1/namespaces/ns/configmaps" {
				selecting++
			}
		}
		if n := p.Up.Open(proxytest.Watch); selecting != 1 || n != 2 {
			t.Errorf("%d upstream watches with the selector of %d, want 1 of 2", selecting, n)
		}
		open := func(when string, want int) {
			t.Helper()
			synctest.Wait()
			if n := p.Up.Open(proxytest.Watch); n != want {
				t.Errorf("%s: %d upstream watches, want %d", when, n, want)
			}
		}
		one.Close()
		open("one of two has left", 2)
		two.Close()
		open("both have left", 1)
		all.Close()
		time.Sleep(9 * time.Minute)
		open("nine minutes later", 1)
		time.Sleep(2 * time.Minute)
		open("eleven minutes later", 0)
		p.Passed(0)
	})
}

// If upstream can't make a Table of an object, all pass through: upstream sends the object instead.
func TestTablesWithoutTable(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		rv := p.CMs.Put("ns", "a", "1")
		w := tables(p, tablesSince, rv)
		p.Up.Stream(proxytest.Watch).Send(`{"type":"MODIFIED","object":{"kind":"ConfigMap","metadata":{"name":"a"}}}` + "\n")
		if err := w.Ended(); err != nil || len(w.Events()) != 0 {
			t.Errorf("the stream ended with %v and %v", err, w.Events())
		}
		tables(p, tablesSince, rv)
		p.Passed(1)
	})
}
