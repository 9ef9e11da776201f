// Package conformance runs Kubernetes' conformance specs straight against a dev cluster's
// kube-apiserver, and then through watchfan.
package conformance

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

func TestConformance(t *testing.T) {
	program := func(env, name string) string { return proxytest.Binary(t, env, name, "conformance") }
	conformance, kubectl := program("CONFORMANCE_BIN", "conformance"), program("KUBECTL_BIN", "kubectl")
	devcluster, watchfan := program("DEVCLUSTER_BIN", "devcluster"), program("WATCHFAN_BIN", "watchfan")
	run := func(t *testing.T, kubeconfig, contentType string) {
		cmd := exec.CommandContext(t.Context(), conformance, "--kubeconfig", kubeconfig, "--content-type",
			contentType, "--kubectl", kubectl)
		// client-go, in the specs and in kubectl, compares its watch-lists with lists of exactly that
		// version. It panics if they differ, and then the specs of that worker have not passed.
		cmd.Env = append(os.Environ(), "KUBE_WATCHLIST_INCONSISTENCY_DETECTOR=true", "KUBE_LIST_FROM_CACHE_INCONSISTENCY_DETECTOR=true")
		output, err := cmd.CombinedOutput()
		t.Logf("%s", output)
		if err != nil {
			t.Errorf("conformance: %v", err)
		}
	}

	// What fails here says nothing about watchfan.
	t.Run("kube-apiserver", func(t *testing.T) {
		run(t, proxytest.RunCluster(t, devcluster).Ready.Kubeconfigs["admin"], "application/json")
	})
	for _, format := range []string{"json", "vnd.kubernetes.protobuf"} {
		t.Run("watchfan/"+format, func(t *testing.T) {
			c, dir := proxytest.RunCluster(t, devcluster), t.TempDir()
			fan, err := proxytest.StartWatchfan(watchfan, dir, c.Ready.Kubeconfigs["admin"], steady.Patience)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := fan.Stop(); err != nil {
					t.Error(err)
				}
			})
			config := api.NewConfig()
			config.Clusters["watchfan"] = &api.Cluster{Server: "https://" + fan.Ports.Secure,
				CertificateAuthority: filepath.Join(dir, "watchfan.crt")}
			config.AuthInfos["admin"] = &api.AuthInfo{TokenFile: c.Ready.TokenFiles["admin"]}
			config.Contexts["watchfan"] = &api.Context{Cluster: "watchfan", AuthInfo: "admin"}
			config.CurrentContext = "watchfan"
			kubeconfig := filepath.Join(dir, "kubeconfig")
			if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
				t.Fatal(err)
			}
			run(t, kubeconfig, "application/"+format)
			if delivered(t, fan.Ports.Admin) == 0 {
				t.Error("watchfan has delivered no event from its caches: the specs have not tested it")
			}
		})
	}
}

// delivered returns how many events watchfan has sent from its caches.
func delivered(t *testing.T, admin string) float64 {
	t.Helper()
	resp, err := http.Get("http://" + admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return proxytest.SumMetric(string(text), "watchfan_delivered_events_total")
}
