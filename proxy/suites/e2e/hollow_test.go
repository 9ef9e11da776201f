//go:build hollow

package e2e_test

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

const (
	hollowKubelets  = 5
	hollowNamespace = "hollow"
	podsPerKubelet  = 5
	hollowCore      = "/api/v1/namespaces/" + hollowNamespace
)

// TestHollowKubelets: kubelets hold as many connections at watchfan as at kube-apiserver, below and
// beyond a hundred watches for each kubelet. Their pods run, and what these mount follows its
// objects, also when another watchfan has taken the first one's place. Each kubelet shows a
// certificate and is authorized by the Node authorizer. make hollow builds the kubelets, which are
// Kubernetes' own without containers, and runs this test.
func TestHollowKubelets(t *testing.T) {
	program := binary(t, "KUBEMARK_BIN", "kubemark")
	for _, perPod := range []int{5, 12} {
		t.Run(fmt.Sprintf("mounts=%d", podsPerKubelet*2*perPod), func(t *testing.T) {
			theirs, theirWatches := newHollowCluster(t, program, perPod).straight(t)
			ours, ourWatches := newHollowCluster(t, program, perPod).through(t)
			if !slices.Equal(ours, theirs) {
				t.Errorf("the kubelets have %v connections to watchfan, and %v to kube-apiserver", ours, theirs)
			}
			if ourWatches != theirWatches {
				t.Errorf("the kubelets have %d watches at watchfan, and %d at kube-apiserver", ourWatches, theirWatches)
			}
		})
	}
}

// hollowCluster is a cluster with a namespace for pods.
type hollowCluster struct {
	*cluster
	program string
	perPod  int // ConfigMaps that a pod mounts, and as many Secrets; a kubelet watches each of them on its own
	direct  *target
	idle    int // kube-apiserver's watches before anybody came
}

func newHollowCluster(t *testing.T, program string, perPod int) *hollowCluster {
	t.Helper()
	c := privateCluster(t, "--apiserver-arg", "authorization-mode=Node", // besides RBAC
		"--apiserver-arg", "enable-admission-plugins=NodeRestriction")
	h := &hollowCluster{cluster: c, program: program, perPod: perPod, direct: c.direct(t)}
	createNamespaces(t, h.direct, hollowNamespace)
	h.idle = h.watches(t)
	return h
}

// watches returns how many watches kube-apiserver has more than when it was idle.
func (h *hollowCluster) watches(t *testing.T) int {
	t.Helper()
	return int(h.direct.metric(t, "apiserver_longrunning_requests", `verb="WATCH"`)) - h.idle
}

// straight runs the kubelets at kube-apiserver. It returns the connections of each, and the watches of all.
func (h *hollowCluster) straight(t *testing.T) (connections []int, watches int) {
	t.Helper()
	kubelets := h.run(t, programWay{h.direct, h.Ready.CAFile})
	return connectionsOf(t, kubelets, h.Address()), h.watches(t)
}

// through runs the kubelets at a watchfan, and has another watchfan take its place in the end.
func (h *hollowCluster) through(t *testing.T) (connections []int, watches int) {
	t.Helper()
	authority := h.authority(t).File
	p := plainWatchfan(t, h.cluster, "--client-ca-file", authority, "--drain-duration=2s")
	p.waitReady(t)
	kubelets := h.run(t, programWay{p.secure(t, ""), p.certificate()})
	admin := p.admin(t)
	connections, watches = connectionsOf(t, kubelets, p.Ports.Secure), int(admin.metric(t, "watchfan_watchers"))
	passed := func(labels ...string) float64 {
		return admin.metric(t, "watchfan_passthrough_requests_total", labels...)
	}
	t.Logf("connections of each kubelet %v; %d watches, %d at kube-apiserver; %v access reviews; passed through: %v gets, %v requests in all",
		connections, watches, h.watches(t), admin.metric(t, "watchfan_access_reviews_total"), passed(`verb="get"`), passed())
	if n := passed(`verb="watch"`); n > 0 {
		t.Errorf("%v watches were passed through", n)
	}
	// One more follows the definitions of custom resources.
	if got, most := h.watches(t), int(admin.metric(t, "watchfan_upstream_watches"))+1; got > most {
		t.Errorf("kube-apiserver has %d watches, want at most %d", got, most)
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(p.Ports.Secure, ":")
	next := plainWatchfan(t, h.cluster, "--client-ca-file", authority, "--cert-dir", filepath.Dir(p.certificate()), "--secure-port", port)
	h.rewrite(t, kubelets, "newer")
	next.admin(t).awaitWatchers(t, watches)
	if got := connectionsOf(t, kubelets, p.Ports.Secure); !slices.Equal(got, connections) {
		t.Errorf("the kubelets have %v connections to the next watchfan, and had %v", got, connections)
	}
	return connections, watches
}

// connectionsOf returns how many connections to an address each kubelet has.
func connectionsOf(t *testing.T, kubelets []*hollowKubelet, address string) (connections []int) {
	t.Helper()
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		t.Fatal(err)
	}
	remote := fmt.Sprintf("0100007F:%04X", to.Port()) // 127.0.0.1
	for _, k := range kubelets {
		sockets, err := socketsOf(k.Cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		connections = append(connections, len(slices.DeleteFunc(sockets, func(s tcpSocket) bool {
			return s.remote != remote || s.state != "01" // ESTABLISHED
		})))
	}
	return connections
}

// run runs kubelets, until their pods run and what they mount has followed a change.
func (h *hollowCluster) run(t *testing.T, w programWay) (kubelets []*hollowKubelet) {
	t.Helper()
	for i := range hollowKubelets {
		node := fmt.Sprintf("node-%d", i)
		h.createPods(t, node)
		certificate := h.authority(t).client(t, "system:node:"+node, "system:nodes")
		kubelets = append(kubelets, startHollowKubelet(t, h.program, node, w, certificate))
	}
	steady.Until(t, "run of all pods", h.podsRun)
	h.rewrite(t, kubelets, "new")
	return kubelets
}

// rewrite changes every object that is mounted, and waits until the kubelets have written it again.
func (h *hollowCluster) rewrite(t *testing.T, kubelets []*hollowKubelet, value string) {
	t.Helper()
	for _, k := range kubelets {
		for i := range podsPerKubelet * h.perPod {
			name := fmt.Sprintf("%s-%d-%d", k.node, i/h.perPod, i%h.perPod) // of a ConfigMap and of a Secret
			h.direct.patch(t, hollowCore+"/configmaps/"+name, fmt.Sprintf(`{"data":{"value":%q}}`, value))
			h.direct.patch(t, hollowCore+"/secrets/"+name, fmt.Sprintf(`{"stringData":{"value":%q}}`, value))
		}
	}
	for _, k := range kubelets {
		steady.Until(t, "mounted value "+value, func() error {
			return k.mounted(value, podsPerKubelet*2*h.perPod)
		})
	}
}

// createPods creates the pods of a node and what they mount.
func (h *hollowCluster) createPods(t *testing.T, node string) {
	t.Helper()
	for i := range podsPerKubelet {
		var volumes, mounts []string
		for j := range h.perPod {
			name := fmt.Sprintf("%s-%d-%d", node, i, j)
			h.direct.create(t, hollowCore+"/configmaps", fmt.Sprintf(`{"metadata":{"name":%q},"data":{"value":"old"}}`,
				name))
			h.direct.create(t, hollowCore+"/secrets", fmt.Sprintf(`{"metadata":{"name":%q},"stringData":{"value":"old"}}`,
				name))
			volumes = append(volumes, fmt.Sprintf(`{"name":"c%d","configMap":{"name":%q}},`+
				`{"name":"s%[1]d","secret":{"secretName":%[2]q}}`, j, name))
			mounts = append(mounts, fmt.Sprintf(`{"name":"c%d","mountPath":"/c%[1]d"},`+
				`{"name":"s%[1]d","mountPath":"/s%[1]d"}`, j))
		}
		h.direct.create(t, hollowCore+"/pods", fmt.Sprintf(`{"metadata":{"name":"%s-%d"},"spec":{"nodeName":%q,`+
			`"automountServiceAccountToken":false,"containers":[{"name":"c","image":"i","volumeMounts":[%s]}],`+
			`"volumes":[%s]}}`,
			node, i, node, strings.Join(mounts, ","), strings.Join(volumes, ",")))
	}
}

// podsRun returns an error unless all pods run.
func (h *hollowCluster) podsRun() error {
	resp, err := h.direct.try(http.MethodGet, hollowCore+"/pods", nil, "")
	if err != nil {
		return err
	}
	var list struct {
		Items []struct{ Status struct{ Phase string } }
	}
	if err := json.Unmarshal(resp.body, &list); err != nil {
		return err
	}
	phases := make(map[string]int)
	for _, pod := range list.Items {
		phases[pod.Status.Phase]++
	}
	if want := hollowKubelets * podsPerKubelet; phases["Running"] != want {
		return fmt.Errorf("the pods are %v, want %d that run", phases, want)
	}
	return nil
}

// hollowKubelet is a running kubelet without containers.
type hollowKubelet struct {
	*proxytest.Process
	node string
	dir  string // its files
}

// hollowDir finds the directory in a kubelet's log. The kubelet makes it in /tmp and does not remove
// it.
var hollowDir = regexp.MustCompile(`Using (/\S+) as root dir`)

// startHollowKubelet starts the kubelet of a node. It ends with the test.
func startHollowKubelet(t *testing.T, program, node string, w programWay, certificate *tls.Certificate) *hollowKubelet {
	t.Helper()
	certFile, keyFile := certificateFiles(t, certificate)
	cmd := exec.Command(program, "--morph=kubelet", "--use-host-image-service=false", "--name", node,
		"--kubeconfig", w.kubeconfig(t, &api.AuthInfo{ClientCertificate: certFile, ClientKey: keyFile}),
		"--kubelet-port", strconv.Itoa(proxytest.FreePort(t)),
		"--kubelet-read-only-port", strconv.Itoa(proxytest.FreePort(t)))
	cmd.Env = append(os.Environ(), proxytest.Detectors...)
	process, err := proxytest.StartProcess(cmd, filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	k := &hollowKubelet{Process: process, node: node}
	t.Cleanup(func() {
		_ = k.Cmd.Process.Kill() // it has nothing to tidy up
		<-k.Exited
		if t.Failed() {
			log, _ := os.ReadFile(k.Log)
			t.Logf("the log of %s:\n%s", node, proxytest.Complaints(log))
		}
		if k.dir != "" {
			_ = os.RemoveAll(k.dir)
		}
	})
	err = k.Await(steady.Patience, func() error {
		log, err := os.ReadFile(k.Log)
		if match := hollowDir.FindSubmatch(log); match != nil {
			k.dir = string(match[1])
		} else if err == nil {
			err = errors.New("its log does not name its directory")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// mounted returns an error unless n ConfigMaps and Secrets, as k's pods see them, have a value.
func (k *hollowKubelet) mounted(value string, n int) error {
	files, err := filepath.Glob(filepath.Join(k.dir, "pods", "*", "volumes", "kubernetes.io~*", "*", "value"))
	if err != nil {
		return err
	}
	found := 0
	for _, file := range files {
		if content, err := os.ReadFile(file); err == nil && string(content) == value {
			found++
		}
	}
	if found != n {
		return fmt.Errorf("%s: %d of %d files are %q, want %d", k.node, found, len(files), value, n)
	}
	return nil
}
