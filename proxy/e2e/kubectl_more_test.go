package e2e_test

import (
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
	name string
	kubectl
}

// kubectlWays returns the way straight to kube-apiserver, and those through each port.
func kubectlWays(t *testing.T) []kubectlWay {
	t.Helper()
	program := binary(t, "KUBECTL_BIN", "kubectl")
	c := sharedCluster(t)
	p := sharedWatchfan(t)
	home := t.TempDir()
	empty := filepath.Join(home, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	way := func(name string, args ...string) kubectlWay {
		return kubectlWay{name, kubectl{program, args, filepath.Join(home, name)}}
	}
	return []kubectlWay{
		way("straight", "--kubeconfig", c.Ready.Kubeconfigs["admin"]),
		way("plain", "--kubeconfig", empty, "--server", "http://"+p.ports.Insecure),
		way("secure", "--kubeconfig", empty, "--server", "https://"+p.ports.Secure, "--insecure-skip-tls-verify",
			"--token", c.token(t, "admin")),
	}
}

// sameOutput masks what differs between two runs of one command: ages and the columns that they
// push, the names and times of temporary files, and whether the end of kubectl's own watch
// overtakes an event.
func sameOutput(out string) string {
	out = endedWatches.ReplaceAllString(out, "")
	out = kubectlAges.ReplaceAllString(out, "AGE")
	out = temporaryFiles.ReplaceAllString(out, "FILE")
	return manyBlanks.ReplaceAllString(out, "  ")
}

var (
	temporaryFiles = regexp.MustCompile(`/tmp/(LIVE|MERGED)-\S+(\t.*)?`)
	kubectlLog     = regexp.MustCompile(`(?m)^I\d{4} .*\n`)
	endedWatches   = regexp.MustCompile(`(?m)^[EI]\d{4} .*context canceled.*\n`)
	manyBlanks     = regexp.MustCompile(` {2,}`)
)

// kubectlNamespace is a namespace with one object of each of some kinds.
func kubectlNamespace(t *testing.T, direct *target, straight kubectl, ns string) {
	t.Helper()
	createNamespaces(t, direct, ns)
	core := "/api/v1/namespaces/" + ns
	makeConfigMap(t, direct, ns, "x", `"l":"1"`)
	makeConfigMap(t, direct, ns, "y", `"l":"2"`)
	direct.create(t, core+"/pods", podBody("p", "n1"))
	direct.create(t, core+"/secrets", `{"metadata":{"name":"s"},"stringData":{"k":"v"}}`)
	direct.create(t, core+"/services", `{"metadata":{"name":"v"},"spec":{"selector":{"l":"1"},"ports":[{"port":80}]}}`)
	if out, code := straight.run(t, deployment("d", 2), "-n", ns, "apply", "--server-side", "-f", "-"); code != 0 {
		t.Fatal(out)
	}
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

// TestKubectlCommands: kubectl prints the same, and exits with the same code, with watchfan in
// between (contract.md O02, O07).
func TestKubectlCommands(t *testing.T) {
	parallel(t)
	ways := slices.Delete(kubectlWays(t), 1, 2) // TestKubectl also takes the plain port
	const ns = "kubectl-more"
	direct := sharedCluster(t).direct(t)
	kubectlNamespace(t, direct, ways[0].kubectl, ns)
	deployments := "/apis/apps/v1/namespaces/" + ns + "/deployments"
	direct.patch(t, deployments+"/d/status", rolledOut(2, 2))

	for _, c := range []struct {
		args  string
		stdin string
		reset string // path to delete before each way, for the same state
	}{
		{args: "get all,configmaps,secrets -o wide"},
		{args: "get pods -o wide --show-labels --all-namespaces -l l=1 --field-selector metadata.namespace=" + ns},
		{args: "get configmaps --chunk-size=1 -o name"},
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
			reset: deployments + "/applied"},
		{args: "apply --server-side -f - --field-manager=other", stdin: deployment("d", 3)},
		{args: "apply --server-side -f - --dry-run=server -o name", stdin: deployment("dry", 1)},
		{args: "diff -f -",
			stdin: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"k":"changed"}}`},
		{args: "rollout status deployment/d --timeout=2m"},
		{args: "rollout history deployment/d"},
		{args: "wait --for=create configmap/x --timeout=2m"},
		{args: "wait --for=delete configmap/nope --timeout=2m"},
		{args: "wait --for=condition=Available deployment/d --timeout=15s"},
		{args: "logs p"},
		{args: "logs p --previous --timestamps"},
		{args: "logs p -c nope"},
		{args: "logs nope"},
		{args: "get --raw /api/v1/namespaces/" + ns + "/pods/p/log?follow=true&tailLines=1"},
		{args: "port-forward pod/p 0:80"},
	} {
		outputs := make([]string, len(ways))
		var running sync.WaitGroup
		for i, k := range ways {
			if c.reset != "" {
				running.Wait()
				direct.do(t, http.MethodDelete, c.reset, nil, "")
			}
			running.Go(func() {
				out, code := k.run(t, c.stdin, append([]string{"-n", ns}, strings.Fields(c.args)...)...)
				outputs[i] = fmt.Sprintf("%s[exit %d]", sameOutput(out), code)
			})
		}
		running.Wait()
		for i, k := range ways[1:] {
			if outputs[i+1] != outputs[0] {
				t.Errorf("kubectl %s through the %s port says\n%s\nwant\n%s", c.args, k.name, outputs[i+1], outputs[0])
			}
		}
	}
}

// podEvent returns an event about the pod p. It has no time, which kubectl would show as an age.
func podEvent(ns, name, kind, reason, message string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"involvedObject":{"kind":"Pod","apiVersion":"v1","namespace":%q,"name":"p"},`+
		`"type":%q,"reason":%q,"message":%q,"count":1}`, name, ns, kind, reason, message)
}

// TestKubectlFollows: commands that wait for something see it happen and print the same words.
// Commands that watch are interrupted in the end.
func TestKubectlFollows(t *testing.T) {
	parallel(t)
	ways := kubectlWays(t)
	const ns = "kubectl-follows"
	direct := sharedCluster(t).direct(t)
	kubectlNamespace(t, direct, ways[0].kubectl, ns)
	commands := []followed{
		{args: "wait --for=condition=Ready pod/p --timeout=120s", last: "pod/p condition met", silent: true},
		{args: "wait --for=jsonpath={.data.k}=9 configmap --all --timeout=120s",
			last: "configmap/y condition met", silent: true},
		{args: "wait --for=delete service/v --timeout=120s", last: "service/v condition met", silent: true},
		{args: "rollout status deployment/d --timeout=120s", last: "successfully rolled out"},
		{args: "get deployment d -w", last: "2/2"},
		{args: "get pods -w -o wide", last: "1.2.3.4"},
		{args: "get services -w --output-watch-events", last: "DELETED"},
		{args: "events -w", last: "Pulled Pod/p 3 times"},
		{args: "events --watch --for pod/p --types=Warning -o name", last: "event/p.slow", silent: true},
	}
	core := "/api/v1/namespaces/" + ns
	direct.create(t, core+"/events", podEvent(ns, "p.pulled", "Normal", "Pulled", "once"))
	follow(t, ways, ns, commands)
	for _, status := range []string{rolledOut(1, 0), rolledOut(2, 0), rolledOut(2, 1), rolledOut(2, 2)} {
		direct.patch(t, "/apis/apps/v1/namespaces/"+ns+"/deployments/d/status", status)
	}
	direct.patch(t, core+"/pods/p/status",
		`{"status":{"phase":"Running","podIP":"1.2.3.4","podIPs":[{"ip":"1.2.3.4"}],"conditions":[{"type":"Ready",`+
			`"status":"True"}]}}`)
	direct.patch(t, core+"/configmaps/x", `{"data":{"k":"9"}}`)
	commands[1].await(t, ways, "configmap/x condition met") // one after the other, on every way
	direct.patch(t, core+"/configmaps/y", `{"data":{"k":"9"}}`)
	direct.remove(t, core+"/services/v")
	direct.create(t, core+"/events", podEvent(ns, "p.slow", "Warning", "Slow", "slow"))
	direct.patch(t, core+"/events/p.pulled", `{"message":"3 times","count":3}`)
	compareFollowers(t, ways, commands)
}

// followed is a command that waits for something, or watches it.
type followed struct {
	args   string
	last   string // the end of its output, with single blanks
	silent bool   // until something happens

	running []*follower // by way
}

// watches reports whether the command goes on until it is interrupted.
func (c followed) watches() bool {
	return strings.HasPrefix(c.args, "get ") || strings.HasPrefix(c.args, "events ")
}

// follow starts commands on all ways and waits until they watch.
func follow(t *testing.T, ways []kubectlWay, ns string, commands []followed) {
	t.Helper()
	for i := range commands {
		c := &commands[i]
		args := append([]string{"-n", ns}, strings.Fields(c.args)...)
		if c.silent {
			args = append(args, "-v=6") // which prints its requests
		}
		for _, k := range ways {
			c.running = append(c.running, startFollower(t, k.kubectl, args))
		}
	}
	steady.Until(t, "first words", func() error {
		for _, c := range commands {
			for _, f := range c.running {
				if !c.silent && f.said(t) == "" || c.silent && !strings.Contains(f.printed(t), "watch=true") {
					return fmt.Errorf("kubectl %s does not watch: %s", c.args, f.printed(t))
				}
			}
		}
		return nil
	})
}

// await waits until the command has printed something on all ways.
func (c followed) await(t *testing.T, ways []kubectlWay, words string) {
	t.Helper()
	for i, f := range c.running {
		steady.Until(t, fmt.Sprintf("%q from kubectl %s, %s", words, c.args, ways[i].name), func() error {
			if said := f.said(t); !strings.Contains(manyBlanks.ReplaceAllString(said, " "), words) {
				return fmt.Errorf("it says\n%s", said)
			}
			return nil
		})
	}
}

// compareFollowers waits until the commands have printed their last words on all ways, and compares
// their output.
func compareFollowers(t *testing.T, ways []kubectlWay, commands []followed) {
	t.Helper()
	for _, c := range commands {
		c.await(t, ways, c.last)
	}
	for _, c := range commands {
		var outputs []string
		for _, f := range c.running {
			outputs = append(outputs, f.finish(t, c.watches()))
		}
		for i, k := range ways[1:] {
			if outputs[i+1] != outputs[0] {
				t.Errorf("kubectl %s through the %s port says\n%s\nwant\n%s", c.args, k.name, outputs[i+1], outputs[0])
			}
		}
	}
}

// follower is a kubectl that is still running.
type follower struct {
	cmd *exec.Cmd
	out string // file
}

func startFollower(t *testing.T, k kubectl, args []string) *follower {
	t.Helper()
	f := &follower{cmd: exec.CommandContext(t.Context(), k.program,
		append(k.args[:len(k.args):len(k.args)], args...)...)}
	f.cmd.Env = k.environment()
	out, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	f.out = out.Name()
	f.cmd.Stdout, f.cmd.Stderr = out, out
	if err := proxytest.Launch(f.cmd); err != nil {
		t.Fatal(err)
	}
	return f
}

// printed returns what f has printed so far.
func (f *follower) printed(t *testing.T) string {
	t.Helper()
	out, err := os.ReadFile(f.out)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// said returns what f has printed so far without its log.
func (f *follower) said(t *testing.T) string {
	t.Helper()
	return kubectlLog.ReplaceAllString(proxytest.WithoutNotices(f.printed(t)), "")
}

// finish waits for the end, which an interrupt causes if nothing else does, and returns f's output
// and exit code.
func (f *follower) finish(t *testing.T, interrupt bool) string {
	t.Helper()
	if interrupt {
		_ = f.cmd.Process.Signal(os.Interrupt)
	}
	_ = f.cmd.Wait()
	return fmt.Sprintf("%s[exit %d]", sameOutput(f.said(t)), f.cmd.ProcessState.ExitCode())
}
