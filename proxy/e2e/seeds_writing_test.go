//go:build nightly

package e2e_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// TestSeedsWhileWriting: replicas start one after the other while objects are written, each filled
// from one before. The watchers of each receive the state and every event after it, as
// kube-apiserver's own.
func TestSeedsWhileWriting(t *testing.T) {
	parallel(t)
	c := privateCluster(t)
	direct := c.direct(t)
	namespaces := []string{"growing", "growing-b", "zgrowing"}
	createNamespaces(t, direct, namespaces...)
	makeConfigMap(t, direct, "growing", "last", "")
	const uri = "/api/v1/configmaps?watch=1&allowWatchBookmarks=true"
	reference := direct.follow(t, uri)
	reference.initial(t)
	work := &churn{target: direct, namespaces: namespaces, rate: 100, names: 24, seed: steady.Rand(t).Uint64()}
	stop := work.start(t)
	next := replicas(t, c)
	var watches []*recording
	for i := range 4 {
		p := next("--resident-resources=configmaps")
		admin := p.admin(t)
		if n := admin.metric(t, "watchfan_lanes_filled_total", `source="sibling"`); i > 0 && n == 0 {
			t.Errorf("replica %d: no lane was filled from siblings, %v failures", i, admin.metric(t, "watchfan_seed_failures_total"))
		}
		watches = append(watches, p.plain(t).watch(t, uri+"&resourceVersion=0"), p.plain(t).watch(t, uri))
		work.awaitMore(t, 100)
	}
	for _, w := range watches {
		w.initial(t)
	}
	stop()
	last := direct.patch(t, "/api/v1/namespaces/growing/configmaps/last", `{"data":{"k":"last"}}`)
	m, err := newModel(reference.until(t, last))
	if err != nil {
		t.Fatal(err)
	}
	everything := filter{labels: labels.Everything(), fields: fields.Everything()}
	for i, w := range watches {
		events := w.until(t, last)
		if n, err := m.explain(everything, events, true, m.at); err != nil {
			t.Errorf("watch %d: %v", i, err)
		} else {
			t.Logf("watch %d: %d initial events, %d after them", i, n, len(withoutBookmarks(events))-n)
		}
	}
	t.Logf("%d writes", work.writes.Load())
}
