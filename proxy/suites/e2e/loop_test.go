package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// TestLoop: watchfans whose upstreams are each other are not ready and say why. Requests are refused, and none hangs.
func TestLoop(t *testing.T) {
	parallel(t)
	var fans [2]*watchfan
	var relays [2]*proxytest.Relay
	for i := range fans {
		relays[i] = proxytest.NewRelay(t, "")
		to := programWay{target: &target{base: "http://" + relays[i].Address()}}
		fans[i] = watchfanAs(t, to.kubeconfig(t, &api.AuthInfo{}))
	}
	for i, r := range relays {
		r.Redirect(fans[1-i].Ports.Insecure)
	}
	for _, p := range fans {
		steady.Until(t, "answer of /readyz", func() error {
			resp := p.admin(t).get(t, "/readyz")
			if resp.status != http.StatusInternalServerError || !strings.Contains(string(resp.body), "requests come back to this watchfan") {
				return fmt.Errorf("%d %s", resp.status, resp.body)
			}
			return nil
		})
		if log := proxytest.Tail(p.Log, 100); !strings.Contains(log, "name kube-apiserver's own address") {
			t.Errorf("the log does not say what to do:\n%s", log)
		}
	}
	for _, uri := range []string{"/api/v1/pods?watch=1", "/api/v1/namespaces/a/pods/b", "/apis/example.com/v1/things"} {
		if resp := fans[0].plain(t).get(t, uri); resp.status != http.StatusLoopDetected || !strings.Contains(string(resp.body), `"code":508`) {
			t.Errorf("%s: %d %s", uri, resp.status, resp.body)
		}
	}
}
