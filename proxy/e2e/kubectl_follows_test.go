package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
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
	commands := []*followed{ // in the end, seen has two members more
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
	kubectlNamespace(t, direct, ns)
	commands := []*followed{
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

// follow starts commands on all ways and waits until they watch.
func follow(t *testing.T, ways []kubectlWay, ns string, commands []*followed) {
	t.Helper()
	for _, c := range commands {
		args := append([]string{"-n", ns}, strings.Fields(c.args)...)
		if c.silent {
			args = append(args, "-v=6") // which prints its requests
		}
		for _, k := range ways {
			c.running = append(c.running, startFollower(t, k, args))
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
func (c *followed) await(t *testing.T, ways []kubectlWay, words string) {
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
// their output. It interrupts those that watch.
func compareFollowers(t *testing.T, ways []kubectlWay, commands []*followed) {
	t.Helper()
	for _, c := range commands {
		c.await(t, ways, c.last)
	}
	for _, c := range commands {
		var outputs []string
		for _, f := range c.running {
			if strings.HasPrefix(c.args, "get ") || strings.HasPrefix(c.args, "events ") {
				_ = f.cmd.Process.Signal(os.Interrupt)
			}
			_ = f.cmd.Wait()
			outputs = append(outputs, fmt.Sprintf("%s[exit %d]", sameOutput(f.said(t)), f.cmd.ProcessState.ExitCode()))
		}
		kubectlCommand{args: c.args}.same(t, ways, outputs)
	}
}

// follower is a kubectl that is still running.
type follower struct {
	cmd *exec.Cmd
	out string // file
}

func startFollower(t *testing.T, k kubectlWay, args []string) *follower {
	t.Helper()
	out, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	f := &follower{k.command(t.Context(), args...), out.Name()}
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
