package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// TestPlugin: kubectl finds the plugin, which finds a pod of watchfan by its labels. kube-apiserver
// forwards a port of it, over WebSocket, through a kubelet that is scripted here and connects to a
// watchfan of this host.
func TestPlugin(t *testing.T) {
	parallel(t)
	program := binary(t, "KUBECTL_BIN", "kubectl")
	c := sharedCluster(t)
	p := privateWatchfan(t, c)
	p.waitReady(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "plugin")
	makeConfigMap(t, direct, "plugin", "x", "")
	warm(t, []*target{p.secure(t, c.token(t, "admin"))}, "/api/v1/namespaces/plugin/configmaps")
	for range 3 {
		p.secure(t, c.token(t, "admin")).watch(t, "/api/v1/namespaces/plugin/configmaps?watch=1&resourceVersion=0")
	}

	kubelet := newScriptedKubelet(t, p.Ports.Admin)
	direct.create(t, "/api/v1/nodes", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"plugin"}}`)
	direct.patch(t, "/api/v1/nodes/plugin/status", fmt.Sprintf(`{"status":{`+
		`"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],`+
		`"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}}}}`, kubelet.Listener.Addr().(*net.TCPAddr).Port))
	pods := "/api/v1/namespaces/plugin/pods"
	direct.create(t, pods, `{"apiVersion":"v1","kind":"Pod",`+
		`"metadata":{"name":"watchfan-0","labels":{"app.kubernetes.io/name":"watchfan"}},"spec":{"nodeName":"plugin",`+
		`"containers":[{"name":"w","image":"i","ports":[{"name":"admin","containerPort":8002}]}]}}`)

	bin := t.TempDir()
	own := binary(t, "WATCHFAN_PLAIN_BIN", "watchfan")
	for name, to := range map[string]string{"kubectl": program, "kubectl-watchfan": own} {
		if err := os.Symlink(to, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	f := func(wantCode int, want string, args ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), steady.Patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, filepath.Join(bin, "kubectl"), append([]string{"watchfan"}, args...)...)
		cmd.Env = []string{"HOME=" + bin, "PATH=" + bin, "KUBECONFIG=" + c.Ready.Kubeconfigs["admin"]}
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		if code := cmd.ProcessState.ExitCode(); code != wantCode || !strings.Contains(string(out), want) {
			t.Errorf("kubectl watchfan %s: exit code %d\n%s\nwant %d and %q", strings.Join(args, " "), code, out, wantCode, want)
		}
	}
	f(1, "no pod of watchfan runs in namespace plugin: 1 match", "top", "-n", "plugin") // no kubelet has said that it runs
	direct.patch(t, pods+"/watchfan-0/status", `{"status":{"phase":"Running"}}`)
	f(0, "3 watches, 3 matching, 2 shown", "top", "-n", "plugin", "--limit=2")
	f(0, "configmaps", "explain", "-n", "plugin", "--pod=watchfan-0")
	f(1, "404 Not Found", "explain", "999999", "-n", "plugin")
	kubelet.Close()
	f(1, "reach port 8002 of pod plugin/watchfan-0: ", "top", "-n", "plugin")
}

// A scriptedKubelet forwards every port of a pod to one address.
type scriptedKubelet struct {
	*httptest.Server
	to string
}

func newScriptedKubelet(t *testing.T, to string) *scriptedKubelet {
	k := &scriptedKubelet{to: to}
	k.Server = httptest.NewTLSServer(k)
	t.Cleanup(k.Close)
	return k
}

func (k *scriptedKubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/portForward/plugin/watchfan-0" {
		http.NotFound(w, r)
		return
	}
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		return
	}
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		if s.Headers().Get("streamType") == "error" {
			go s.Close()
		} else {
			go k.connect(s)
		}
		return nil
	})
	if conn != nil {
		<-conn.CloseChan()
		conn.Close()
	}
}

func (k *scriptedKubelet) connect(s httpstream.Stream) {
	defer s.Close()
	c, err := net.Dial("tcp", k.to)
	if err != nil {
		return
	}
	defer c.Close()
	go func() {
		_, _ = io.Copy(c, s)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(s, c)
}
