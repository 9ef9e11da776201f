package proxy_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

func TestOptionsFlags(t *testing.T) {
	opts := proxy.NewOptions()
	fs := opts.FlagSet()
	err := fs.Parse(
		strings.Fields("--history-bytes=1Gi --client-buffer-bytes 4000k --idle-timeout=30s " +
			"--resident-resources=pods,apps/v1/deployments --resident-resources v1/nodes --insecure-port=-1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := opts.Validate(); err != nil {
		t.Fatal(err)
	}
	if opts.Lane.HistoryBytes != 1<<30 || opts.Lane.ClientBufferBytes != 4000e3 ||
		opts.Lane.IdleTimeout != 30*time.Second || opts.InsecurePort != proxy.AnyPort {
		t.Errorf("got %+v", opts)
	}
	if got := strings.Join(opts.Cached.ResidentResources, " "); got != "pods apps/v1/deployments v1/nodes" {
		t.Errorf("got resident resources %q", got)
	}
	if err := fs.Parse([]string{"--history-bytes=lots"}); err == nil || !strings.Contains(err.Error(), "64Mi") {
		t.Errorf("got %v, want an error that shows how sizes are spelled", err)
	}
}

// Each flag is in one group of the help, and each group fits a screen.
func TestPrintFlags(t *testing.T) {
	var all bytes.Buffer
	proxy.PrintFlags(&all, "")
	together := ""
	for _, group := range proxy.FlagGroups() {
		var b bytes.Buffer
		proxy.PrintFlags(&b, group)
		together += b.String()
		if n := strings.Count(b.String(), "\n"); n < 3 || n > 28 {
			t.Errorf("%s has %d lines", group, n)
		}
	}
	if together != all.String() {
		t.Errorf("the groups are not the whole:\n%s", together)
	}
	opts := proxy.NewOptions()
	fs := opts.FlagSet()
	fs.Bool("config", false, "")
	fs.Bool("version", false, "")
	fs.VisitAll(func(f *flag.Flag) {
		name := "  --" + f.Name
		if len(f.Name) == 1 {
			name = "  -" + f.Name
		}
		if strings.Count(all.String(), name+" ")+strings.Count(all.String(), name+"\n") != 1 {
			t.Errorf("--%s is not printed once", f.Name)
		}
	})
	for line := range strings.Lines(all.String()) {
		if len(line) > 81 {
			t.Errorf("long line: %s", line)
		}
	}
}

// Bounds of histories and buffers are in events, as the chart's values are.
func TestEventFlags(t *testing.T) {
	opts := proxy.NewOptions()
	found := 0
	opts.FlagSet().VisitAll(func(f *flag.Flag) {
		unit, usage := flag.UnquoteUsage(f)
		if strings.HasSuffix(f.Name, "-frames") {
			if found++; unit != "EVENTS" {
				t.Errorf("--%s is in %s", f.Name, unit)
			}
		}
		if strings.Contains(usage, "frame") {
			t.Errorf("--%s speaks of frames: %s", f.Name, usage)
		}
	})
	if found != 2 {
		t.Errorf("%d flags are in events", found)
	}
}

func TestOptionsValidate(t *testing.T) {
	f := func(change func(*proxy.Options), want string) {
		t.Helper()
		opts := proxy.NewOptions()
		change(&opts)
		switch err := opts.Validate(); {
		case want == "" && err != nil:
			t.Errorf("got %v", err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("got %v, want %s", err, want)
		}
	}
	f(func(o *proxy.Options) {}, "")
	f(func(o *proxy.Options) { o.InsecurePort, o.SecurePort, o.AdminPort = -1, -1, -1 }, "")
	f(func(o *proxy.Options) { o.InsecurePort = 70000 }, "--insecure-port=70000 is no port")
	f(func(o *proxy.Options) { o.AdminPort = 8443 }, "--admin-port=8443 is that of --secure-port too")
	f(func(o *proxy.Options) { o.InsecurePort, o.SecurePort = 0, 0 }, "both off")
	f(func(o *proxy.Options) { o.BindAddress = "localhost" }, "--bind-address")
	f(func(o *proxy.Options) { o.Downstream.TLSCertFile = "x" }, "go together")
	f(func(o *proxy.Options) { o.Auth.RequestHeaderClientCAFile = "x" }, "--requestheader-username-headers")
	f(func(o *proxy.Options) { o.Cached.ResidentResources = []string{"Pods"} }, "plural")
	f(func(o *proxy.Options) { o.Cached.ResidentResources = []string{"a/b/c/d"} }, "plural")
	f(func(o *proxy.Options) { o.Cached.ResidentResources = []string{"/v1/pods"} }, "plural")
	f(func(o *proxy.Options) { o.Lane.FreshnessTimeout = 0 }, "--freshness-timeout")
	f(func(o *proxy.Options) { o.Lane.IdleTimeout = -1 }, "--idle-timeout")
	f(func(o *proxy.Options) { o.Lane.FlushInterval = -1 }, "--flush-interval")
	f(func(o *proxy.Options) { o.Lane.FlushInterval = time.Minute }, "--flush-interval=1m0s is too long")
	f(func(o *proxy.Options) { o.SelfCheck.SelfCheckInterval = 0 }, "")
	f(func(o *proxy.Options) { o.SelfCheck.SelfCheckInterval = time.Millisecond },
		"--self-check-interval=1ms is too short: give at least 1s")
	f(func(o *proxy.Options) { o.SelfCheck.SelfCheckInterval = -1 }, "--self-check-interval=-1ns is too short")
	f(func(o *proxy.Options) { o.Lane.BookmarkInterval = 5 * time.Second }, "")
	f(func(o *proxy.Options) { o.Lane.BookmarkInterval = 0 }, "--bookmark-interval=0s is too short: give at least 5s")
	f(func(o *proxy.Options) { o.Lane.BookmarkInterval = 2 * time.Minute },
		"--bookmark-interval=2m0s is too long: give at most 1m0s")
	f(func(o *proxy.Options) { o.Auth.AuthenticationTokenWebhookCacheTTL = -1 },
		"--authentication-token-webhook-cache-ttl")
	f(func(o *proxy.Options) {
		o.Auth.AuthenticationTokenWebhookCacheTTL = 0
		o.Auth.AuthorizationWebhookCacheAuthorizedTTL = 0
		o.Auth.AuthorizationWebhookCacheUnauthorizedTTL = 0
	}, "")
	f(func(o *proxy.Options) { o.Auth.AuthorizationWebhookCacheAuthorizedTTL = 2 * time.Hour },
		"--authorization-webhook-cache-authorized-ttl=2h0m0s is too long: give at most 1h0m0s")
	f(func(o *proxy.Options) { o.Auth.AuthorizationWebhookCacheUnauthorizedTTL = 2 * time.Hour },
		"--authorization-webhook-cache-unauthorized-ttl")
	f(func(o *proxy.Options) {
		o.Auth.AuthorizationRecheckInterval = 0
	}, "--authorization-recheck-interval=0s is too short")
	f(func(o *proxy.Options) { o.Auth.AuthorizationRecheckInterval = time.Millisecond }, "give at least 1s")
	f(func(o *proxy.Options) { o.Auth.AuthorizationRecheckInterval = 2 * time.Hour }, "is too long")
	f(func(o *proxy.Options) { o.Cached.Exclude = []string{"pods", "*.cilium.io", "apps/v1/deployments"} }, "")
	f(func(o *proxy.Options) { o.Lane.CacheAggregatedGroups = []string{"wardle.example.com", "apps/v1"} }, "")
	f(func(o *proxy.Options) { o.Lane.CacheAggregatedGroups = []string{"*"} },
		`--cache-aggregated-groups="*" is no API group`)
	f(func(o *proxy.Options) { o.Cached.Exclude = []string{"*"} }, `--exclude="*" is no resource`)
	f(func(o *proxy.Options) {
		o.Cached.ResidentResources, o.Cached.Exclude = []string{"v1/pods"}, []string{"pods"}
	}, `--exclude="pods" leaves v1/pods of --resident-resources out`)
	f(func(o *proxy.Options) {
		o.Cached.ResidentResources, o.Cached.Exclude = []string{"nodes.example.com"}, []string{"*.example.com"}
	}, "either always cached or never")
	f(func(o *proxy.Options) {
		o.Cached.ResidentResources, o.Cached.Exclude = []string{"pods"}, []string{"pods.example.com"}
	}, "")
	f(func(o *proxy.Options) { o.Cached.ResidentResources = []string{"secrets"} }, "")
	f(func(o *proxy.Options) { o.Cached.ResidentResources, o.SecurePort = []string{"v1/secrets"}, 0 },
		"without --secure-port: Secrets are served from a cache only to clients whose right")
	f(func(o *proxy.Options) {
		o.Audit.AuditLogMode = "often"
	}, `--audit-log-mode="often" is unknown: give batch, blocking or blocking-strict`)
	f(func(o *proxy.Options) { o.Audit.AuditLogMaxSize = -1 }, "--audit-log-maxsize=-1 is too small")
	f(func(o *proxy.Options) { o.Lane.HistoryBytes = 5 }, "--history-bytes=5 is too small")
}

// Without flags, nothing is open to other hosts, and nobody has the proxy's own rights. Each manifest in
// deploy/ says where it listens.
func TestDefaultPorts(t *testing.T) {
	o := proxy.NewOptions()
	if o.InsecurePort != 0 || o.SecurePort != 8443 || o.BindAddress != "127.0.0.1" || o.AdminBindAddress != "127.0.0.1" {
		t.Errorf("got %d, %d on %s, admin on %s", o.InsecurePort, o.SecurePort, o.BindAddress, o.AdminBindAddress)
	}
	for _, name := range []string{"chart/templates/deployment.yaml", "sidecar/static-pod.yaml", "sidecar/daemonset.yaml",
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

// The first lines of the log say which hosts reach each port.
func TestReachIsLogged(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t), func(o *proxy.Options) {
		o.SecurePort, o.BindAddress, o.AdminPort = proxy.AnyPort, "0.0.0.0", proxy.AnyPort
	})
	for _, c := range [][2]string{{"Serving plaintext", `clients="this host only"`}, {"Serving TLS", `clients="other hosts too"`},
		{"Serving health", `clients="this host only"`}} {
		if len(f.log.with(c[0], c[1])) != 1 {
			t.Errorf("no line %s with %s", c[0], c[1])
		}
	}
}
