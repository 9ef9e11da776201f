package registry

import (
	"context"
	"net/http"
	"testing"

	"github.com/VictoriaMetrics/metrics"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// If kube-apiserver fails the first question about APIServices, and answers the second, that does
// not say that it has none.
func TestAPIServicesFailOnce(t *testing.T) {
	const group = "/apis/apiregistration.k8s.io/v1"
	failed := false
	up := &proxytest.FakeUpstream[auth.Identity]{Answer: func(_ auth.Identity, path string, _ []byte) (int, string, error) {
		switch {
		case path == "/apis":
			return http.StatusOK, `{"kind":"APIGroupList","groups":[{"name":"apiregistration.k8s.io","versions":[{"version":"v1"}]}]}`, nil
		case path == group && failed:
			return http.StatusOK, `{"kind":"APIResourceList","resources":[{"name":"apiservices","kind":"APIService","verbs":["list","watch"]}]}`, nil
		}
		failed = failed || path == group
		return http.StatusServiceUnavailable, "", nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	guard := proxytest.Guard()
	discovery := upstream.NewDiscovery(up, guard)
	set := metrics.NewSet()
	lanes := lane.NewLanes(ctx, lane.Config{
		Options: &lane.Options{}, Upstream: up, Discovery: discovery, Flusher: fanout.NewFlusher(1, 0, fanout.NewMetrics(set)),
		Metrics: set, Guard: guard,
	})
	a := NewAggregation(lanes, discovery, nil, guard.Log)
	if by := a.Served(ctx, schema.GroupVersion{Group: "example.com", Version: "v1"}, false); by != byUnknown {
		t.Errorf("example.com is answered by %d, want it to be unknown", by)
	}
	cancel()
	lanes.Run(ctx)
	discovery.End()
}
