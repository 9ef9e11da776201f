package proxy_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/watchfan/watchfan/proxy"
)

// Each flag is in one group of the help, and each group fits a screen. Bounds of histories and buffers are in
// events, as the chart's values are.
func TestPrintHelp(t *testing.T) {
	var all bytes.Buffer
	table := proxy.NewFlags().Table
	table.PrintHelp(&all, "")
	for _, group := range table.Groups() {
		var b bytes.Buffer
		table.PrintHelp(&b, group)
		if n := strings.Count(b.String(), "\n"); n < 3 || n > 28 {
			t.Errorf("%s has %d lines", group, n)
		}
	}
	table.Flags().VisitAll(func(f *pflag.Flag) {
		name := "  --" + f.Name
		if len(f.Name) == 1 {
			name = "  -" + f.Name
		}
		if strings.Count(all.String(), name+" ")+strings.Count(all.String(), name+"\n") != 1 {
			t.Errorf("--%s is not printed once", f.Name)
		}
		unit, usage := pflag.UnquoteUsage(f)
		if strings.HasSuffix(f.Name, "-frames") && unit != "EVENTS" || strings.Contains(usage, "frame") {
			t.Errorf("--%s is in %s: %s", f.Name, unit, usage)
		}
	})
	for line := range strings.Lines(all.String()) {
		if len(line) > 81 {
			t.Errorf("long line: %s", line)
		}
	}
}

func TestOptionsValidate(t *testing.T) {
	f := func(args, want string) {
		t.Helper()
		opts, err := proxy.ParseFlags(strings.Fields(args))
		if err != nil {
			t.Fatal(err)
		}
		if err := opts.Validate(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", args, err, want)
		}
	}
	f("", "")
	f("--insecure-port=-1 --secure-port=-1 --admin-port=-1", "")
	f("--insecure-port=0 --secure-port=0", "both off")
	f("--bind-address=localhost", "--bind-address")
	f("--requestheader-client-ca-file=x", "--requestheader-username-headers")
	f("--resident-resources=a/b/c/d", "plural")
	f("--resident-resources=/v1/pods", "plural")
	f("--freshness-timeout=0", "--freshness-timeout")
	f("--idle-timeout=-1ns", "--idle-timeout")
	f("--flush-interval=-1ns", "--flush-interval")
	f("--flush-interval=1m", "--flush-interval=1m0s is too long")
	f("--self-check-interval=0", "")
	f("--self-check-interval=1ms", "--self-check-interval=1ms is too short: give at least 1s")
	f("--self-check-interval=-1ns", "--self-check-interval=-1ns is too short")
	f("--bookmark-interval=5s", "")
	f("--bookmark-interval=0", "--bookmark-interval=0s is too short: give at least 5s")
	f("--bookmark-interval=2m", "--bookmark-interval=2m0s is too long: give at most 1m0s")
	f("--authentication-token-webhook-cache-ttl=-1ns", "--authentication-token-webhook-cache-ttl")
	f("--authentication-token-webhook-cache-ttl=0 --authorization-webhook-cache-authorized-ttl=0 "+
		"--authorization-webhook-cache-unauthorized-ttl=0", "")
	f("--authorization-webhook-cache-authorized-ttl=2h",
		"--authorization-webhook-cache-authorized-ttl=2h0m0s is too long: give at most 1h0m0s")
	f("--authorization-webhook-cache-unauthorized-ttl=2h", "--authorization-webhook-cache-unauthorized-ttl")
	f("--authorization-recheck-interval=0", "--authorization-recheck-interval=0s is too short")
	f("--authorization-recheck-interval=1ms", "give at least 1s")
	f("--authorization-recheck-interval=2h", "is too long")
	f("--exclude=pods,*.cilium.io,apps/v1/deployments", "")
	f("--exclude=*", `--exclude="*" is no resource`)
	f("--cache-aggregated-groups=wardle.example.com,apps/v1", "")
	f("--cache-aggregated-groups=*", `--cache-aggregated-groups="*" is no API group`)
	f("--resident-resources=v1/pods --exclude=pods", `--exclude="pods" leaves v1/pods of --resident-resources out`)
	f("--resident-resources=nodes.example.com --exclude=*.example.com", "either always cached or never")
	f("--resident-resources=pods --exclude=pods.example.com", "")
	f("--resident-resources=secrets", "")
	f("--resident-resources=v1/secrets --secure-port=0 --insecure-port=1",
		"without --secure-port: Secrets are served from a cache only to clients whose right")
	f("--audit-log-mode=often", `--audit-log-mode="often" is unknown: give batch, blocking or blocking-strict`)
	f("--fallback-for=http://127.0.0.1:8002/readyz", "leads to the fall-back itself")
	f("--fallback-for=http://127.0.0.1:8002/readyz --admin-bind-address=::", "give another one, or 0 for off")
	f("--fallback-for=http://127.0.0.1:8002/readyz --admin-port=0", "")
	f("--fallback-for=http://127.0.0.1:8002/readyz --admin-port=-1", "")
	f("--audit-log-maxsize=-1", "--audit-log-maxsize=-1 is too small")
}

// Without flags, nothing is open to other hosts, and nobody has the proxy's own rights. Each manifest in
// deploy/ says where it listens.
func TestDefaultPorts(t *testing.T) {
	o := proxy.NewOptions()
	if o.InsecurePort != 0 || o.SecurePort != 8443 || o.BindAddress != "127.0.0.1" || o.AdminBindAddress != "127.0.0.1" {
		t.Errorf("got %d, %d on %s, admin on %s", o.InsecurePort, o.SecurePort, o.BindAddress, o.AdminBindAddress)
	}
	for _, name := range []string{"chart/templates/_helpers.tpl", "sidecar/static-pod.yaml", "sidecar/daemonset.yaml",
		"sidecar/patches/kube-apiserver+strategic.yaml"} {
		content, err := os.ReadFile(filepath.Join("../deploy", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, flag := range []string{"--insecure-port=0", "--bind-address=", "--admin-bind-address="} {
			if !regexp.MustCompile(`(?m)^\s*- "?` + flag).Match(content) {
				t.Errorf("%s does not say %s", name, flag)
			}
		}
	}
}
