package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// kubectl runs kubectl against a server; the admin kubeconfig gives the token where that is kube-apiserver.
type kubectl struct {
	program string
	args    []string
	home    string
}

func (k kubectl) run(t *testing.T, stdin string, args ...string) (output string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, k.program, append(k.args, args...)...)
	cmd.Env = []string{"HOME=" + k.home, "PATH=" + os.Getenv("PATH")}
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
	return out.String(), cmd.ProcessState.ExitCode()
}

// TestKubectl: "output identical to direct" (contract.md O02).
func TestKubectl(t *testing.T) {
	t.Parallel()
	program := binary(t, "KUBECTL_BIN", "kubectl")
	c := sharedCluster(t)
	p := sharedWatchfan(t)
	home := t.TempDir()
	empty := filepath.Join(home, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	straight := kubectl{program, []string{"--kubeconfig", c.Ready.Kubeconfigs["admin"]}, filepath.Join(home, "straight")}
	plain := kubectl{program, []string{"--kubeconfig", empty, "--server", "http://" + p.ports.Insecure}, filepath.Join(home, "plain")}
	secure := kubectl{program, []string{"--kubeconfig", empty, "--server", "https://" + p.ports.Secure, "--insecure-skip-tls-verify", "--token", c.token(t, "admin")}, filepath.Join(home, "secure")}

	direct := c.direct(t)
	createNamespaces(t, direct, "kubectl", "kubectl-w")
	makeConfigMap(t, direct, "kubectl", "x", `"l":"1"`)
	makeConfigMap(t, direct, "kubectl", "y", `"l":"2"`)
	direct.create(t, "/api/v1/namespaces/kubectl/pods", podBody("p", "n1"))
	// An age of a minute and more stands still long enough to compare; seconds are masked.
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
		{"api-resources"},
		{"api-versions"},
		{"apply", "-n", "kubectl", "-f", "-"},
		{"label", "configmap", "x", "-n", "kubectl", "--overwrite", "new=1"},
		{"label", "configmap", "x", "-n", "kubectl", "new-"},
		{"logs", "p", "-n", "kubectl"},
		{"exec", "p", "-n", "kubectl", "--", "true"},
		{"describe", "configmap", "y", "-n", "kubectl"},
		{"wait", "-n", "kubectl", "--for=jsonpath={.data.k}=0", "configmap/x", "--timeout=5s"},
		{"wait", "-n", "kubectl", "--for=jsonpath={.data.k}=9", "configmap/x", "--timeout=1s"},
		{"delete", "configmap", "applied", "-n", "kubectl"},
	} {
		var outputs []string
		for _, k := range []kubectl{straight, plain, secure} {
			stdin := ""
			uri := "/api/v1/namespaces/kubectl/configmaps"
			switch args[0] { // each finds the same state
			case "apply":
				stdin = manifest
				direct.do(t, "DELETE", uri+"/applied", nil, "")
			case "delete":
				direct.do(t, "POST", uri, nil, `{"metadata":{"name":"applied"}}`)
			case "label":
				direct.patch(t, uri+"/x", map[bool]string{true: `{"metadata":{"labels":{"new":null}}}`, false: `{"metadata":{"labels":{"new":"1"}}}`}[args[len(args)-1] == "new=1"])
			}
			out, code := k.run(t, stdin, args...)
			if slices.Contains(args, "--raw") {
				out = listHead.ReplaceAllString(out, "$1")
			}
			if strings.HasPrefix(args[0], "api-") {
				out = exampleKinds.ReplaceAllString(out, "") // other tests come and go with theirs
			}
			outputs = append(outputs, fmt.Sprintf("%s[exit %d]", kubectlAges.ReplaceAllString(out, "AGE"), code))
		}
		for i, name := range []string{"plain", "secure"} {
			if outputs[i+1] != outputs[0] {
				t.Errorf("kubectl %q through the %s port says\n%s\nwant\n%s", args, name, outputs[i+1], outputs[0])
			}
		}
	}
}

var (
	exampleKinds    = regexp.MustCompile(`(?m)^.*example\.com.*\n`)
	kubectlAges     = regexp.MustCompile(`\b\d+[smh](\d+[smh])?\b`)
	watchedCommands = [][]string{
		{"get", "configmaps", "-w"},
		{"get", "configmap", "seen", "-w"},
		{"get", "configmaps", "--watch-only"},
		{"get", "configmaps", "-w", "-l", "l=1", "-o", "json"},
		{"get", "configmaps", "-w", "--output-watch-events"},
	}
)

// TestKubectlWatch runs kubectl get -w straight and through both ports at once, while something happens.
func TestKubectlWatch(t *testing.T) {
	t.Parallel()
	program := binary(t, "KUBECTL_BIN", "kubectl")
	c := sharedCluster(t)
	p := sharedWatchfan(t)
	direct := c.direct(t)
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ways := [][]string{
		{"--kubeconfig", c.Ready.Kubeconfigs["admin"]},
		{"--kubeconfig", empty, "--server", "http://" + p.ports.Insecure},
		{"--kubeconfig", empty, "--server", "https://" + p.ports.Secure, "--insecure-skip-tls-verify", "--token", c.token(t, "admin")},
	}
	createNamespaces(t, direct, "kubectl-watch")
	makeConfigMap(t, direct, "kubectl-watch", "seen", `"l":"1"`)
	out := make([][]*bytes.Buffer, len(watchedCommands))
	var commands []*exec.Cmd
	for i, args := range watchedCommands {
		for _, way := range ways {
			cmd := exec.Command(program, append(append(append([]string{}, way...), "-n", "kubectl-watch"), args...)...)
			cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
			b := new(bytes.Buffer)
			out[i] = append(out[i], b)
			cmd.Stdout, cmd.Stderr = b, b
			if err := proxytest.Launch(cmd); err != nil {
				t.Fatal(err)
			}
			commands = append(commands, cmd)
		}
	}
	time.Sleep(6 * time.Second) // discovery, the first list, the watch: a dozen programs on a small machine
	uri := "/api/v1/namespaces/kubectl-watch/configmaps"
	direct.patch(t, uri+"/seen", `{"data":{"k":"1","m":"2"}}`)
	makeConfigMap(t, direct, "kubectl-watch", "new", `"l":"1"`)
	direct.patch(t, uri+"/new", `{"metadata":{"labels":{"l":"2"}}}`)
	direct.remove(t, uri+"/new")
	time.Sleep(time.Second)
	for _, cmd := range commands {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}
	for i, args := range watchedCommands {
		want := kubectlAges.ReplaceAllString(out[i][0].String(), "AGE")
		if strings.Count(want, "\n") < 3 {
			t.Errorf("kubectl %q straight says only\n%s", args, want)
		}
		for j := range ways[1:] {
			if got := kubectlAges.ReplaceAllString(out[i][j+1].String(), "AGE"); got != want {
				t.Errorf("kubectl %q way %d says\n%s\nwant\n%s", args, j+1, got, want)
			}
		}
	}
}
