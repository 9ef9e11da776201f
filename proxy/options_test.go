package proxy_test

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy"
)

func TestOptionsFlags(t *testing.T) {
	opts := proxy.NewOptions()
	fs := flag.NewFlagSet("watchfan", flag.ContinueOnError)
	opts.AddFlags(fs)
	err := fs.Parse(strings.Fields("--history-bytes=1Gi --client-buffer-bytes 4000k --idle-timeout=30s --resident-resources=pods,apps/v1/deployments --resident-resources v1/nodes --insecure-port=-1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := opts.Validate(); err != nil {
		t.Fatal(err)
	}
	if opts.HistoryBytes != 1<<30 || opts.ClientBufferBytes != 4000e3 || opts.IdleTimeout != 30*time.Second || opts.InsecurePort != proxy.AnyPort {
		t.Errorf("got %+v", opts)
	}
	if got := strings.Join(opts.ResidentResources, " "); got != "pods apps/v1/deployments v1/nodes" {
		t.Errorf("got resident resources %q", got)
	}
	fs.SetOutput(io.Discard)
	if err := fs.Parse([]string{"--history-bytes=lots"}); err == nil || !strings.Contains(err.Error(), "64Mi") {
		t.Errorf("got %v, want an error that shows how sizes are spelled", err)
	}
}

// Every flag stands in one group of the help, and each group fits a screen.
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
	fs := flag.NewFlagSet("watchfan", flag.ContinueOnError)
	opts.AddFlags(fs)
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

// The docstrings of Options and the help name the same defaults.
func TestDefaults(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "options.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	opts := proxy.NewOptions()
	fs := flag.NewFlagSet("watchfan", flag.ContinueOnError)
	opts.AddFlags(fs)
	defaults := make(map[string]string) // by the letters of the option's name
	fs.VisitAll(func(f *flag.Flag) { defaults[strings.ReplaceAll(f.Name, "-", "")] = f.DefValue })
	named := regexp.MustCompile(`Defaults? ([^\s,;]+)(?:, ([^\s,;]+))?[.;,]`)
	checked := 0
	ast.Inspect(file.Scope.Lookup("Options").Decl.(ast.Node), func(n ast.Node) bool {
		fields, ok := n.(*ast.StructType)
		if !ok {
			return true
		}
		var says []string // by the comment above, for the fields below it
		for _, f := range fields.Fields.List {
			if f.Doc != nil {
				says = nil
				if m := named.FindStringSubmatch(strings.Join(strings.Fields(f.Doc.Text()), " ")); m != nil {
					says = m[1:]
				}
			}
			if len(says) == 0 || says[0] == "none" {
				continue
			}
			value := defaults[strings.ToLower(f.Names[0].Name)]
			if duration, err := time.ParseDuration(says[0]); err == nil {
				says[0] = duration.String()
			}
			if says[0] != value {
				t.Errorf("%s: the docstring's default is %s, the flag's %s", f.Names[0].Name, says[0], value)
			}
			says = says[1:]
			checked++
		}
		return false
	})
	if checked < 19 {
		t.Errorf("only %d defaults were read", checked)
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
	f(func(o *proxy.Options) { o.TLSCertFile = "x" }, "go together")
	f(func(o *proxy.Options) { o.RequestHeaderClientCAFile = "x" }, "--requestheader-username-headers")
	f(func(o *proxy.Options) { o.ResidentResources = []string{"Pods"} }, "plural")
	f(func(o *proxy.Options) { o.ResidentResources = []string{"a/b/c/d"} }, "plural")
	f(func(o *proxy.Options) { o.ResidentResources = []string{"/v1/pods"} }, "plural")
	f(func(o *proxy.Options) { o.FreshnessTimeout = 0 }, "--freshness-timeout")
	f(func(o *proxy.Options) { o.IdleTimeout = -1 }, "--idle-timeout")
	f(func(o *proxy.Options) { o.FlushInterval = -1 }, "--flush-interval")
	f(func(o *proxy.Options) { o.FlushInterval = time.Minute }, "--flush-interval=1m0s is too long")
	f(func(o *proxy.Options) { o.AuthenticationTokenWebhookCacheTTL = -1 }, "--authentication-token-webhook-cache-ttl")
	f(func(o *proxy.Options) {
		o.AuthenticationTokenWebhookCacheTTL, o.AuthorizationWebhookCacheAuthorizedTTL, o.AuthorizationWebhookCacheUnauthorizedTTL = 0, 0, 0
	}, "")
	f(func(o *proxy.Options) { o.AuthorizationWebhookCacheAuthorizedTTL = 2 * time.Hour }, "--authorization-webhook-cache-authorized-ttl=2h0m0s is too long: give at most 1h0m0s")
	f(func(o *proxy.Options) { o.AuthorizationWebhookCacheUnauthorizedTTL = 2 * time.Hour }, "--authorization-webhook-cache-unauthorized-ttl")
	f(func(o *proxy.Options) { o.AuthorizationRecheckInterval = 0 }, "--authorization-recheck-interval=0s is too short")
	f(func(o *proxy.Options) { o.AuthorizationRecheckInterval = time.Millisecond }, "give at least 1s")
	f(func(o *proxy.Options) { o.AuthorizationRecheckInterval = 2 * time.Hour }, "is too long")
	f(func(o *proxy.Options) { o.Exclude = []string{"pods", "*.cilium.io", "apps/v1/deployments"} }, "")
	f(func(o *proxy.Options) { o.CacheAggregatedGroups = []string{"wardle.example.com", "apps/v1"} }, "")
	f(func(o *proxy.Options) { o.CacheAggregatedGroups = []string{"*"} }, `--cache-aggregated-groups="*" is no API group`)
	f(func(o *proxy.Options) { o.Exclude = []string{"*"} }, `--exclude="*" is no resource`)
	f(func(o *proxy.Options) { o.ResidentResources, o.Exclude = []string{"v1/pods"}, []string{"pods"} }, `--exclude="pods" leaves v1/pods of --resident-resources out`)
	f(func(o *proxy.Options) {
		o.ResidentResources, o.Exclude = []string{"nodes.example.com"}, []string{"*.example.com"}
	}, "either always cached or never")
	f(func(o *proxy.Options) {
		o.ResidentResources, o.Exclude = []string{"pods"}, []string{"pods.example.com"}
	}, "")
	f(func(o *proxy.Options) { o.ResidentResources = []string{"secrets"} }, "")
	f(func(o *proxy.Options) { o.ResidentResources, o.SecurePort = []string{"v1/secrets"}, 0 }, "without --secure-port: Secrets are served from a cache only to clients whose right")
	f(func(o *proxy.Options) { o.AuditLogMode = "often" }, `--audit-log-mode="often" is unknown: give batch, blocking or blocking-strict`)
	f(func(o *proxy.Options) { o.AuditLogMaxSize = -1 }, "--audit-log-maxsize=-1 is too small")
	f(func(o *proxy.Options) { o.HistoryBytes = 5 }, "--history-bytes=5 is too small")
}
