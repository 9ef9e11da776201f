package proxy_test

import (
	"encoding/base64"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/pass/fallback"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// A fall-back that may follow namespaces has the views that they name. One that may not shows their clients objects
// that the others do not, so the chart gives it this right.
func TestFallbackNamesViews(t *testing.T) {
	_, flags := reloaded(t, "views:\n- name: some\n  resources:\n  - {resource: configmaps, where: data.v notin (done)}\n"+
		"clients:\n- {viewOf: namespace}\n")
	fallsBack := func(o *proxy.Options) {
		o.SecurePort, o.Downstream.CertDir = 8443, t.TempDir()
		o.Fallback = fallback.Options{FallbackFor: "tier/watchfan", FallbackPod: "fallback-0/uid-1/node-a",
			FallbackAddresses: []string{"10.0.0.7"}, FallbackWatchRate: 200}
	}
	for _, may := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			up := proxytest.NewBubbleServer(t)
			namespaces := up.Add(proxytest.Resource{Version: "v1", Name: "namespaces", Kind: "Namespace"})
			namespaces.Put("", "shop", "", "watchfan.io/view", "some")
			if !may {
				for _, kind := range []proxytest.Kind{proxytest.List, proxytest.WatchList} {
					up.On(kind, math.MaxInt, func(c *proxytest.Call) { c.Fail(http.StatusForbidden, "Forbidden", "", 0) })
				}
			}
			p := bubble.Start(t, up, withFlags(flags), fallsBack)
			p.CMs.Put("ns", "a", "todo")
			p.CMs.Put("ns", "b", "done")
			claims := base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"system:serviceaccount:shop:app"}`))
			_, body := p.Send(bubble.Request{Target: bubble.CMs, Token: "h." + claims + ".s"}).Read()
			if !strings.Contains(body, `"todo"`) || strings.Contains(body, `"done"`) == may {
				t.Errorf("namespaces may be read: %v, got %s", may, body)
			}
		})
	}
}
