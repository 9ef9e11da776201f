package assess

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// kubeconfigOf returns a kubeconfig that leads to server.
func kubeconfigOf(t *testing.T, server string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "kubeconfig")
	content := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '" + server + "'}}]\n" +
		"contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// try runs the command with a command line.
func try(t *testing.T, args ...string) (stdout, stderr string, err error) {
	var out, said strings.Builder
	c := Command()
	c.SilenceUsage = true
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(&said)
	err = c.ExecuteContext(t.Context())
	return out.String(), said.String(), err
}

// The command reads twice and prints a table, or JSON.
func TestRun(t *testing.T) {
	var reads atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" || r.Method != http.MethodGet {
			t.Errorf("asked %s %s", r.Method, r.URL)
		}
		fmt.Fprint(w, load{pods: 1000, events: 50, objects: 20, cpu: 1}.after(float64(reads.Add(1))))
	}))
	defer server.Close()
	kubeconfig := kubeconfigOf(t, server.URL)
	stdout, stderr, err := try(t, "--kubeconfig", kubeconfig, "--for=1s", "--what-if=agents=100,watch=pods")
	if err != nil || reads.Load() != 2 {
		t.Fatalf("%v after %d reads: %s", err, reads.Load(), stderr)
	}
	for _, want := range []string{server.URL + ", kube-apiserver v1.36.3, ", " s, with 3 replicas of watchfan", "You need it",
		"the clients of pods profit most", "  pods\n", "  total\n", "watchfan, 3 replicas together", "If 100 agents watch pods every 450 s:", "kube-apiserver, through watchfan"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout, "%!") || strings.Contains(stdout, "NaN") {
		t.Error(stdout)
	}

	if stdout, stderr, err = try(t, "--kubeconfig", kubeconfig, "--for=1s", "-o", "json", "--replicas=5",
		"--what-if=agents=100,list=pods,every=10s"); err != nil {
		t.Fatal(err, stderr)
	}
	var a Assessment
	if err := json.Unmarshal([]byte(stdout), &a); err != nil || a.Replicas != 5 || a.Verdict != Needed || a.Resources[0].Resource != "pods" ||
		a.WhatIf.Straight.Requests.Mid != 10 {
		t.Errorf("%v, %+v", err, a)
	}
}

// Errors name the flag, or say which right is missing.
func TestErrors(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		if stdout, _, err := try(t, args...); err == nil || !strings.Contains(err.Error(), want) || stdout != "" {
			t.Errorf("%v: %s%v\nwant %q", args, stdout, err, want)
		}
	}
	f("--for=2h0m0s: give 1s to 1h", "--for=2h")
	f("--replicas=0: give 1 to 100", "--replicas=0")
	f("--output=xml is unknown: give text or json", "-o", "xml")
	f(`"x"`, "x")
	f("give agents=NUMBER, get, list or watch=RESOURCE", "--what-if=agents=5,list=pods")
	f("has get= and list=: give one", "--what-if=agents=5,list=pods,get=pods,every=1s")
	f("has resourceVersion=5: give 0", "--what-if=agents=5,list=pods,every=1s,resourceVersion=5")
	f("has rate=: give agents", "--what-if=rate=5")
	f("--kubeconfig=/no/such does not exist", "--kubeconfig=/no/such")
	f("connection refused", "--kubeconfig", kubeconfigOf(t, "http://127.0.0.1:1"))
	for code, want := range map[int]string{
		http.StatusForbidden:    "needs this right; an administrator gives it:\n  kubectl create clusterrole metrics-reader --verb=get --non-resource-url=/metrics\n",
		http.StatusUnauthorized: "needs this right",
		http.StatusNotFound:     "answers 404 Not Found to get /metrics: it is no kube-apiserver",
		http.StatusOK:           "has no metric of kube-apiserver's requests: is it kube-apiserver?",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		f(want, "--kubeconfig", kubeconfigOf(t, server.URL))
		server.Close()
	}
}

// Behind a load balancer the second reading looks for the kube-apiserver of the first. If it is not
// found, or the command is interrupted, there is an error and no figure.
func TestLoadBalancer(t *testing.T) {
	var reads atomic.Int64
	f := func(others int64, cancelled bool, want string) {
		t.Helper()
		reads.Store(0)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			text := load{pods: 10, events: 1, cpu: 1}.after(float64(100 + reads.Load()))
			if n := reads.Add(1); n > 1 && n <= 1+others {
				text = strings.Replace(text, "start_time_seconds 1.7e+09", "start_time_seconds 1.8e+09", 1)
			}
			fmt.Fprint(w, text)
		}))
		server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if cancelled && state == http.StateIdle { // the first reading has been answered
				cancel()
			}
		}
		server.Start()
		defer server.Close()
		c := command{pause: 10 * time.Millisecond, replicas: 1, output: "text"}
		c.upstream.Kubeconfig = kubeconfigOf(t, server.URL)
		if cancelled {
			c.pause = time.Hour
		}
		var stdout, stderr strings.Builder
		err := c.run(ctx, &stdout, &stderr)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || stdout.Len() > 0) {
			t.Errorf("%d others: %v, want %q", others, err, want)
		}
	}
	f(0, false, "")
	f(attempts-1, false, "")
	f(attempts, false, "two different kube-apiservers")
	f(0, true, "context canceled") // main says it in words
}
