//go:build nightly

package e2e_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// upgrade is two kube-apiservers of different versions on one etcd, and a watchfan that finds either
// behind one address, as while a control plane is upgraded.
type upgrade struct {
	front            *proxytest.Relay
	old, new         *target
	ours, admin      *target
	oldAddr, newAddr string
}

// statefulSet is a minimal StatefulSet. Its rollingUpdate gets maxUnavailable by default if the
// feature gate MaxUnavailableStatefulSet is on.
const statefulSet = `{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":%q},` +
	`"spec":{"selector":{"matchLabels":{"a":"b"}},"serviceName":"s",` +
	`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`

// compareEvery is the interval at which watchfan compares how kube-apiserver writes objects.
const compareEvery = 10 * time.Second

const (
	upgradeMaps = "/api/v1/namespaces/upgrade/configmaps"
	upgradeSets = "/apis/apps/v1/namespaces/upgrade/statefulsets"
)

func newUpgrade(t *testing.T) *upgrade {
	t.Helper()
	c := privateCluster(t)
	u := &upgrade{new: c.direct(t), newAddr: c.Address(),
		oldAddr: c.second(t, binary(t, "OLD_DEVCLUSTER_BIN", "devcluster-old"), c.etcdAddress())}
	u.old = c.direct(t)
	u.old.base = "https://" + u.oldAddr
	u.front = proxytest.NewRelay(t, u.oldAddr)
	createNamespaces(t, u.new, "upgrade")
	for i := range 8 {
		makeConfigMap(t, u.new, "upgrade", fmt.Sprint("c", i), "")
		u.new.create(t, upgradeSets, fmt.Sprintf(statefulSet, fmt.Sprint("s", i)))
	}
	makeConfigMap(t, u.new, "upgrade", "other", "")
	p := privateWatchfan(t, c, c.through(t, u.front))
	p.waitReady(t)
	u.ours, u.admin = p.plain(t), p.admin(t)
	return u
}

// lead has watchfan's connections lead to another server.
func (u *upgrade) lead(address string) {
	u.front.Redirect(address)
	u.front.Reset()
}

// items returns what a server answers to a list from its cache, without the list's own version.
func items(t *testing.T, d *target, uri string) string {
	t.Helper()
	_, items, _ := strings.Cut(string(d.get(t, uri+"?resourceVersion=0").body), `"items":`)
	return items
}

// write writes ConfigMaps at both servers in turn until stop is closed. acked counts its steps, which
// the ConfigMaps show.
func (u *upgrade) write(t *testing.T, acked *atomic.Int64, stop <-chan struct{}) {
	for step := int64(1); pace(stop, 10*time.Millisecond); step++ {
		d := []*target{u.old, u.new}[step%2]
		name := fmt.Sprintf("c%d", step%8)
		if step%32 >= 24 { // all are deleted and created again
			d.remove(t, upgradeMaps+"/"+name)
			makeConfigMap(t, d, "upgrade", name, "")
		}
		d.patch(t, upgradeMaps+"/"+name, fmt.Sprintf(`{"data":{"step":"%d"}}`, step))
		acked.Store(step)
	}
}

// stepOf returns the step that one ConfigMap shows in an answer; 0 if there is none.
func stepOf(body string, i int64) (step int64) {
	_, object, _ := strings.Cut(body, fmt.Sprintf(`"name":"c%d"`, i))
	_, data, _ := strings.Cut(object, `"data":{"k":"0","step":"`)
	_, _ = fmt.Sscanf(data, "%d", &step)
	return step
}

// read reads ConfigMaps until stop is closed. A list and a get show every write before them.
func (u *upgrade) read(t *testing.T, acked *atomic.Int64, stop <-chan struct{}) (reads int) {
	for i := 0; pace(stop, 20*time.Millisecond); i++ {
		step := acked.Load()
		uri := []string{upgradeMaps, fmt.Sprintf("%s/c%d", upgradeMaps, step%8)}[i%2]
		resp, err := u.ours.try(http.MethodGet, uri, nil, "")
		if err != nil || resp.status != http.StatusOK || step == 0 {
			continue // the connection has been reset, or the object is created again
		}
		reads++
		shown := stepOf(string(resp.body), step%8)
		if shown < step && acked.Load() < step+7 { // nothing has begun to write the ConfigMap again
			t.Errorf("%s shows step %d, and %d was acknowledged before", uri, shown, step)
		}
	}
	return reads
}

// TestUpgrade: watchfan's connections lead to a kube-apiserver of another version and back, again and
// again, while clients write at both. Watches go on, and bring every change once and in order, except
// that the first change of version costs a list, of which they bring the differences. Reads show every
// write before them. What the versions write in different bytes is then shown as the new one writes
// it, and its watches end with 410 for that. 1.36 writes StatefulSets as 1.37 does.
func TestUpgrade(t *testing.T) {
	parallel(t)
	u := newUpgrade(t)
	same := items(t, u.old, upgradeSets) == items(t, u.new, upgradeSets)
	if same && !bytes.Contains(u.old.get(t, "/version").body, []byte(`"minor": "36"`)) {
		t.Fatal("both versions write StatefulSets in the same bytes: this would show little")
	}
	const query = "?watch=1&allowWatchBookmarks=true&resourceVersion="
	streams := []*recording{u.new.watch(t, upgradeMaps+query+"0")} // the first is what the others must be
	for _, uri := range []string{upgradeMaps, "/api/v1/configmaps"} {
		streams = append(streams, u.ours.watch(t, uri+query+"0"), u.ours.watch(t, uri+query+"0&labelSelector=!none"))
	}
	for _, r := range streams {
		r.wait(t, 8)
	}
	sets := u.ours.watch(t, upgradeSets+query+"0")
	sets.wait(t, 8)
	if got, want := items(t, u.ours, upgradeSets), items(t, u.old, upgradeSets); got != want {
		t.Errorf("at the old version StatefulSets are\n%s\nwant\n%s", got, want)
	}

	stop := make(chan struct{})
	var acked atomic.Int64
	var busy sync.WaitGroup
	var reads atomic.Int64
	busy.Go(func() { u.write(t, &acked, stop) })
	for range 3 {
		busy.Go(func() { reads.Add(int64(u.read(t, &acked, stop))) })
	}
	time.Sleep(compareEvery) //testlint:allow timer watchfan compares once in this time
	u.lead(u.newAddr)
	steady.Until(t, "list of StatefulSets as the new version writes them", func() error {
		if got, want := items(t, u.ours, upgradeSets), items(t, u.new, upgradeSets); got != want {
			return fmt.Errorf("got\n%s\nwant\n%s", got, want)
		}
		return nil
	})
	steady.Until(t, "list because of another version", func() error {
		if n := u.admin.metric(t, "watchfan_upstream_relists_total", `resource="configmaps"`); n < 1 {
			return fmt.Errorf("%v lists", n)
		}
		return nil
	})
	if same {
		sets.stop()
	} else if events := sets.finish(t); !strings.Contains(events[len(events)-1].line, `"code":410`) {
		t.Errorf("the watch of StatefulSets ended with %s", events[len(events)-1].line)
	}
	mixed := u.new.patch(t, upgradeMaps+"/other", `{"data":{"step":"mixed"}}`)
	more := func() {
		t.Helper()
		count := func() int { return int(acked.Load()) }
		reach(t, "write", count()+50, count)
	}
	for i := range 6 {
		more()
		u.lead([]string{u.oldAddr, u.newAddr}[i%2])
	}
	more()
	close(stop)
	busy.Wait()
	u.compare(t, streams, mixed, u.new.patch(t, upgradeMaps+"/other", `{"data":{"step":"last"}}`))
	breaks := u.admin.metric(t, "watchfan_upstream_watch_breaks_total", `resource="configmaps"`)
	if reads.Load() < 50 || acked.Load() < 100 || breaks < 5 {
		t.Errorf("%d reads, %d writes and %v changes of server are too few to show anything", reads.Load(),
			acked.Load(), breaks)
	}
	t.Logf("%d writes, %d reads, %v changes of server", acked.Load(), reads.Load(), breaks)
}

// compare waits for the last change. Then all streams hold the same as the first, and they are the
// same from the change mixed on.
func (u *upgrade) compare(t *testing.T, streams []*recording, mixed, last uint64) {
	t.Helper()
	var wantState map[string]string
	var wantEvents []event
	for i, r := range streams {
		r.await(t, "last change", func(events []event) bool {
			return slices.ContainsFunc(events, func(e event) bool { return e.typ != "BOOKMARK" && e.rv >= last })
		})
		r.stop()
		events := slices.DeleteFunc(withoutBookmarks(r.all()), func(e event) bool { return !strings.HasPrefix(e.key, "upgrade/") })
		state, err := fold(events)
		if err != nil {
			t.Errorf("%s: %v", r.uri, err)
			continue
		}
		events = slices.DeleteFunc(events, func(e event) bool { return e.rv < mixed })
		if i == 0 {
			wantState, wantEvents = state, events
			t.Logf("%d events while the versions are mixed", len(events))
			continue
		}
		if !maps.Equal(state, wantState) {
			t.Errorf("%s leaves\n%v\nwant\n%v", r.uri, state, wantState)
		}
		if err := compare(events, wantEvents); err != nil {
			t.Errorf("%s: %v", r.uri, err)
		}
	}
}
