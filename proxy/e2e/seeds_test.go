package e2e_test

import (
	"bytes"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/watchfan/watchfan/proxy/downstream"
)

// replicas starts watchfans with one certificate, each of which has those before it as siblings.
func replicas(t *testing.T, c *cluster) (next func(flags ...string) *watchfan) {
	t.Helper()
	certFile, keyFile, err := downstream.SelfSigned(filepath.Join(t.TempDir(), "tier"))
	if err != nil {
		t.Fatal(err)
	}
	siblings := ""
	return func(flags ...string) *watchfan {
		t.Helper()
		args := append([]string{"--tls-cert-file=" + certFile, "--tls-private-key-file=" + keyFile}, flags...)
		if siblings != "" {
			args = append(args, "--seed-from="+siblings[1:])
		}
		p := privateWatchfan(t, c, args...)
		p.waitReady(t)
		siblings += "," + p.ports.Secure
		return p
	}
}

// TestSeeds: the second and the third replica list nothing at kube-apiserver. Each has one watch
// there. What they serve is kube-apiserver's, to the byte, in each representation.
func TestSeeds(t *testing.T) {
	t.Parallel()
	c := sharedCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "seeds")
	createCRD(t, direct, "seeds.example.com", "Seedling", "Namespaced") // only this test asks for it
	const seedlings, configMaps = "/apis/seeds.example.com/v1/namespaces/seeds/seedlings", "/api/v1/namespaces/seeds/configmaps"
	for i := range 300 {
		direct.create(t, seedlings, fmt.Sprintf(
			`{"apiVersion":"seeds.example.com/v1","kind":"Seedling","metadata":{"name":"s%03d"},"spec":{"n":%d}}`, i, i))
		if i < 20 {
			direct.create(t, configMaps, fmt.Sprintf(
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c%d"},"data":{"k":"<&>é😀"}}`, i))
		}
	}
	lists := func() float64 { // of the whole collection
		return direct.metric(t, "apiserver_request_total", `resource="seedlings"`, `verb="LIST"`, `scope="cluster"`) +
			direct.metric(t, "apiserver_request_total", `resource="seedlings"`, `verb="WATCHLIST"`)
	}
	// Without the schema, replicas do not know that the same build answers all of them.
	eventually(t, 60*time.Second, "the resource's schema", func() error {
		if resp := direct.get(t, "/openapi/v3"); !bytes.Contains(resp.body, []byte("apis/seeds.example.com/v1")) {
			return fmt.Errorf("%d bytes without it", len(resp.body))
		}
		return nil
	})
	next := replicas(t, c)
	first := next()
	sameLists(t, first, direct, seedlings, "s000", jsonType, partials)
	sameLists(t, first, direct, configMaps, "c0", jsonType, protoType, partials, partialsProto)
	before := lists()
	for range 2 {
		began := time.Now()
		p := next("--resident-resources=configmaps")
		ready := time.Since(began)
		sameLists(t, p, direct, seedlings, "s000", jsonType, partials)
		sameLists(t, p, direct, configMaps, "c0", jsonType, protoType, partials, partialsProto)
		admin := p.admin(t)
		filled := admin.metric(t, "watchfan_lanes_filled_total", `source="sibling"`)
		listed := admin.metric(t, "watchfan_lanes_filled_total", `source="upstream"`)
		t.Logf("ready after %s; %v lanes filled by siblings", ready, filled)
		if filled < 6 || listed != 0 {
			t.Errorf("%v lanes were filled by siblings and %v by kube-apiserver", filled, listed)
		}
		if n := admin.metric(t, "watchfan_upstream_watches", `resource="seedlings"`, `encoding="json"`); n != 1 {
			t.Errorf("%v watches upstream", n)
		}
	}
	if n := lists() - before; n != 0 {
		t.Errorf("the second and the third replica listed %v times", n)
	}
}

const partialsProto = protoType + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

// sameLists compares lists of p's caches with kube-apiserver's, in several forms, after a write to
// the object of a name.
func sameLists(t *testing.T, p *watchfan, direct *target, uri, name string, forms ...string) {
	t.Helper()
	plain, admin := p.plain(t), p.admin(t)
	passed := func() float64 { return admin.metric(t, "watchfan_passthrough_requests_total", `verb="list"`) }
	for _, form := range forms {
		plain.do(t, http.MethodGet, uri+"?resourceVersion=0", accept(form), "")
	}
	rv := direct.patch(t, uri+"/"+name, fmt.Sprintf(`{"metadata":{"annotations":{"of":%q}}}`, p.ports.Secure))
	for _, form := range forms {
		eventually(t, 30*time.Second, "the write is cached", func() error {
			before := passed()
			plain.do(t, http.MethodGet, fmt.Sprintf("%s?resourceVersion=%d", uri, rv), accept(form), "")
			if passed() != before {
				return fmt.Errorf("a list was passed through")
			}
			return nil
		})
		before := passed()
		at := fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact", uri, rv)
		theirs, ours := direct.do(t, http.MethodGet, at, accept(form), ""), plain.do(t, http.MethodGet, at, accept(form), "")
		if theirs.status != http.StatusOK || !bytes.Equal(ours.body, theirs.body) {
			t.Errorf("%s of %s: %d bytes, kube-apiserver lists %d and %d bytes", form, uri, len(ours.body), theirs.status, len(theirs.body))
		}
		if passed() != before {
			t.Errorf("%s of %s: the list was passed through", form, uri)
		}
	}
}

// TestSeedsWhileWriting: replicas start one after the other while objects are written, each filled
// from one before. The watchers of each receive the state and every event after it, as
// kube-apiserver's own.
func TestSeedsWhileWriting(t *testing.T) {
	c := sharedCluster(t)
	direct := c.direct(t)
	namespaces := []string{"growing", "growing-b", "zgrowing"}
	createNamespaces(t, direct, namespaces...)
	makeConfigMap(t, direct, "growing", "last", "")
	const uri = "/api/v1/configmaps?watch=1&allowWatchBookmarks=true&timeoutSeconds=600"
	reference := direct.watch(t, uri)
	reference.initial(t)
	work := &churn{target: direct, namespaces: namespaces, rate: *writes, names: 24, seed: *seed}
	stop, written := make(chan struct{}), make(chan error, 1)
	go func() { written <- work.run(stop) }()
	next := replicas(t, c)
	var watches []*recording
	for i := range 4 {
		p := next("--resident-resources=configmaps")
		admin := p.admin(t)
		if n := admin.metric(t, "watchfan_lanes_filled_total", `source="sibling"`); i > 0 && n == 0 {
			t.Errorf("replica %d: no lane was filled from siblings, %v failures", i, admin.metric(t, "watchfan_seed_failures_total"))
		}
		watches = append(watches, p.plain(t).watch(t, uri+"&resourceVersion=0"), p.plain(t).watch(t, uri))
		time.Sleep(time.Second)
	}
	for _, w := range watches {
		w.initial(t)
	}
	close(stop)
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	last := direct.patch(t, "/api/v1/namespaces/growing/configmaps/last", `{"data":{"k":"last"}}`)
	until := func(r *recording) []event {
		t.Helper()
		eventually(t, 30*time.Second, "the last write", func() error {
			if events := r.all(); events[len(events)-1].rv < last {
				return fmt.Errorf("%s is at %d, want %d; open: %v", r.target.name, events[len(events)-1].rv, last, r.open())
			}
			return nil
		})
		r.stop()
		return slices.DeleteFunc(r.all(), func(e event) bool { return e.rv > last })
	}
	m, err := newModel(until(reference))
	if err != nil {
		t.Fatal(err)
	}
	everything := filter{labels: labels.Everything(), fields: fields.Everything()}
	for i, w := range watches {
		if n, err := m.explain(everything, until(w), true, m.at); err != nil {
			t.Errorf("watch %d: %v", i, err)
		} else {
			t.Logf("watch %d: %d initial events, %d after them", i, n, len(w.objects())-n)
		}
	}
	t.Logf("%d writes", work.writes.Load())
}

// TestSeedsUnderWrites: watchers of a replica that was filled from another receive what
// kube-apiserver's own watchers receive, while the first replica ends.
func TestSeedsUnderWrites(t *testing.T) {
	c := sharedCluster(t)
	next := replicas(t, c)
	first := next("--resident-resources=configmaps", "--drain-duration=1s")
	second := next()
	compareWatchers(t, c, second, []string{"seeded", "seeded-b", "zseeded"}, min(24, *watchers), func() {
		if err := first.stop(); err != nil {
			t.Error(err)
		}
	})
	if n := second.admin(t).metric(t, "watchfan_lanes_filled_total", `source="sibling"`); n == 0 {
		t.Error("the second replica was not filled from the first")
	}
}
