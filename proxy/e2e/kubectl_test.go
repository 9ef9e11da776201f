package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// kubectlWay is kubectl with one way to the cluster.
type kubectlWay struct {
	name, program string
	args          []string
	home          string
}

// newKubectl returns kubectl with arguments that name a server. No kubeconfig says more.
func newKubectl(t *testing.T, name string, args ...string) kubectlWay {
	t.Helper()
	home := t.TempDir()
	empty := filepath.Join(home, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return kubectlWay{name, binary(t, "KUBECTL_BIN", "kubectl"), append([]string{"--kubeconfig", empty}, args...), home}
}

// kubectlWays returns the way straight to kube-apiserver, and those through each port.
func kubectlWays(t *testing.T) []kubectlWay {
	t.Helper()
	c, p := sharedCluster(t), sharedWatchfan(t)
	token := c.token(t, "admin")
	return []kubectlWay{
		newKubectl(t, "straight", "--server", c.Ready.Server, "--certificate-authority", c.Ready.CAFile, "--token", token),
		newKubectl(t, "plain", "--server", "http://"+p.ports.Insecure),
		newKubectl(t, "secure", "--server", "https://"+p.ports.Secure, "--insecure-skip-tls-verify", "--token", token),
	}
}

// command returns kubectl with more arguments, and no kubeconfig of the user's.
func (k kubectlWay) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, k.program, append(k.args[:len(k.args):len(k.args)], args...)...)
	cmd.Env = append([]string{"HOME=" + k.home, "PATH=" + os.Getenv("PATH")}, proxytest.Detectors...)
	return cmd
}

// run returns what kubectl prints, and its exit code.
func (k kubectlWay) run(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), steady.Patience)
	defer cancel()
	cmd := k.command(ctx, args...)
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
	return fmt.Sprintf("%s[exit %d]", sameOutput(proxytest.WithoutNotices(out.String())), cmd.ProcessState.ExitCode())
}

// sameOutput masks what differs between two runs of one command: ages and the columns that they
// push, the resourceVersion of a raw list, the names and times of temporary files, and whether the end of
// kubectl's own watch overtakes an event.
func sameOutput(out string) string {
	out = listHead.ReplaceAllString(endedWatches.ReplaceAllString(out, ""), "$1")
	out = temporaryFiles.ReplaceAllString(kubectlAges.ReplaceAllString(out, "AGE"), "FILE")
	return manyBlanks.ReplaceAllString(out, "  ")
}

var (
	kubectlAges    = regexp.MustCompile(`\b\d+[smh](\d+[smh])?\b`)
	temporaryFiles = regexp.MustCompile(`/tmp/(LIVE|MERGED)-\S+(\t.*)?`)
	kubectlLog     = regexp.MustCompile(`(?m)^I\d{4} .*\n`)
	endedWatches   = regexp.MustCompile(`(?m)^[EI]\d{4} .*context canceled.*\n`)
	manyBlanks     = regexp.MustCompile(` {2,}`)
)

// kubectlCommand is a command that ends by itself.
type kubectlCommand struct {
	args, stdin string
	before      func() // each way finds the same state
}

// compare runs the command on all ways, and compares what it prints.
func (c kubectlCommand) compare(t *testing.T, ways []kubectlWay) {
	t.Helper()
	outputs := make([]string, len(ways))
	var running sync.WaitGroup
	for i, k := range ways {
		if c.before != nil {
			running.Wait()
			c.before()
		}
		running.Go(func() { outputs[i] = k.run(t, c.stdin, strings.Fields(c.args)...) })
	}
	running.Wait()
	c.same(t, ways, outputs)
}

func (c kubectlCommand) same(t *testing.T, ways []kubectlWay, outputs []string) {
	t.Helper()
	for i, k := range ways[1:] {
		if outputs[i+1] != outputs[0] {
			t.Errorf("kubectl %s, %s, says\n%s\nwant\n%s", c.args, k.name, outputs[i+1], outputs[0])
		}
	}
}

// kubectlNamespace is a namespace with one object of each of some kinds.
func kubectlNamespace(t *testing.T, direct *target, ns string) {
	t.Helper()
	createNamespaces(t, direct, ns)
	core := "/api/v1/namespaces/" + ns
	makeConfigMap(t, direct, ns, "x", `"l":"1"`)
	makeConfigMap(t, direct, ns, "y", `"l":"2"`)
	direct.create(t, core+"/pods", podBody("p", "n1"))
	direct.create(t, core+"/secrets", `{"metadata":{"name":"s"},"stringData":{"k":"v"}}`)
	direct.create(t, core+"/services", `{"metadata":{"name":"v"},"spec":{"selector":{"l":"1"},"ports":[{"port":80}]}}`)
	direct.must(t, "PATCH", "/apis/apps/v1/namespaces/"+ns+"/deployments/d?fieldManager=kubectl", "application/apply-patch+yaml", deployment("d", 2))
}

// deployment returns a manifest.
func deployment(name string, replicas int) string {
	return fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%[1]q},
"spec":{"replicas":%[2]d,"selector":{"matchLabels":{"app":%[1]q}},
"template":{"metadata":{"labels":{"app":%[1]q}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, name, replicas)
}

// rolledOut returns the status of a deployment with two replicas, so many of which are new and
// available.
func rolledOut(updated, available int) string {
	return fmt.Sprintf(`{"status":{"observedGeneration":1,"replicas":2,"updatedReplicas":%d,"readyReplicas":%[2]d,`+
		`"availableReplicas":%[2]d}}`, updated, available)
}

// TestKubectl: "output identical to direct" (contract.md O02, O07).
func TestKubectl(t *testing.T) {
	parallel(t)
	ways, direct := kubectlWays(t), sharedCluster(t).direct(t)
	kubectlNamespace(t, direct, "kubectl")
	const uri = "/api/v1/namespaces/kubectl/configmaps"
	patched := func(labels string) func() {
		return func() { direct.patch(t, uri+"/x", `{"metadata":{"labels":`+labels+`}}`) }
	}
	for _, c := range []kubectlCommand{
		{args: "get configmaps"},
		{args: "get configmaps -o json"},
		{args: "get configmaps -o yaml -l l=1"},
		{args: "get configmaps -o wide --sort-by .metadata.name --chunk-size=1"},
		{args: "get configmap x -o yaml"},
		{args: "get configmap nope"},
		{args: "get pods --field-selector spec.nodeName=n1"},
		{args: "get --raw " + uri + "?resourceVersion=0&labelSelector=l%3D1"},
		{args: "get --raw /version"},
		{args: "get nosuch"},
		{args: "apply -f -", stdin: "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: applied\ndata:\n  k: v\n",
			before: func() { direct.do(t, "DELETE", uri+"/applied", nil, "") }},
		{args: "label configmap x --overwrite new=1", before: patched(`{"new":null}`)},
		{args: "label configmap x new-", before: patched(`{"new":"1"}`)},
		{args: "logs p"},
		{args: "exec p -- true"},
		{args: "describe configmap y"},
		{args: "wait --for=jsonpath={.data.k}=0 configmap/x --timeout=2m"},
		{args: "wait --for=jsonpath={.data.k}=9 configmap/x --timeout=15s"},
		{args: "delete configmap applied", before: func() { direct.do(t, "POST", uri, nil, `{"metadata":{"name":"applied"}}`) }},
	} {
		c.args = "-n kubectl " + c.args
		c.compare(t, ways)
	}
}

// TestKubectlCommands: kubectl prints the same, and exits with the same code, with watchfan in
// between (contract.md O02, O07).
func TestKubectlCommands(t *testing.T) {
	parallel(t)
	ways := slices.Delete(kubectlWays(t), 1, 2) // TestKubectl also takes the plain port
	const ns = "kubectl-more"
	direct := sharedCluster(t).direct(t)
	kubectlNamespace(t, direct, ns)
	deployments := "/apis/apps/v1/namespaces/" + ns + "/deployments"
	direct.patch(t, deployments+"/d/status", rolledOut(2, 2))
	for _, c := range []kubectlCommand{
		{args: "get all,configmaps,secrets -o wide"},
		{args: "get pods -o wide --show-labels --all-namespaces -l l=1 --field-selector metadata.namespace=" + ns},
		{args: "get configmaps x y nope"},
		{args: "get pods,services -o custom-columns=KIND:.kind,NAME:.metadata.name"},
		{args: "get deployment d -o yaml --show-managed-fields"},
		{args: "get deployment d --subresource=status -o json"},
		{args: "get pods --watch --request-timeout=15s -l none=1"},
		{args: "describe pod p"},
		{args: "describe deployment d"},
		{args: "describe service v"},
		{args: "describe configmaps"},
		{args: "describe secret s"},
		{args: "describe node nope"},
		{args: "events"},
		{args: "api-resources --api-group=apps -o wide"},
		{args: "explain deployment.spec.strategy --recursive"},
		{args: "explain pods --output=plaintext-openapiv2"},
		{args: "explain nosuch"},
		{args: "version -o json"},
		{args: "auth can-i create pods"},
		{args: "auth whoami"},
		{args: "apply --server-side -f - --field-manager=tester", stdin: deployment("applied", 2),
			before: func() { direct.do(t, http.MethodDelete, deployments+"/applied", nil, "") }},
		{args: "apply --server-side -f - --field-manager=other", stdin: deployment("d", 3)},
		{args: "apply --server-side -f - --dry-run=server -o name", stdin: deployment("dry", 1)},
		{args: "diff -f -",
			stdin: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"k":"changed"}}`},
		{args: "rollout status deployment/d --timeout=2m"},
		{args: "rollout history deployment/d"},
		{args: "wait --for=create configmap/x --timeout=2m"},
		{args: "wait --for=delete configmap/nope --timeout=2m"},
		{args: "wait --for=condition=Available deployment/d --timeout=15s"},
		{args: "logs p --previous --timestamps"},
		{args: "logs p -c nope"},
		{args: "logs nope"},
		{args: "get --raw /api/v1/namespaces/" + ns + "/pods/p/log?follow=true&tailLines=1"},
		{args: "port-forward pod/p 0:80"},
	} {
		c.args = "-n " + ns + " " + c.args
		c.compare(t, ways)
	}
}
