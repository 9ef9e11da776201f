package e2e_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

const tierSlices = "/apis/discovery.k8s.io/v1/namespaces/tier/endpointslices"

// TestFallbackKubeProxy: kube-proxy itself, in nftables mode on a node of its own, sends clients of the
// Service to watchfans with caches as long as one of them is ready, to the fall-back replica while none
// is, and back. Nobody but the fall-back replica writes its slice.
func TestFallbackKubeProxy(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("kube-proxy's mode nftables needs the program nft")
	}
	n := newNode(t)
	c := privateCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "tier")
	direct.create(t, "/api/v1/nodes", fmt.Sprintf(`{"metadata":{"name":"node-a"},"status":{"addresses":[{"type":"InternalIP","address":%q}]}}`, n.far))
	direct.create(t, "/api/v1/namespaces/tier/services", `{"metadata":{"name":"watchfan"},"spec":{"ports":[{"name":"https","port":443}]}}`)
	var service corev1.Service
	if err := json.Unmarshal(direct.get(t, "/api/v1/namespaces/tier/services/watchfan").body, &service); err != nil {
		t.Fatal(err)
	}

	program := binary(t, "WATCHFAN_BIN", "watchfan")
	tier := mortalWatchfan(t, program, c, "--bind-address="+n.near[0], "--resident-resources=configmaps")
	tier.waitReady(t)
	fallback := privateWatchfan(t, c, "--bind-address="+n.near[1], "--fallback-for=tier/watchfan",
		"--fallback-pod=watchfan-fallback-0/uid/node-b", "--fallback-addresses="+n.near[1])
	fallback.waitReady(t)
	// As the EndpointSlice controller writes it.
	endpoint := func(p *watchfan, ready bool) string {
		_, port, _ := net.SplitHostPort(p.Ports.Secure)
		return fmt.Sprintf(`{"metadata":{"name":"watchfan-x","labels":{"kubernetes.io/service-name":"watchfan"}},"addressType":"IPv4",`+
			`"ports":[{"name":"https","port":%s}],"endpoints":[{"addresses":[%q],"conditions":{"ready":%v,"serving":%v,"terminating":false}}]}`,
			port, n.near[0], ready, ready)
	}
	direct.create(t, tierSlices, endpoint(tier, true))
	startKubeProxyItself(t, c, n)

	url := "https://" + net.JoinHostPort(service.Spec.ClusterIP, "443") + "/api/v1/namespaces/tier/configmaps?resourceVersion=0"
	token := c.token(t, "admin")
	cached := func() (bool, error) { // over a connection of its own
		transport := &http.Transport{DialContext: n.dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
		ctx, cancel := context.WithTimeout(t.Context(), steady.Patience)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return false, err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s", resp.Status)
		}
		return proxytest.FromCache(resp.Header), err
	}
	sent := func(to string, want bool) {
		t.Helper()
		steady.Until(t, "answer of "+to, func() error {
			got, err := cached()
			if err == nil && got != want {
				err = fmt.Errorf("from a cache: %v", got)
			}
			return err
		})
		for range 30 {
			if got, err := cached(); err != nil || got != want {
				t.Fatalf("an answer from a cache: %v, %v; want those of %s", got, err, to)
			}
		}
	}
	sent("the tier", true)
	tier.kill()
	direct.patch(t, tierSlices+"/watchfan-x", endpoint(tier, false))
	sent("the fall-back replica", false)
	tier = mortalWatchfan(t, program, c, "--bind-address="+n.near[0], "--resident-resources=configmaps")
	tier.waitReady(t)
	direct.patch(t, tierSlices+"/watchfan-x", endpoint(tier, true))
	sent("the tier", true)
}

// startKubeProxyItself starts kube-proxy on the node.
func startKubeProxyItself(t *testing.T, c *cluster, n *node) {
	t.Helper()
	listener, err := net.Listen("tcp", n.near[2]+":0")
	if err != nil {
		t.Fatal(err)
	}
	relay := proxytest.NewRelayAt(t, listener, c.Address())
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := c.KubeconfigAt(relay.Address(), kubeconfig); err != nil {
		t.Fatal(err)
	}
	runFollower(t, "kube-proxy", exec.Command("ip", "netns", "exec", n.namespace, binary(t, "KUBEPROXY_BIN", "kubeproxy"),
		"--kubeconfig="+kubeconfig, "--proxy-mode=nftables", "--hostname-override=node-a", "--conntrack-max-per-core=0",
		"--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s", "--v=2"))
}
