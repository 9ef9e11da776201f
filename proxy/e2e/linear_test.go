package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/proxytest/steady"
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
			if !pace(stop, pause) {
				return false
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
			ctx, cancel := context.WithTimeout(context.Background(), steady.Patience)
			defer cancel()
			resp, err := d.open(ctx, http.MethodGet, r.uri()+"?watch=1&allowWatchBookmarks=1&sendInitialEvents=1"+
				"&resourceVersionMatch=NotOlderThan", nil, "")
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
	t.Parallel() // each case has its turn
	for i, way := range []struct {
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
		if i > 0 && testing.Short() || i > 1 && !nightly {
			break
		}
		t.Run(way.name, func(t *testing.T) {
			parallel(t)
			linearizable(t, way.pad, way.pause, way.more)
		})
	}
}

func linearizable(t *testing.T, pad string, pause time.Duration, more int) {
	c := privateCluster(t, endWatches...)
	// The default. A lane that kube-apiserver leaves behind would hold reads up for minutes, and those that pass
	// through count as well.
	p := privateWatchfan(t, c, "--freshness-timeout=3s")
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
		for n := 0; pace(stop, 50*time.Millisecond); n++ {
			_, _ = direct.try(http.MethodPut, "/api/v1/namespaces/linear/secrets/other", nil,
				fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"other"},"stringData":{"n":"%d"}}`,
					n))
		}
	})
	steady.Until(t, "write of each register", func() error {
		for i := range r.acked {
			if r.acked[i].Load() == 0 {
				return fmt.Errorf("register %d is not", i)
			}
		}
		return nil
	})

	var errs atomic.Int64
	reads := make(map[string]*atomic.Int64) // by way
	modern := direct.enables(t, watchList)
	for _, way := range r.readings() {
		if way.name == "WatchList" && !modern {
			continue
		}
		count := new(atomic.Int64)
		reads[way.name] = count
		readers.Go(func() {
			var newest uint64
			for pace(stop, 5*time.Millisecond) {
				before := make([]uint64, len(r.acked))
				for i := range before {
					before[i] = r.acked[i].Load()
				}
				got, rv, err := way.read(ours)
				if err != nil { // kube-apiserver is down, or the page has expired
					errs.Add(1)
					pace(stop, 50*time.Millisecond)
					continue
				}
				count.Add(1)
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
			}
		})
	}
	read := func(n int) {
		t.Helper()
		for name, count := range reads {
			reach(t, name, n, func() int { return int(count.Load()) })
		}
	}
	each := 10 // reads
	if nightly {
		each = 50
	}
	read(each)
	c.restart(t)
	read(2 * each)
	close(stop)
	writers.Wait()
	readers.Wait()

	passed := admin.metric(t, "watchfan_passthrough_requests_total")
	cached := admin.metric(t, "watchfan_cached_requests_total")
	if cached == 0 {
		t.Error("no read was served from a cache")
	}
	writes := uint64(0)
	for i := range r.acked {
		writes += r.acked[i].Load() / 2
	}
	t.Logf("%d writes, %d reads failed; %v served from a cache, %v passed through; proofs: %s", writes, errs.Load(), cached,
		passed, proofs(t, admin))
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
