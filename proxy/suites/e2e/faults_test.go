package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// fold returns the objects that a stream's events leave. It is an error if an event does not fit
// what came before it: each event changes one object, and comes once.
func fold(events []event) (map[string]string, error) {
	objects, versions, uids := make(map[string]string), make(map[string]uint64), make(map[string]string)
	last := uint64(0)
	initial := slices.IndexFunc(events, func(e event) bool { return e.end })
	for i, e := range events {
		_, known := objects[e.key]
		switch e.typ {
		case "ADDED", "MODIFIED":
			if known == (e.typ == "ADDED") {
				return nil, fmt.Errorf("%s, and known: %v", e, known)
			}
			if e.rv <= versions[e.key] || i > initial && e.rv <= last {
				return nil, fmt.Errorf("%s behind %d of the object and %d of the stream", e, versions[e.key], last)
			}
			_, uid, _ := strings.Cut(e.line, `"uid":"`)
			uid, _, _ = strings.Cut(uid, `"`)
			if known && uid != uids[e.key] {
				return nil, fmt.Errorf("%s changes the uid from %s to %s", e, uids[e.key], uid)
			}
			uids[e.key] = uid
			objects[e.key] = strings.TrimPrefix(e.line, `{"type":"`+e.typ+`"`)
		case "DELETED":
			if !known {
				return nil, fmt.Errorf("%s of an unknown object", e)
			}
			if e.rv < last { // deletions learnt from a list have the last resourceVersion before it
				return nil, fmt.Errorf("%s behind %d", e, last)
			}
			delete(objects, e.key)
		case "BOOKMARK":
		default:
			return nil, fmt.Errorf("%s", e.line)
		}
		versions[e.key] = e.rv
		if i >= initial {
			last = e.rv
		}
	}
	return objects, nil
}

// shows compares the objects that a stream has left with what kube-apiserver shows to a new watch, without
// managedFields if the stream is lean.
func (s selection) shows(t *testing.T, direct *target, got map[string]string, lean bool) error {
	t.Helper()
	state := direct.watch(t, s.path+"?watch=1&"+s.query+"&allowWatchBookmarks=1")
	defer state.stop()
	want := make(map[string]string)
	for _, e := range state.initial(t) {
		line := []byte(e.line)
		if lean {
			var err error
			if line, err = leanJSON(line); err != nil {
				return err
			}
		}
		if !e.end {
			want[e.key] = strings.TrimPrefix(string(line), `{"type":"ADDED"`)
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("holds %d objects, want %d", len(got), len(want))
	}
	for k, o := range want {
		if strings.TrimPrefix(got[k], `{"type":"MODIFIED"`) != o {
			return fmt.Errorf("holds\n%s\nwant\n%s", got[k], o)
		}
	}
	return nil
}

// TestUpstreamRestarts: kube-apiserver's own metrics show one watch for the resource, whatever clients
// select. "A broken watch resumes from its last resourceVersion … Clients keep their streams."
// (design.md) Package chaos has more faults.
func TestUpstreamRestarts(t *testing.T) {
	parallel(t)
	c := privateCluster(t, endWatches...)
	p := privateWatchfan(t, c)
	ns := []string{"restart", "restart-b"}
	direct, ours, admin := c.direct(t), p.plain(t), p.admin(t)
	createNamespaces(t, direct, ns...)
	p.waitReady(t)
	others := upstreamWatches(t, direct, "configmaps")
	selected := selections(ns)[:20]
	var streams []*recording // the second half is lean
	for _, accepts := range []string{jsonType, jsonType + drop} {
		for _, s := range selected {
			streams = append(streams, ours.watch(t, fmt.Sprintf("%s?watch=1&%s&allowWatchBookmarks=1", s.path, s.query), accepts))
		}
	}
	settle := func(after string) {
		t.Helper()
		steady.Until(t, "state of the cluster in the streams after "+after, func() error {
			for i, stream := range streams {
				got, err := fold(stream.all())
				if err != nil || !stream.open() {
					t.Fatalf("after %s %s: open: %v, %v", after, stream.uri, stream.open(), err)
				}
				if err := selected[i%len(selected)].shows(t, direct, got, i >= len(selected)); err != nil {
					return fmt.Errorf("%s: %w", stream.uri, err)
				}
			}
			return nil
		})
	}
	work := &churn{target: direct, namespaces: ns, rate: 60, names: 24, seed: steady.Rand(t).Uint64(), tolerant: true}
	stop := work.start(t)
	work.await(t, 60)
	stop()
	settle("writes")
	steady.Until(t, "one watch upstream", func() error { // proofs are watches, too
		if n := upstreamWatches(t, direct, "configmaps") - others; n != 1 {
			return fmt.Errorf("%d streams make %d watches at kube-apiserver", len(streams), n)
		}
		return nil
	})
	for fault, args := range map[string][]string{"a clean restart": nil, "kill -9": {"--kill"}, "a restart in which nothing is written": nil} {
		breaks := func() float64 {
			return admin.metric(t, "watchfan_upstream_watch_breaks_total", `resource="configmaps"`)
		}
		before := breaks()
		if strings.Contains(fault, "nothing") {
			c.restart(t)
		} else {
			stop := work.start(t)
			work.awaitMore(t, 20)
			c.restart(t, args...)
			work.awaitMore(t, 20)
			stop()
		}
		steady.Until(t, "break of the lane's watch by "+fault, func() error {
			if breaks() == before {
				return fmt.Errorf("%v breaks", before)
			}
			return nil
		})
		settle(fault)
	}
	admin.awaitWatchers(t, len(streams)) // none was passed through
	for _, stream := range streams {
		stream.stop()
	}
	admin.awaitWatchers(t, 0) // all clients have gone
}

// TestUpstreamAway: without kube-apiserver /readyz fails. Reads that may be stale are served from
// the cache, and reads that must be current are not (contract.md L31). The streams go on when it is
// back. A client that ends its watch and begins it again is served, as its open watch would be, and a stranger is not.
func TestUpstreamAway(t *testing.T) {
	needsPlain(t)
	parallel(t)
	c := privateCluster(t, endWatches...)
	direct := c.direct(t)
	createNamespaces(t, direct, "away")
	if err := c.Halt(); err != nil {
		t.Fatal(err)
	}
	if _, err := direct.try(http.MethodGet, "/version", nil, ""); err == nil {
		t.Fatal("kube-apiserver still answers")
	}
	p := privateWatchfan(t, c, "--authorization-webhook-cache-authorized-ttl=1s") // an open watch's yes counts for longer
	ours, admin := p.plain(t), p.admin(t)
	if resp := admin.get(t, "/readyz"); resp.status != http.StatusInternalServerError {
		t.Errorf("/readyz without kube-apiserver: %d %s", resp.status, resp.body)
	}
	if resp := admin.get(t, "/livez"); resp.status != http.StatusOK {
		t.Errorf("/livez without kube-apiserver: %d", resp.status)
	}
	if resp := ours.get(t, "/api/v1/configmaps"); resp.status < 500 {
		t.Errorf("a list without kube-apiserver: %d %s", resp.status, resp.body)
	}
	if err := c.Begin(); err != nil {
		t.Fatal(err)
	}
	p.waitReady(t)

	const uri, pods = "/api/v1/namespaces/away/configmaps", "/api/v1/namespaces/away/pods"
	user := p.secure(t, c.token(t, "reader"))
	warm(t, []*target{user}, uri, pods) // the history begins before the object
	rv := makeConfigMap(t, direct, "away", "x", "")
	stream := ours.watch(t, uri+"?watch=1&allowWatchBookmarks=true")
	stream.wait(t, 2)
	open := user.watch(t, uri+"?watch=1&allowWatchBookmarks=true&resourceVersion=0")
	open.wait(t, 1)
	if err := c.Halt(); err != nil {
		t.Fatal(err)
	}
	open.stop()
	for _, again := range []struct {
		client *target
		uri    string
		served bool
	}{
		{user, fmt.Sprint(uri, "?watch=1&allowWatchBookmarks=true&resourceVersion=", rv), true},
		{user, uri + "?watch=1&allowWatchBookmarks=true&resourceVersion=0", true},
		{user, pods + "?watch=1&resourceVersion=0", false},
		{p.secure(t, c.token(t, "user")), uri + "?watch=1&resourceVersion=0", false},
	} {
		if resp, err := again.client.look(again.uri, nil); err != nil || (resp.status == http.StatusOK) != again.served {
			t.Errorf("%s while kube-apiserver is away: %d, %v", again.uri, resp.status, err)
		}
	}
	if resp := ours.get(t, uri+"?resourceVersion=0"); resp.status != http.StatusOK ||
		!strings.Contains(string(resp.body), `"name":"x"`) {
		t.Errorf("a list at 0 from the cache: %d %s", resp.status, resp.body)
	}
	if resp := ours.get(t, uri); resp.status < 500 {
		t.Errorf("a consistent list without kube-apiserver: %d %s", resp.status, resp.body)
	}
	steady.Until(t, "failure of /readyz", func() error {
		if resp := admin.get(t, "/readyz"); resp.status == http.StatusOK {
			return fmt.Errorf("%s", resp.body)
		}
		return nil
	})
	if err := c.Begin(); err != nil {
		t.Fatal(err)
	}
	stream.until(t, direct.patch(t, uri+"/x", `{"data":{"k":"1"}}`))
	p.waitReady(t)
}
