package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// kubectl runs kubectl against a server. At kube-apiserver the token comes from the admin's
// kubeconfig.
type kubectl struct {
	program string
	args    []string
	home    string
}

// environment has no kubeconfig of the user's.
func (k kubectl) environment() []string {
	return append([]string{"HOME=" + k.home, "PATH=" + os.Getenv("PATH")}, proxytest.Detectors...)
}

func (k kubectl) run(t *testing.T, stdin string, args ...string) (output string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), steady.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, k.program, append(k.args, args...)...)
	cmd.Env = k.environment()
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("kubectl %q hangs: %s", args, out.String())
	}
	if _, ok := err.(*exec.ExitError); err != nil && !ok {
		t.Fatal(err)
	}
	return proxytest.WithoutNotices(out.String()), cmd.ProcessState.ExitCode()
}

// TestKubectl: "output identical to direct" (contract.md O02).
func TestKubectl(t *testing.T) {
	parallel(t)
	ways := kubectlWays(t)
	direct := sharedCluster(t).direct(t)
	createNamespaces(t, direct, "kubectl", "kubectl-w")
	makeConfigMap(t, direct, "kubectl", "x", `"l":"1"`)
	makeConfigMap(t, direct, "kubectl", "y", `"l":"2"`)
	direct.create(t, "/api/v1/namespaces/kubectl/pods", podBody("p", "n1"))
	// An age of a minute or more stays the same for long enough to compare. Seconds are masked.
	manifest := "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: applied\ndata:\n  k: v\n"
	for _, args := range [][]string{
		{"get", "configmaps", "-n", "kubectl"},
		{"get", "configmaps", "-n", "kubectl", "-o", "json"},
		{"get", "configmaps", "-n", "kubectl", "-o", "yaml", "-l", "l=1"},
		{"get", "configmaps", "-n", "kubectl", "-o", "wide", "--sort-by", ".metadata.name", "--chunk-size=1"},
		{"get", "configmap", "x", "-n", "kubectl", "-o", "yaml"},
		{"get", "configmap", "nope", "-n", "kubectl"},
		{"get", "pods", "-n", "kubectl", "--field-selector", "spec.nodeName=n1"},
		{"get", "--raw", "/api/v1/namespaces/kubectl/configmaps?resourceVersion=0&labelSelector=l%3D1"},
		{"get", "--raw", "/version"},
		{"get", "nosuch"},
		{"apply", "-n", "kubectl", "-f", "-"},
		{"label", "configmap", "x", "-n", "kubectl", "--overwrite", "new=1"},
		{"label", "configmap", "x", "-n", "kubectl", "new-"},
		{"logs", "p", "-n", "kubectl"},
		{"exec", "p", "-n", "kubectl", "--", "true"},
		{"describe", "configmap", "y", "-n", "kubectl"},
		{"wait", "-n", "kubectl", "--for=jsonpath={.data.k}=0", "configmap/x", "--timeout=2m"},
		{"wait", "-n", "kubectl", "--for=jsonpath={.data.k}=9", "configmap/x", "--timeout=15s"},
		{"delete", "configmap", "applied", "-n", "kubectl"},
	} {
		outputs := make([]string, len(ways))
		var running sync.WaitGroup
		for i, k := range ways {
			stdin := ""
			uri := "/api/v1/namespaces/kubectl/configmaps"
			switch args[0] { // each finds the same state
			case "apply":
				stdin = manifest
				direct.do(t, "DELETE", uri+"/applied", nil, "")
			case "delete":
				direct.do(t, "POST", uri, nil, `{"metadata":{"name":"applied"}}`)
			case "label":
				direct.patch(t, uri+"/x", map[bool]string{true: `{"metadata":{"labels":{"new":null}}}`,
					false: `{"metadata":{"labels":{"new":"1"}}}`}[args[len(args)-1] == "new=1"])
			}
			running.Go(func() {
				out, code := k.run(t, stdin, args...)
				if slices.Contains(args, "--raw") {
					out = listHead.ReplaceAllString(out, "$1")
				}
				if strings.HasPrefix(args[0], "api-") {
					out = exampleKinds.ReplaceAllString(out, "") // other tests come and go with theirs
				}
				outputs[i] = fmt.Sprintf("%s[exit %d]", kubectlAges.ReplaceAllString(out, "AGE"), code)
			})
			if slices.Contains([]string{"apply", "delete", "label"}, args[0]) {
				running.Wait()
			}
		}
		running.Wait()
		for i, k := range ways[1:] {
			if outputs[i+1] != outputs[0] {
				t.Errorf("kubectl %q through the %s port says\n%s\nwant\n%s", args, k.name, outputs[i+1], outputs[0])
			}
		}
	}
}

var (
	exampleKinds = regexp.MustCompile(`(?m)^.*example\.com.*\n`)
	kubectlAges  = regexp.MustCompile(`\b\d+[smh](\d+[smh])?\b`)
)

// TestKubectlWatch runs kubectl get -w straight and through both ports at once, while something
// happens.
func TestKubectlWatch(t *testing.T) {
	parallel(t)
	ways := kubectlWays(t)
	const ns, uri = "kubectl-watch", "/api/v1/namespaces/kubectl-watch/configmaps"
	direct := sharedCluster(t).direct(t)
	createNamespaces(t, direct, ns)
	makeConfigMap(t, direct, ns, "seen", `"l":"1"`)
	commands := []followed{ // in the end, seen has two members more
		{args: "get configmaps -w", last: "seen 4 "},
		{args: "get configmap seen -w", last: "seen 4 "},
		{args: "get configmaps --watch-only", last: "seen 4 ", silent: true},
		{args: "get configmaps -w -l l=1 -o json", last: `"last"`},
		{args: "get configmaps -w --output-watch-events", last: "seen 4 "},
	}
	follow(t, ways, ns, commands)
	direct.patch(t, uri+"/seen", `{"data":{"k":"1","m":"2"}}`)
	makeConfigMap(t, direct, ns, "new", `"l":"1"`)
	direct.patch(t, uri+"/new", `{"metadata":{"labels":{"l":"2"}}}`)
	direct.remove(t, uri+"/new")
	direct.patch(t, uri+"/seen", `{"data":{"n":"3","last":"4"}}`)
	compareFollowers(t, ways, commands)
}
