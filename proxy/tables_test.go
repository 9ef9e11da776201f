package proxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/request"
)

// lanesText returns /debug/lanes.
func (f *fan) lanesText() string {
	f.t.Helper()
	_, _, text := f.debug("/debug/lanes")
	return text
}

// tables opens a watch as kubectl does.
func (f *fan) tables(path string, args ...any) *proxytest.Watcher {
	f.t.Helper()
	w := proxytest.Open(f.t, f.insecure+fmt.Sprintf(path, args...), "Accept", proxytest.TableAccept)
	if w.Code != http.StatusOK {
		f.t.Fatalf("GET %s: got status %d", path, w.Code)
	}
	return w
}

const tablesSince = cmsPath + "?watch=true&resourceVersion=%d"

// Kubectls of all namespaces share one upstream watch, which begins where the first of them begins.
// No list fills the lane.
func TestTables(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t))
	f.cms.Put("ns", "a", "1") // 101
	listed := f.cms.Put("other", "b", "1")
	f.cms.Put("ns", "a", "2") // 103: between the first client's list and its watch
	first := f.tables(tablesSince, listed)
	wantStrings(t, "the first", proxytest.Strings(first.Await(1)), "MODIFIED ns/a 103")
	all, ns, name := f.tables(tablesSince, 103), f.tables("/api/v1/namespaces/ns/configmaps?watch=true&resourceVersion=%d", 102),
		f.tables(cmsPath+"?watch=true&resourceVersion=%d&fieldSelector=metadata.name%%3Db", 102)
	zipped := proxytest.Open(t, f.insecure+fmt.Sprintf(tablesSince, listed), "Accept", proxytest.TableAccept, "Accept-Encoding", "gzip")
	f.cms.Put("other", "b", "2") // 104
	f.cms.Delete("ns", "a")      // 105

	events := []string{"MODIFIED ns/a 103", "MODIFIED other/b 104", "DELETED ns/a 105"}
	wantStrings(t, "the first", proxytest.Strings(first.Await(3)), events...)
	wantStrings(t, "all", proxytest.Strings(all.Await(2)), events[1:]...)
	wantStrings(t, "one namespace", proxytest.Strings(ns.Await(2)), events[0], events[2])
	wantStrings(t, "one name", proxytest.Strings(name.Await(1)), events[1])
	wantStrings(t, "gzip", proxytest.Strings(zipped.Await(3)), events...)
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
	if watches, lists := f.up.Count(proxytest.Watch), f.up.Count(proxytest.WatchList)+f.up.Count(proxytest.List); watches != 1 || lists != 0 {
		t.Errorf("%d watches and %d lists upstream, want 1 and 0", watches, lists)
	}
	f.passed(0)
	if want := "application/json"; first.Header.Get("Content-Type") != want {
		t.Errorf("Content-Type %s, want %s", first.Header.Get("Content-Type"), want)
	}
}

// Each form of Tables has a lane of its own.
func TestTableForms(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t))
	rv := f.cms.Put("ns", "a", "1")
	open := func(query, accept string) *proxytest.Watcher {
		return proxytest.Open(t, f.insecure+fmt.Sprintf(tablesSince, rv)+query, "Accept", accept)
	}
	watches := []*proxytest.Watcher{
		open("", proxytest.TableAccept), open("&includeObject=Metadata", proxytest.TableAccept), open("&includeObject=Object", proxytest.TableAccept),
		open("", "application/json;as=Table;v=v1beta1;g=meta.k8s.io"),
	}
	f.cms.Put("ns", "a", "2")
	asked := make(map[string]int)
	for _, w := range watches {
		w.Await(1)
	}
	for _, r := range f.up.Requests(proxytest.Watch) {
		asked[r.Query.Get("includeObject")]++
	}
	if len(asked) != 2 || asked[""] != 2 || asked["Object"] != 1 {
		t.Errorf("upstream watches by includeObject: %v, want 2 of metadata and 1 of objects", asked)
	}
	f.passed(0)
}

// A client whose list is older than the lane is served from a replay.
func TestTablesBackfill(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t))
	f.cms.Put("ns", "a", "1") // 101
	f.cms.Put("ns", "a", "2") // 102
	f.cms.Put("ns", "b", "1") // 103
	late := f.tables(tablesSince, 103)
	f.up.Bump(1)
	early := f.tables(tablesSince, 101)
	wantStrings(t, "replay", proxytest.Strings(early.Await(2)), "MODIFIED ns/a 102", "ADDED ns/b 103")
	f.cms.Put("ns", "c", "1") // 105
	wantStrings(t, "late", proxytest.Strings(late.Await(1)), "ADDED ns/c 105")
	wantStrings(t, "early", proxytest.Strings(early.Await(3)), "MODIFIED ns/a 102", "ADDED ns/b 103", "ADDED ns/c 105")
	if columns := strings.Count(early.Events()[0].Raw+early.Events()[1].Raw, proxytest.DefaultColumns); columns != 1 {
		t.Errorf("a replay has columns %d times", columns)
	}
	f.passed(0)
}

// Upstream words the 410 for a resourceVersion that is too old, also if it would be the lane's first.
// The lane then begins now.
func TestTablesTooOld(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t))
	f.cms.Put("ns", "a", "1")
	f.cms.Put("ns", "a", "2")
	f.up.Bump(10)
	f.cms.Compact() // at 112
	w := f.tables(tablesSince, 101)
	wantStrings(t, "too old", proxytest.Strings(w.Await(1)), "ERROR 410")
	f.passed(1)
	now := f.tables(tablesSince, 112)
	f.cms.Put("ns", "a", "3")
	wantStrings(t, "now", proxytest.Strings(now.Await(1)), "MODIFIED ns/a 113")
	wantStrings(t, "too old again", proxytest.Strings(f.tables(tablesSince, 101).Await(1)), "ERROR 410")
	f.passed(2)
	if n := f.up.Open(proxytest.Watch); n != 1 {
		t.Errorf("%d upstream watches, want 1", n)
	}
}

// Rows have ages. A client whose first rows would be old asks upstream.
func TestTablesStale(t *testing.T) {
	f := startWatched(t)
	rv := f.cms.Put("ns", "a", "1")
	f.tables(tablesSince, rv)
	f.cms.Put("ns", "a", "2")
	f.cms.Put("other", "b", "1")
	time.Sleep(1100 * time.Millisecond)
	w := f.tables(tablesSince, rv)
	w.Await(2)
	f.passed(1)
	if passed := f.watchers("").Passed; passed.Reasons[request.History] != 1 {
		t.Errorf("passed through because %v, want %s", passed.Reasons, request.History)
	}
	// Old rows of other namespaces do not matter.
	f.tables("/api/v1/namespaces/quiet/configmaps?watch=true&resourceVersion=%d", rv)
	f.passed(1)
}

// A broken upstream watch is resumed, and clients notice nothing. If the history is gone, their
// watches end properly, and upstream says 410 to those that resume.
func TestTablesUpstreamBreaks(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t))
	rv := f.cms.Put("ns", "a", "1")
	w := f.tables(tablesSince, rv)
	f.cms.Put("ns", "a", "2") // 102
	w.Await(1)
	f.up.Stream(proxytest.Watch).Abort()
	f.cms.Put("ns", "b", "1") // 103
	f.up.AwaitCount(proxytest.Watch, 2)
	f.cms.Put("ns", "c", "1") // 104
	wantStrings(t, "resumed", proxytest.Strings(w.Await(3)), "MODIFIED ns/a 102", "ADDED ns/b 103", "ADDED ns/c 104")
	if raw := w.Events()[1].Raw; strings.Contains(raw, proxytest.DefaultColumns) {
		t.Errorf("the first event of the resumed watch: %s", raw)
	}

	broken := f.up.Stream(proxytest.Watch)
	broken.Hold()
	f.cms.Delete("ns", "a") // 105
	f.cms.Compact()
	broken.Abort()
	if err := w.Ended(); err != nil || len(w.Events()) != 3 {
		t.Errorf("the stream ended with %v and %d events, want a proper end behind 3", err, len(w.Events()))
	}
	wantStrings(t, "history is gone", proxytest.Strings(f.tables(tablesSince, 104).Await(1)), "ERROR 410")
	f.passed(1)
	again := f.tables(tablesSince, f.up.RV())
	f.cms.Put("ns", "a", "3")
	wantStrings(t, "again", proxytest.Strings(again.Await(1)), "ADDED ns/a 106")
	f.passed(1)

	f.cms.Restore(50) // etcd, from a backup
	wantStrings(t, "restored", proxytest.Strings(again.Await(2))[1:], "ERROR 410")
}

// If the columns change, watches end properly. Clients that come back get the new columns.
func TestTablesColumnsChange(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t))
	rv := f.cms.Put("ns", "a", "1")
	w := f.tables(tablesSince, rv)
	f.cms.Put("ns", "a", "2")
	w.Await(1)
	const other = `[{"name":"Other"}]`
	f.up.SetColumns(other)
	f.up.Stream(proxytest.Watch).Abort()
	f.up.AwaitCount(proxytest.Watch, 2)
	last := f.cms.Put("ns", "a", "3")
	if err := w.Ended(); err != nil {
		t.Errorf("the stream ended with %v", err)
	}
	wantStrings(t, "before", w.Strings(), "MODIFIED ns/a 102")
	again := f.tables(tablesSince, last-1)
	if e := again.Await(1)[0]; e.RV != last || !strings.Contains(e.Raw, other) {
		t.Errorf("after: %s, want columns %s", e.Raw, other)
	}
	f.passed(0)
}

// Clients with the same selector share an upstream watch with that selector, which ends with the
// last of them.
func TestTablesSelector(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t))
	rv := f.cms.Put("ns", "a", "1", "app", "x")
	path := "/api/v1/namespaces/ns/configmaps?watch=true&labelSelector=%s&resourceVersion=%d"
	one, two := f.tables(path, "app%3Dx,b", rv), f.tables(path, "b,app%3Dx", rv)
	f.tables(tablesSince, rv)
	f.cms.Put("ns", "a", "2", "app", "x")
	for _, w := range []*proxytest.Watcher{one, two} {
		wantStrings(t, "selected", proxytest.Strings(w.Await(1)), "MODIFIED ns/a 102")
	}
	selecting := func() (n int) {
		for _, r := range f.up.Requests(proxytest.Watch) {
			if r.Query.Get("labelSelector") == "app=x,b" && r.Path == "/api/v1/namespaces/ns/configmaps" {
				n++
			}
		}
		return n
	}
	if n, all := selecting(), f.up.Open(proxytest.Watch); n != 1 || all != 2 {
		t.Errorf("%d upstream watches with the selector of %d, want 1 of 2", n, all)
	}
	one.Close()
	two.Close()
	f.until("end of the upstream watch", func() bool { return f.up.Open(proxytest.Watch) == 1 })
	f.passed(0)
}

// Any number of selectors of one client leaves a bounded number of lanes.
func TestTablesManySelectors(t *testing.T) {
	f := startWatched(t)
	rv := f.cms.Put("ns", "a", "1")
	const most = 128
	var open sync.WaitGroup
	for i := range most + 2 {
		open.Go(func() {
			url := f.insecure + fmt.Sprintf(tablesSince+"&labelSelector=app%%3D%d", rv, i)
			if w, err := proxytest.TryOpen(t, url, "Accept", proxytest.TableAccept); err != nil || w.Code != http.StatusOK {
				t.Error(w, err)
			}
		})
	}
	open.Wait()
	f.passed(2)
	if passed := f.watchers("").Passed; passed.Total != 2 || passed.Reasons[request.LaneBound] != 2 {
		t.Errorf("%d pass through because %v", passed.Total, passed.Reasons)
	}
}

// If upstream can't make a Table of an object, all pass through: upstream sends the object instead.
func TestTablesWithoutTable(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t))
	rv := f.cms.Put("ns", "a", "1")
	w := f.tables(tablesSince, rv)
	f.up.Stream(proxytest.Watch).Send(`{"type":"MODIFIED","object":{"kind":"ConfigMap","metadata":{"name":"a"}}}` + "\n")
	if err := w.Ended(); err != nil || len(w.Events()) != 0 {
		t.Errorf("the stream ended with %v and %v", err, w.Events())
	}
	f.tables(tablesSince, rv)
	f.passed(1)
}

// What a lane of Tables can't answer passes through, and the pages say why. No client's name is where
// everybody may look.
func TestTablesPassThrough(t *testing.T) {
	t.Parallel()
	f := startWatched(t)
	rv := f.cms.Put("ns", "a", "1")
	rows := f.tables(cmsPath + "?watch=true")
	rows.Await(1)
	f.tables("/api/v1/namespaces/ns/configmaps?watch=true&resourceVersion=0&labelSelector=app%%3Dx").Await(1)
	f.tables(tablesSince+"&includeObject=None", rv)
	proxytest.Open(t, f.insecure+cmsPath+"?watch=true", "Accept", "application/yaml")
	f.tables(tablesSince, rv)
	f.passed(4)

	list := f.watchers("").Passed
	want := map[request.Reason]int{request.TableRows: 2, request.TableNoObjects: 1, request.Form: 1}
	if fmt.Sprint(list.Reasons) != fmt.Sprint(want) || list.Total != 4 || list.Matching != 4 {
		t.Errorf("passed through: %+v, want %v", list, want)
	}
	one := f.watchers("namespace=ns&resource=configmaps&userAgent=proxytest&limit=1").Passed
	if len(one.Watchers) != 1 || one.Total != 4 || one.Watchers[0].Selector() != "-n ns -l app=x" || one.Watchers[0].Resource != "v1/configmaps" || one.Watchers[0].User != "(own)" {
		t.Errorf("one of them: %+v", one)
	}
	for _, query := range []string{"state=Live", "reason=UpToDate", "minLagEvents=1", "user=x", "minAge=1h", "resource=pods", "selector=y"} {
		if n := f.watchers(query).Passed.Matching; n != 0 {
			t.Errorf("%s: %d match", query, n)
		}
	}
	_, _, text := f.debug("/debug/watchers")
	if !strings.Contains(text, "4 watches pass through, 4 matching, 4 shown: 2 table_rows, 1 representation, 1 table_no_objects") ||
		!strings.Contains(text, "whose ages only kube-apiserver computes") {
		t.Errorf("/debug/watchers: %s", text)
	}
	_, _, metrics := f.debug("/metrics")
	if n := proxytest.SumMetric(metrics, "watchfan_passthrough_watches_total", `reason="table_no_objects"`); n != 1 {
		t.Errorf("%v counted without objects, want 1", n)
	}
	_, _, lanes := f.debug("/debug/lanes", "Accept", "application/json")
	if !strings.Contains(lanes, `{"resource":"v1/configmaps","reason":"table_rows","message":"the client wants Tables that begin with the objects`) ||
		strings.Contains(lanes, "proxytest-client") || strings.Contains(lanes, "app=x") {
		t.Errorf("/debug/lanes: %s", lanes)
	}
	rows.Close()
	f.until("end of a passed-through watch", func() bool { return f.watchers("").Passed.Total == 3 })
}

// A lane of Tables ends like others when nobody uses it.
func TestTablesIdle(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t), func(o *proxy.Options) { o.Lane.IdleTimeout = 10 * time.Millisecond })
	w := f.tables(tablesSince, f.cms.Put("ns", "a", "1"))
	f.cms.Put("ns", "a", "2")
	w.Await(1)
	w.Close()
	f.until("end of the upstream watch", func() bool { return f.up.Open(proxytest.Watch) == 0 })
}

// Tables can be revoked, drained and bookmarked as any watch.
func TestTablesDrain(t *testing.T) {
	f := startWatched(t, func(o *proxy.Options) { o.DrainDuration = time.Second })
	w := f.tables(tablesSince+"&allowWatchBookmarks=true", f.cms.Put("ns", "a", "1"))
	f.cms.Put("ns", "a", "2")
	w.Await(1)
	rv := f.up.Bump(5)
	f.cms.SendBookmark(proxytest.Watch)
	f.until("bookmark", func() bool { return strings.Contains(f.lanesText(), fmt.Sprint(rv)) })
	f.stop()
	wantStrings(t, "drained", w.Strings(), "MODIFIED ns/a 102", fmt.Sprintf("BOOKMARK %d", rv))
	if err := w.Ended(); err != nil {
		t.Errorf("the stream ended with %v", err)
	}
}
