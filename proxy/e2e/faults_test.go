package e2e_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/watchfan/watchfan/proxy/proxytest/steady"
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

// restarts is watches through a watchfan while kube-apiserver is restarted.
type restarts struct {
	direct, admin *target
	work          *churn
	selections    []selection // of the first streams, and of as many lean ones; the others have the same again
	streams       []*recording
}

func (r *restarts) breaks(t *testing.T) float64 {
	t.Helper()
	return r.admin.metric(t, "watchfan_upstream_watch_breaks_total", `resource="configmaps"`)
}

func (r *restarts) relists(t *testing.T) float64 {
	t.Helper()
	return r.admin.metric(t, "watchfan_upstream_relists_total", `resource="configmaps"`)
}

// settle waits until all streams hold the cluster's state.
func (r *restarts) settle(t *testing.T, after string) {
	t.Helper()
	steady.Until(t, "state of the cluster in the streams after "+after, func() error {
		for i, stream := range r.streams {
			if !stream.open() {
				t.Fatalf("after %s %s has ended: %v", after, stream.uri, stream.err)
			}
			got, err := fold(stream.all())
			if err != nil {
				t.Fatalf("after %s %s: %v", after, stream.uri, err)
			}
			if i >= 2*len(r.selections) {
				continue // the same selection again
			}
			if err := r.compare(t, got, r.selections[i%len(r.selections)], i >= len(r.selections)); err != nil {
				return fmt.Errorf("%s: %w", stream.uri, err)
			}
		}
		return nil
	})
}

// compare compares what a stream holds with what kube-apiserver shows to a new watch, without
// managedFields if the stream is lean.
func (r *restarts) compare(t *testing.T, got map[string]string, s selection, lean bool) error {
	t.Helper()
	state := r.direct.watch(t, s.path+"?watch=1&"+s.query+"&allowWatchBookmarks=1")
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
	state.stop()
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

// miss stops watchfan and cuts it off, so that it misses writes that afterwards neither etcd nor
// the next kube-apiserver knows.
func (r *restarts) miss(t *testing.T, c *cluster, p *watchfan) {
	t.Helper()
	if err := p.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c.restart(t, "--kill")
	r.work.awaitMore(t, 20)
	c.command(t, "compact")
	c.restart(t, "--kill")
	if err := p.Cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// TestUpstreamRestarts: "A broken watch resumes from its last resourceVersion; a 410 upstream means
// one relist … and only the differences go out. Clients keep their streams." (design.md)
func TestUpstreamRestarts(t *testing.T) {
	parallel(t)
	c := privateCluster(t, endWatches...)
	p := privateWatchfan(t, c)
	ns := []string{"restart", "restart-b"}
	r := &restarts{direct: c.direct(t), admin: p.admin(t), selections: selections(ns)[:20]}
	createNamespaces(t, r.direct, ns...)
	p.waitReady(t)
	ours := p.plain(t)
	for i := range 50 {
		s, accepts := r.selections[i%len(r.selections)], jsonType
		if i/len(r.selections) == 1 {
			accepts += drop
		}
		stream, err := ours.tryWatch(t.Context(),
			fmt.Sprintf("%s?watch=1&%s&allowWatchBookmarks=1", s.path, s.query), accept(accepts))
		if err != nil {
			t.Fatal(err)
		}
		r.streams = append(r.streams, stream)
	}
	r.work = &churn{target: r.direct, namespaces: ns, rate: 60, names: 24, seed: steady.Rand(t).Uint64(), tolerant: true}
	stop := r.work.start(t)
	r.work.await(t, 60)
	stop()
	r.settle(t, "writes")

	for _, fault := range []struct {
		name string
		do   func()
		long bool // not with -short
	}{
		{"a restart in which nothing is written", nil, true},
		{"a clean restart", func() { c.restart(t) }, false},
		{"kill -9", func() { c.restart(t, "--kill") }, false},
		{"410", func() { r.miss(t, c, p) }, true},
	} {
		if fault.long && testing.Short() {
			continue
		}
		breaks, relists := r.breaks(t), r.relists(t)
		if fault.do == nil {
			c.restart(t)
		} else {
			stop := r.work.start(t)
			r.work.awaitMore(t, 20)
			fault.do()
			r.work.awaitMore(t, 20)
			stop()
		}
		steady.Until(t, "break of the lane's watch by "+fault.name, func() error {
			if r.breaks(t) == breaks {
				return fmt.Errorf("%v breaks", breaks)
			}
			return nil
		})
		r.settle(t, fault.name)
		if fault.name == "410" && r.relists(t) == relists {
			t.Errorf("the lane did not list again")
		}
		t.Logf("%s: %v breaks, %v relists, %d writes failed", fault.name, r.breaks(t)-breaks, r.relists(t)-relists,
			r.work.errors.Load())
	}
}

// TestUpstreamAway: without kube-apiserver /readyz fails. Reads that may be stale are served from
// the cache, and reads that must be current are not (contract.md L31). The streams go on when it is
// back.
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
	p := privateWatchfan(t, c)
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

	uri := "/api/v1/namespaces/away/configmaps"
	makeConfigMap(t, direct, "away", "x", "")
	stream := ours.watch(t, uri+"?watch=1&allowWatchBookmarks=true")
	stream.wait(t, 2)
	if err := c.Halt(); err != nil {
		t.Fatal(err)
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
	rv := direct.patch(t, uri+"/x", `{"data":{"k":"1"}}`)
	stream.until(t, rv)
	p.waitReady(t)
}

// TestShutdown: "SIGTERM ends watches with a proper last chunk and exits 0 within the timeout",
// also with a client that does not read and one that never finishes its request.
func TestShutdown(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	p := privateWatchfan(t, c, "--drain-duration=1s", "--shutdown-timeout=5s")
	p.waitReady(t)
	for _, head := range []string{"GET /api/v1/configmaps?watch=1&resourceVersion=0 HTTP/1.1\r\n" +
		"Host: localhost\r\n\r\n", "GET /api/v1/conf"} {
		conn, err := net.Dial("tcp", p.ports.Insecure)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, head); err != nil {
			t.Fatal(err)
		}
	}
	var streams []*recording
	for _, way := range p.ways(t, c.token(t, "reader")) {
		for _, uri := range []string{"/api/v1/configmaps?watch=1", "/api/v1/pods?watch=1&resourceVersion=0",
			"/api/v1/configmaps?watch=1&allowWatchBookmarks=true", "/apis/apps/v1/deployments?watch=1"} {
			for range 5 {
				streams = append(streams, way.watch(t, uri))
			}
		}
		passed, err := way.tryWatch(t.Context(), "/api/v1/configmaps?watch=1", http.Header{"Accept": {partial}})
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, passed)
	}
	if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for _, s := range streams {
		s.finish(t)
	}
	p.awaitExit(t)
	if code := p.Cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
