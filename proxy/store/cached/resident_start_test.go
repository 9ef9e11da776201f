package cached

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
	"github.com/watchfan/watchfan/proxy/store/registry"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// A resident resource gets no lane while discovery does not describe it: it would be one of nothing.
func TestResidentUnknown(t *testing.T) {
	up := &proxytest.FakeUpstream[auth.Identity]{Answer: func(auth.Identity, string, []byte) (int, string, error) {
		return http.StatusServiceUnavailable, "", nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	guard, set := proxytest.Guard(), metrics.NewSet()
	discovery := upstream.NewDiscovery(up, guard)
	lanes := lane.NewLanes(ctx, lane.Config{
		Options: &lane.Options{}, Upstream: up, Discovery: discovery, Flusher: fanout.NewFlusher(1, 0, fanout.NewMetrics(set)),
		Metrics: set, Guard: guard,
	})
	r := &resident{name: "pods", reads: &Reads{Config: Config{Discovery: discovery}, Lanes: lanes, ctx: ctx,
		crds: registry.NewCRDWatcher(lanes, discovery, set, guard.Log)}}
	r.start(schema.GroupVersionResource{Version: "v1", Resource: "pods"})
	if l := r.lane.Load(); l != nil {
		t.Errorf("there is a lane of %s", l.Collection)
	}
	cancel()
	lanes.Run(ctx)
	discovery.End()
}
