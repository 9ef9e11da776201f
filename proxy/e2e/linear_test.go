package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// registers are objects with one writer each, which counts up in an annotation and notes what was
// acknowledged. Now and then it deletes its object and creates it again.
type registers struct {
	ns string
	// acked is the last acknowledged step of each register: 2n for the write with count n, 2n+1 for
	// the deletion behind it.
	acked []atomic.Uint64
}

func (r *registers) uri() string { return "/api/v1/namespaces/" + r.ns + "/configmaps" }

// write counts up one register until stop is closed. It repeats a write that may or may not have
// happened.
func (r *registers) write(d *target, i int, pad string, pause time.Duration, stop <-chan struct{}) {
	name, every := fmt.Sprintf("r%d", i), pause
	pause = time.Millisecond
	step := func(n uint64, do func() bool) (goOn bool) {
		for first := true; first || !do(); first = false {
			select {
			case <-stop:
				return false
			case <-time.After(pause/2 + rand.N(pause)):
			}
		}
		r.acked[i].Store(n)
		pause = every
		return true
	}
	for n := uint64(1); ; n++ {
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"r":"%d"},`+
			`"annotations":{"n":"%d"}},"data":{"pad":%q}}`, name, i%2, n, pad)
		written := step(2*n, func() bool {
			resp, err := d.try(http.MethodPut, r.uri()+"/"+name, nil, body)
			if err == nil && resp.status == http.StatusNotFound {
				resp, err = d.try(http.MethodPost, r.uri(), nil, body)
			}
			return err == nil && resp.status < 300
		})
		if !written || n%20 == 0 && !step(2*n+1, func() bool {
			resp, err := d.try(http.MethodDelete, r.uri()+"/"+name, nil, "")
			return err == nil && (resp.status < 300 || resp.status == http.StatusNotFound)
		}) {
			return
		}
	}
}

// counts has the step that a read has shown of each register. A register that it did not show is
// missing.
type counts map[int]uint64

func countsOf(objects []metav1.PartialObjectMetadata) counts {
	c := make(counts)
	for _, o := range objects {
		number, ok := strings.CutPrefix(o.Name, "r")
		i, err := strconv.Atoi(number)
		if !ok || err != nil {
			continue
		}
		n, _ := strconv.ParseUint(o.Annotations["n"], 10, 64)
		c[i] = 2 * n
	}
	return c
}

// registerList is a list of registers, or a page of one.
type registerList struct {
	Metadata metav1.ListMeta
	Items    []metav1.PartialObjectMetadata
}

func listRegisters(d *target, uri string, header http.Header) (registerList, error) {
	resp, err := d.try(http.MethodGet, uri, header, "")
	if err != nil || resp.status != http.StatusOK {
		return registerList{}, fmt.Errorf("%d %w", resp.status, err)
	}
	var l registerList
	err = json.Unmarshal(resp.body, &l)
	return l, err
}

// reading is one way to read registers with an unset resourceVersion.
type reading struct {
	name  string
	shows func(i int) bool
	read  func(d *target) (c counts, rv uint64, err error)
}

func (r *registers) readings() []reading {
	all := func(int) bool { return true }
	list := func(uri, accept string) func(d *target) (counts, uint64, error) {
		return func(d *target) (counts, uint64, error) {
			l, err := listRegisters(d, uri, http.Header{"Accept": {accept}})
			if err != nil {
				return nil, 0, err
			}
			rv, err := strconv.ParseUint(l.Metadata.ResourceVersion, 10, 64)
			return countsOf(l.Items), rv, err
		}
	}
	return []reading{
		{"list", all, list(r.uri(), jsonType)},
		{"list of all namespaces", all, list("/api/v1/configmaps", jsonType)},
		{"list of metadata", all, list(r.uri(), partials)},
		{"list with a selector", func(i int) bool { return i%2 == 1 }, list(r.uri()+"?labelSelector=r%3D1", jsonType)},
		{"list of one", func(i int) bool { return i == 3 },
			list(r.uri()+"?fieldSelector=metadata.name%3Dr3", jsonType)},
		{"get", func(i int) bool { return i == 5 }, func(d *target) (counts, uint64, error) {
			resp, err := d.try(http.MethodGet, r.uri()+"/r5", nil, "")
			if err == nil && resp.status == http.StatusNotFound {
				return counts{}, 0, nil
			}
			if err != nil || resp.status != http.StatusOK {
				return nil, 0, fmt.Errorf("%d %w", resp.status, err)
			}
			var o metav1.PartialObjectMetadata
			if err := json.Unmarshal(resp.body, &o); err != nil {
				return nil, 0, err
			}
			return countsOf([]metav1.PartialObjectMetadata{o}), 0, nil
		}},
		{"pages", all, func(d *target) (c counts, rv uint64, err error) {
			c = make(counts)
			for next := ""; ; {
				l, err := listRegisters(d, r.uri()+"?limit=3&continue="+next, nil)
				if err != nil {
					return nil, 0, err
				}
				maps.Copy(c, countsOf(l.Items))
				version, err := strconv.ParseUint(l.Metadata.ResourceVersion, 10, 64)
				if err != nil || rv != 0 && version != rv {
					return nil, 0, fmt.Errorf("page as of %d behind one as of %d: %w", version, rv, err)
				}
				if rv, next = version, l.Metadata.Continue; next == "" {
					return c, rv, nil
				}
			}
		}},
		{"WatchList", all, func(d *target) (counts, uint64, error) {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			resp, err := d.open(ctx, http.MethodGet,
				r.uri()+"?watch=1&allowWatchBookmarks=1&sendInitialEvents=1"+
					"&resourceVersionMatch=NotOlderThan&timeoutSeconds=20", nil, "")
			if err != nil {
				return nil, 0, err
			}
			defer resp.Body.Close()
			var objects []metav1.PartialObjectMetadata
			for lines := json.NewDecoder(resp.Body); ; {
				var ev struct {
					Type   string
					Object metav1.PartialObjectMetadata
				}
				if err := lines.Decode(&ev); err != nil {
					return nil, 0, err
				}
				if ev.Type == "BOOKMARK" {
					rv, err := strconv.ParseUint(ev.Object.ResourceVersion, 10, 64)
					return countsOf(objects), rv, err
				}
				if ev.Type != "ADDED" {
					return nil, 0, fmt.Errorf("event %s", ev.Type)
				}
				objects = append(objects, ev.Object)
			}
		}},
	}
}

// TestLinearizable: reads without a resourceVersion are "at least as new as any write acknowledged
// before they arrived", for every reader and every kind of read, while 8 writers write at
// kube-apiserver, which is restarted in the middle.
func TestLinearizable(t *testing.T) {
	for _, way := range []struct {
		name  string
		pad   string        // of each object; large ones make the collection too large to be listed for a proof
		pause time.Duration // of each writer
		more  int           // objects that are never written again; many make a list of a part worth while
	}{
		{"small and busy", "", 20 * time.Millisecond, 0},
		{"large and busy", strings.Repeat("x", 80<<10), 60 * time.Millisecond, 0},
		{"large and quiet", strings.Repeat("x", 80<<10), 20 * time.Second, 0},
		{"many and quiet", strings.Repeat("x", 80<<10), 20 * time.Second, 1100},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			linearizable(t, way.pad, way.pause, way.more)
		})
	}
}

func linearizable(t *testing.T, pad string, pause time.Duration, more int) {
	c := privateCluster(t, endWatches...)
	p := privateWatchfan(t, c)
	direct, ours, admin := c.direct(t), p.plain(t), p.admin(t)
	p.waitReady(t)
	createNamespaces(t, direct, "linear")
	direct.create(t, "/api/v1/namespaces/linear/secrets",
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"other"}}`)
	for i := range more {
		makeConfigMap(t, direct, "linear", fmt.Sprint("other", i), `"r":"none"`)
	}
	r := &registers{ns: "linear", acked: make([]atomic.Uint64, 8)}
	stop := make(chan struct{})
	var writers, readers sync.WaitGroup
	for i := range r.acked {
		writers.Go(func() { r.write(direct, i, pad, pause, stop) })
	}
	writers.Go(func() { // another resource is always busy
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
			_, _ = direct.try(http.MethodPut, "/api/v1/namespaces/linear/secrets/other", nil,
				fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"other"},"stringData":{"n":"%d"}}`,
					n))
		}
	})
	eventually(t, 30*time.Second, "each register is written", func() error {
		for i := range r.acked {
			if r.acked[i].Load() == 0 {
				return fmt.Errorf("register %d is not", i)
			}
		}
		return nil
	})

	var reads, errs atomic.Int64
	var mu sync.Mutex
	took := make(map[string][]time.Duration)
	modern := direct.enables(t, watchList)
	for _, way := range r.readings() {
		if way.name == "WatchList" && !modern {
			continue
		}
		readers.Go(func() {
			var newest uint64
			for {
				select {
				case <-stop:
					return
				case <-time.After(rand.N(10 * time.Millisecond)):
				}
				before := make([]uint64, len(r.acked))
				for i := range before {
					before[i] = r.acked[i].Load()
				}
				begin := time.Now()
				got, rv, err := way.read(ours)
				elapsed := time.Since(begin)
				if err != nil { // kube-apiserver is down, or the page has expired
					errs.Add(1)
					time.Sleep(50 * time.Millisecond)
					continue
				}
				reads.Add(1)
				for i, want := range before {
					n, shown := got[i]
					switch {
					case !way.shows(i):
					case shown && n < want:
						t.Errorf("%s shows step %d of register %d, and %d was acknowledged before", way.name, n, i,
							want)
					case !shown && want%2 == 0 && r.acked[i].Load() <= want+1 && want%40 != 0:
						t.Errorf("%s does not show register %d, whose step %d was acknowledged before", way.name, i,
							want)
					}
				}
				if rv != 0 && rv < newest {
					t.Errorf("%s goes back from %d to %d", way.name, newest, rv)
				}
				newest = max(newest, rv)
				mu.Lock()
				took[way.name] = append(took[way.name], elapsed)
				mu.Unlock()
			}
		})
	}
	time.Sleep(*churnFor / 2)
	c.restart(t)
	time.Sleep(*churnFor / 2)
	close(stop)
	writers.Wait()
	readers.Wait()

	passed := admin.metric(t, "watchfan_passthrough_requests_total")
	cached := admin.metric(t, "watchfan_cached_requests_total")
	if cached == 0 || reads.Load() < 50 {
		t.Errorf("%d reads, %v of them served from a cache", reads.Load(), cached)
	}
	writes := uint64(0)
	for i := range r.acked {
		writes += r.acked[i].Load() / 2
	}
	t.Logf("%d writes, %d reads, %d failed; %v served from a cache, %v passed through; proofs: %s", writes,
		reads.Load(), errs.Load(), cached, passed, proofs(t, admin))
	for _, name := range slices.Sorted(maps.Keys(took)) {
		t.Logf("%-24s %s", name, quantiles(took[name]))
	}
}

// proofs returns how often freshness was proved, by each method.
func proofs(t *testing.T, admin *target) string {
	var parts []string
	for _, method := range []string{"stream", "list", "watch"} {
		parts = append(parts, fmt.Sprintf("%s %v", method,
			admin.metric(t, "watchfan_freshness_proofs_total", fmt.Sprintf("method=%q", method), `result="ok"`)))
	}
	return strings.Join(parts, ", ")
}

func quantiles(all []time.Duration) string {
	slices.Sort(all)
	at := func(q float64) time.Duration { return all[int(q*float64(len(all)-1))].Round(100 * time.Microsecond) }
	return fmt.Sprintf("%d reads: p50 %s, p90 %s, p99 %s, max %s", len(all), at(0.5), at(0.9), at(0.99), at(1))
}

// TestConsistentBurst: "Upstream requests per burst of N simultaneous consistent reads: O(1)", for
// small and large answers.
func TestConsistentBurst(t *testing.T) {
	t.Parallel()
	c := privateCluster(t)
	p := privateWatchfan(t, c)
	direct, ours := c.direct(t), p.plain(t)
	p.waitReady(t)
	createNamespaces(t, direct, "burst")
	upstream := func(resource string) float64 {
		return direct.metric(t, "apiserver_request_total", fmt.Sprintf("resource=%q", resource))
	}
	for _, way := range []struct {
		resource, kind string
		size           int
	}{{"serviceaccounts", "ServiceAccount", 100}, {"configmaps", "ConfigMap", 40 << 10}} {
		uri := "/api/v1/namespaces/burst/" + way.resource
		for i := range 20 {
			direct.create(t, uri,
				fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"metadata":{"name":"o%d","annotations":{"k":%q}}}`, way.kind,
					i, strings.Repeat("AAAA", way.size/4)))
		}
		if resp := ours.get(t, uri+"?resourceVersion=0"); resp.status != http.StatusOK { // there is a lane
			t.Fatalf("%d: %s", resp.status, resp.body)
		}
		for name, path := range map[string]func(i int) string{
			"lists": func(int) string { return uri },
			"gets":  func(i int) string { return fmt.Sprintf("%s/o%d", uri, i%20) },
		} {
			const n = 200
			before := upstream(way.resource)
			begin := time.Now()
			burst(t, p.ports.Insecure, n, path)
			elapsed := time.Since(begin)
			requests := upstream(way.resource) - before
			// A few reads are passed through while hardly any others are under way; the rest need a
			// proof or two. A slow machine reads the requests more slowly, so that some proofs, of
			// which there is at most one in 100 ms, begin too early for the last of them.
			if requests > n/8+float64(elapsed/(100*time.Millisecond)) {
				t.Errorf("%v requests upstream for %d %s of %s", requests, n, name, way.resource)
			}
			t.Logf("%d %s of 20 %s of %d bytes: %v requests upstream, %s", n, name, way.resource, way.size, requests,
				elapsed.Round(time.Millisecond))
		}
	}
}

// TestConsistentLoad: whatever the load of consistent lists of a quiet collection, kube-apiserver
// is asked at most once in 100 ms, for its resourceVersion and for a list, and gets at most two
// watches between two of its bookmarks. When nobody asks, it gets nothing.
func TestConsistentLoad(t *testing.T) {
	t.Parallel()
	c := privateCluster(t)
	p := privateWatchfan(t, c)
	direct, ours, admin := c.direct(t), p.plain(t), p.admin(t)
	p.waitReady(t)
	createNamespaces(t, direct, "load")
	uri := "/api/v1/namespaces/load/configmaps"
	for i := range 60 {
		direct.create(t, uri, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"o%d","labels":{"l":"%d"}},`+
			`"data":{"pad":%q}}`, i, i%2, strings.Repeat("x", 40<<10)))
	}
	direct.create(t, "/api/v1/namespaces/load/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"other"}}`)
	ours.get(t, uri+"?resourceVersion=0") // there is a lane
	upstream := func(verb string) float64 {
		return direct.metric(t, "apiserver_request_total", `resource="configmaps"`, fmt.Sprintf("verb=%q", verb))
	}
	time.Sleep(2 * time.Second) // it is quiet
	lists, watches, passed := upstream("LIST"), upstream("WATCH"), admin.metric(t, "watchfan_passthrough_requests_total")
	stop, begin := make(chan struct{}), time.Now()
	var clients sync.WaitGroup
	var mu sync.Mutex
	var took []time.Duration
	for i := range 16 {
		clients.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				path := []string{"/api/v1/configmaps", uri, uri + "?labelSelector=l%3D1", "/api/v1/configmaps?labelSelector=l%3D0"}[i%4]
				asked := time.Now()
				if resp, err := ours.try(http.MethodGet, path, nil, ""); err != nil || resp.status != http.StatusOK {
					t.Errorf("%s: %d %v", path, resp.status, err)
					return
				}
				mu.Lock()
				took = append(took, time.Since(asked))
				mu.Unlock()
				if i == 0 { // other resources change
					_, _ = direct.try(http.MethodPut, "/api/v1/namespaces/load/secrets/other", nil,
						fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"other"},"stringData":{"n":"%d"}}`, n))
				}
			}
		})
	}
	time.Sleep(5 * time.Second)
	close(stop)
	clients.Wait()
	elapsed := time.Since(begin)
	time.Sleep(4 * time.Second) // the last short watch has ended
	lists, watches, passed = upstream("LIST")-lists, upstream("WATCH")-watches,
		admin.metric(t, "watchfan_passthrough_requests_total")-passed
	if most := 2*(elapsed.Seconds()*10+1) + passed; lists > most {
		t.Errorf("%v lists upstream in %s, %v of them passed through, want at most %v", lists, elapsed, passed, most)
	}
	if most := 2*elapsed.Seconds() + 2; watches > most {
		t.Errorf("%v watches upstream in %s, want at most %v", watches, elapsed, most)
	}
	t.Logf("in %s %s; upstream %v lists and %v watches, %v passed through; proofs: %s", elapsed.Round(time.Millisecond),
		quantiles(took), lists, watches, passed, proofs(t, admin))
	lists, watches = upstream("LIST"), upstream("WATCH")
	time.Sleep(3 * time.Second)
	if l, w := upstream("LIST")-lists, upstream("WATCH")-watches; l > 0 || w > 0 {
		t.Errorf("%v lists and %v watches upstream while nobody asks", l, w)
	}
}

// burst sends n requests before it reads the first answer, so that they are simultaneous even if
// answers are slow.
func burst(t *testing.T, addr string, n int, path func(i int) string) {
	t.Helper()
	conns := make([]net.Conn, n)
	for i := range conns {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns[i] = conn
	}
	for i, conn := range conns {
		if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n",
			path(i), addr); err != nil {
			t.Fatal(err)
		}
	}
	for i, conn := range conns {
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", path(i), err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s: %v", path(i), resp.Status, err)
		}
	}
}
