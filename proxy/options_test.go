package proxy_test

import (
	"bytes"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy"
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
	f(func(o *proxy.Options) { o.AdminPort = 8001 }, "--admin-port=8001 is that of --insecure-port too")
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
