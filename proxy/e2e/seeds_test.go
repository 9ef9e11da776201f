package e2e_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

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
	const uri = "/apis/seeds.example.com/v1/namespaces/seeds/seedlings"
	for i := range 300 {
		direct.create(t, uri, fmt.Sprintf(
			`{"apiVersion":"seeds.example.com/v1","kind":"Seedling","metadata":{"name":"s%03d"},"spec":{"n":%d}}`, i, i))
		if i < 20 {
			direct.create(t, "/api/v1/namespaces/seeds/configmaps", fmt.Sprintf(
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c%d"},"data":{"k":"<&>é😀"}}`, i))
		}
	}
	lists := func() float64 { // of the whole collection
		return direct.metric(t, "apiserver_request_total", `resource="seedlings"`, `verb="LIST"`, `scope="cluster"`) +
			direct.metric(t, "apiserver_request_total", `resource="seedlings"`, `verb="WATCHLIST"`)
	}
	serve := func(p *watchfan) {
		t.Helper()
		all, plain := direct.get(t, uri+"?resourceVersion=0"), p.plain(t)
		got := plain.get(t, uri+"?resourceVersion=0")
		if withoutVersion(got.body) != withoutVersion(all.body) {
			t.Errorf("%d bytes, kube-apiserver lists %d", len(got.body), len(all.body))
		}
		for _, form := range []string{jsonType, protoType, partials, "application/vnd.kubernetes.protobuf" + partials[len(jsonType):]} {
			const list = "/api/v1/namespaces/seeds/configmaps?resourceVersion=0"
			theirs := direct.do(t, http.MethodGet, list, accept(form), "")
			ours := plain.do(t, http.MethodGet, list, accept(form), "")
			if form == jsonType || form == partials {
				theirs.body, ours.body = []byte(withoutVersion(theirs.body)), []byte(withoutVersion(ours.body))
			}
			if len(ours.body) != len(theirs.body) {
				t.Errorf("%s: %d bytes, kube-apiserver lists %d", form, len(ours.body), len(theirs.body))
			}
		}
	}
	next := replicas(t, c)
	first := next()
	serve(first)
	before := lists()
	for range 2 {
		began := time.Now()
		p := next("--resident-resources=configmaps")
		ready := time.Since(began)
		serve(p)
		admin := p.admin(t)
		filled, failed := admin.metric(t, "watchfan_lanes_filled_total", `source="sibling"`), admin.metric(t, "watchfan_seed_failures_total")
		t.Logf("ready after %s; %v lanes filled by siblings, %v failures", ready, filled, failed)
		if n := admin.metric(t, "watchfan_lanes_filled_total", `source="upstream"`); n != 0 && failed == 0 || filled < 5 {
			t.Errorf("%v lanes were filled by siblings and %v by kube-apiserver", filled, n)
		}
		if n := admin.metric(t, "watchfan_upstream_watches", `resource="seedlings"`); n != 1 {
			t.Errorf("%v watches upstream", n)
		}
	}
	if n := lists() - before; n != 0 {
		t.Errorf("the second and the third replica listed %v times", n)
	}
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
