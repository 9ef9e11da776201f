//go:build nightly

package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// statefulSet is a minimal StatefulSet. Its rollingUpdate gets maxUnavailable by default if the
// feature gate MaxUnavailableStatefulSet is on.
const statefulSet = `{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":%q},` +
	`"spec":{"selector":{"matchLabels":{"a":"b"}},"serviceName":"s",` +
	`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`

// TestReencoding: kube-apiserver restarts with a feature gate that adds a default to objects that
// nobody has written since. Lists and watches through watchfan have the default as soon as
// kube-apiserver's, and open watches end with 410, so that their clients see it. A restart that
// changes nothing ends nothing.
func TestReencoding(t *testing.T) {
	parallel(t)
	gate := func(on bool) []string {
		return append([]string{"--apiserver-arg", fmt.Sprintf("feature-gates=MaxUnavailableStatefulSet=%t", on)},
			endWatches...)
	}
	c := privateCluster(t, gate(false)...)
	d := c.direct(t)
	const sets, quiet = "/apis/apps/v1/namespaces/default/statefulsets", "/api/v1/namespaces/default/configmaps"
	for i := range 5 {
		d.create(t, sets, fmt.Sprintf(statefulSet, fmt.Sprint("s", i)))
		d.create(t, quiet, fmt.Sprintf(`{"metadata":{"name":"c%d"}}`, i))
	}
	p := privateWatchfan(t, c)
	admin := p.admin(t)
	ways := p.ways(t, c.token(t, "admin"))
	warm(t, ways, sets, quiet)
	const watchList = "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	open := ways[1].watch(t, sets+"?watch=1&resourceVersion=0")
	other := ways[1].watch(t, quiet+"?watch=1&resourceVersion=0")
	admin.awaitWatchers(t, 2)
	if body := string(d.get(t, sets).body); strings.Contains(body, "maxUnavailable") {
		t.Fatalf("the default is there already: %s", body)
	}

	time.Sleep(compareEvery) //testlint:allow timer watchfan compares once in this time
	c.restart(t)
	awaitWatches(t, admin, 2)
	if n := admin.metric(t, "watchfan_upstream_reencodings_total"); n != 0 {
		t.Errorf("a restart that changed nothing: %v lanes were filled anew", n)
	}

	time.Sleep(compareEvery) //testlint:allow timer watchfan compares once in this time
	if err := c.Halt(); err != nil {
		t.Fatal(err)
	}
	c.SetArgs(gate(true)...)
	if err := c.Begin(); err != nil {
		t.Fatal(err)
	}
	if body := string(d.get(t, sets).body); !strings.Contains(body, "maxUnavailable") {
		t.Fatalf("the gate adds no default: %s", body)
	}
	awaitWatches(t, admin, 2)
	steady.Until(t, "new bytes", func() error {
		resp, err := ways[0].try(http.MethodGet, sets+"?resourceVersion=0", nil, "")
		if err == nil && !strings.Contains(string(resp.body), "maxUnavailable") {
			err = fmt.Errorf("got %.300s", resp.body)
		}
		return err
	})
	for _, way := range ways {
		items := func(from *target) string {
			resp := from.get(t, sets+"?resourceVersion=0")
			if from == way && !proxytest.FromCache(resp.header) {
				t.Errorf("the list at %s was passed through", way.name)
			}
			_, items, _ := strings.Cut(string(resp.body), `"items":`)
			return items
		}
		if got, want := items(way), items(d); got != want {
			t.Errorf("list at %s: %s\nwant %s", way.name, got, want)
		}
		got, want := way.watch(t, sets+watchList), d.watch(t, sets+watchList)
		if err := compare(withoutBookmarks(got.initial(t)), withoutBookmarks(want.initial(t))); err != nil {
			t.Errorf("%s: %v", way.name, err)
		}
		if !proxytest.FromCache(got.header) {
			t.Errorf("the watch at %s was passed through", way.name)
		}
	}
	events := open.finish(t)
	if last := events[len(events)-1]; last.typ != "ERROR" || !strings.Contains(last.line, `"code":410`) {
		t.Errorf("the open watch ended with %s", last.line)
	}
	select {
	case <-other.done:
		t.Error("the watch of what did not change ended")
	default:
	}
	if n := admin.metric(t, "watchfan_upstream_reencodings_total"); n != 1 {
		t.Errorf("%v lanes were filled anew, want 1", n)
	}
}

// compareEvery is the interval at which watchfan compares how kube-apiserver writes objects.
const compareEvery = 10 * time.Second

// awaitWatches waits until there are n upstream watches, all of which began after the cluster's
// last start.
func awaitWatches(t *testing.T, admin *target, n int) {
	t.Helper()
	steady.Until(t, "upstream watches", func() error {
		got := admin.metric(t, "watchfan_upstream_watches", `encoding="json"`, `resource="statefulsets"`) +
			admin.metric(t, "watchfan_upstream_watches", `resource="configmaps"`)
		if got != float64(n) {
			return fmt.Errorf("%v, want %d", got, n)
		}
		if got := admin.metric(t, "watchfan_upstream_watch_breaks_total", `resource="statefulsets"`); got == 0 {
			return fmt.Errorf("none broke")
		}
		return nil
	})
}
