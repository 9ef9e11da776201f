//go:build nightly

package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// TestSelfCheck: comparisons of lanes with a real kube-apiserver find no difference, page by page in each representation
// and for events, which kube-apiserver does not cache, while all is written and kube-apiserver restarts.
func TestSelfCheck(t *testing.T) {
	parallel(t)
	c := privateCluster(t, endWatches...)
	direct := c.direct(t)
	createNamespaces(t, direct, "checked")
	for i := range 150 { // a list has several pages
		direct.create(t, "/api/v1/namespaces/checked/configmaps", fmt.Sprintf(
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c%03d"},"data":{"k":%q}}`, i, strings.Repeat("x", 120_000)))
	}
	p := privateWatchfan(t, c, "--self-check-interval=1s")
	plain, admin := p.plain(t), p.admin(t)
	for _, form := range []string{jsonType, protoType, partials} {
		plain.do(t, http.MethodGet, "/api/v1/configmaps?resourceVersion=0&limit=1", accept(form), "")
	}
	plain.get(t, "/api/v1/events?resourceVersion=0")
	awaitEqual := func(n float64) {
		t.Helper()
		before := make(map[string]float64)
		steady.Until(t, "self-checks", func() error {
			for _, lane := range []string{"events json", "configmaps json", "configmaps protobuf", "configmaps json-metadata-v1"} {
				resource, encoding, _ := strings.Cut(lane, " ")
				got := admin.metric(t, "watchfan_lane_self_checks_total", fmt.Sprintf("resource=%q", resource),
					fmt.Sprintf("encoding=%q", encoding), `result="equal"`)
				if first, ok := before[lane]; !ok {
					before[lane] = got
					return fmt.Errorf("none of %s", lane)
				} else if got < first+n {
					return fmt.Errorf("%v of %s, want %v more than %v", got, lane, n, first)
				}
			}
			return nil
		})
		if n := admin.metric(t, "watchfan_lane_self_checks_total", `result="different"`); n != 0 {
			t.Errorf("%v comparisons found a difference", n)
		}
	}
	work := &churn{target: direct, namespaces: []string{"checked"}, rate: 20, names: 24, seed: steady.Rand(t).Uint64(), tolerant: true}
	stop := work.start(t)
	for i := range 2 {
		work.awaitMore(t, 20)
		direct.create(t, "/api/v1/namespaces/checked/events", fmt.Sprintf(
			`{"apiVersion":"v1","kind":"Event","metadata":{"name":"e%d"},"involvedObject":{"namespace":"checked"}}`, i))
		awaitEqual(5)
		c.restart(t)
	}
	stop()
	awaitEqual(2)
}
