package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
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

// registerList is a list of registers, a page of one, or one register.
type registerList struct {
	Metadata struct {
		metav1.ObjectMeta
		Continue string
	}
	Items []metav1.PartialObjectMetadata
}

func (c counts) add(o metav1.ObjectMeta) {
	if number, ok := strings.CutPrefix(o.Name, "r"); ok {
		i, err := strconv.Atoi(number)
		n, err2 := strconv.ParseUint(o.Annotations["n"], 10, 64)
		if err == nil && err2 == nil {
			c[i] = 2 * n
		}
	}
}

// reading is one way to read registers with an unset resourceVersion.
type reading struct {
	name, uri, accepts string
	shows              func(i int) bool
}

func (r *registers) readings() []reading {
	all := func(int) bool { return true }
	return []reading{
		{"list", r.uri(), jsonType, all},
		{"list of all namespaces", "/api/v1/configmaps", jsonType, all},
		{"list of metadata", r.uri(), partials, all},
		{"list with a selector", r.uri() + "?labelSelector=r%3D1", jsonType, func(i int) bool { return i%2 == 1 }},
		{"list of one", r.uri() + "?fieldSelector=metadata.name%3Dr3", jsonType, func(i int) bool { return i == 3 }},
		{"get", r.uri() + "/r5", jsonType, func(i int) bool { return i == 5 }},
		{"pages", r.uri() + "?limit=3", jsonType, all},
		{"WatchList", r.uri() + "?watch=1&allowWatchBookmarks=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan", jsonType, all},
	}
}

// read returns what a reading shows, and as of when. Of one register it does not know when.
func (r reading) read(d *target) (c counts, rv uint64, err error) {
	c = make(counts)
	if r.name == "WatchList" {
		rv, err = c.watch(d, r.uri)
		return c, rv, err
	}
	for next := ""; ; {
		resp, err := d.try(http.MethodGet, r.uri+next, accept(r.accepts), "")
		if r.name == "get" && err == nil && resp.status == http.StatusNotFound {
			return c, 0, nil
		}
		var l registerList
		if err == nil && resp.status != http.StatusOK {
			err = fmt.Errorf("%d", resp.status)
		}
		if err == nil {
			err = json.Unmarshal(resp.body, &l)
		}
		if err != nil {
			return nil, 0, err
		}
		if r.name == "get" {
			c.add(l.Metadata.ObjectMeta)
			return c, 0, nil
		}
		for _, o := range l.Items {
			c.add(o.ObjectMeta)
		}
		version, err := strconv.ParseUint(l.Metadata.ResourceVersion, 10, 64)
		if err != nil || rv != 0 && version != rv {
			return nil, 0, fmt.Errorf("page as of %d behind one as of %d: %w", version, rv, err)
		}
		if rv, next = version, "&continue="+l.Metadata.Continue; l.Metadata.Continue == "" {
			return c, rv, nil
		}
	}
}

// watch reads the initial events of a watch, and returns the resourceVersion behind them.
func (c counts) watch(d *target, uri string) (rv uint64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), steady.Patience)
	defer cancel()
	resp, err := d.open(ctx, http.MethodGet, uri, nil, "")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for events := json.NewDecoder(resp.Body); ; {
		var ev struct {
			Type   string
			Object metav1.PartialObjectMetadata
		}
		if err := events.Decode(&ev); err != nil {
			return 0, err
		}
		switch ev.Type {
		case "BOOKMARK":
			return strconv.ParseUint(ev.Object.ResourceVersion, 10, 64)
		case "ADDED":
			c.add(ev.Object.ObjectMeta)
		default:
			return 0, fmt.Errorf("event %s", ev.Type)
		}
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
		{"small and busy", "", 20 * time.Millisecond, 150},
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
			_, _ = direct.write(http.MethodPatch, "/api/v1/namespaces/linear/secrets/other", "application/merge-patch+json",
				fmt.Sprintf(`{"stringData":{"n":"%d"}}`, n))
		}
	})
	for i := range r.acked {
		reach(t, "write of a register", 1, func() int { return int(r.acked[i].Load()) })
	}

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

	cached := admin.metric(t, "watchfan_cached_requests_total")
	if cached == 0 {
		t.Error("no read was served from a cache")
	}
	t.Logf("%d reads failed; %v served from a cache, %v passed through", errs.Load(), cached,
		admin.metric(t, "watchfan_passthrough_requests_total"))
}
