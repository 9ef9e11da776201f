package proxy_test

import (
	"bytes"
	"flag"
	"io"
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
	if got := strings.Join(opts.Resident, " "); got != "pods apps/v1/deployments v1/nodes" {
		t.Errorf("got resident resources %q", got)
	}
	fs.SetOutput(io.Discard)
	if err := fs.Parse([]string{"--history-bytes=lots"}); err == nil || !strings.Contains(err.Error(), "64Mi") {
		t.Errorf("got %v, want an error that shows how sizes are spelled", err)
	}
}

// Every flag stands in a group of the help.
func TestPrintFlags(t *testing.T) {
	opts := proxy.NewOptions()
	fs := flag.NewFlagSet("watchfan", flag.ContinueOnError)
	opts.AddFlags(fs)
	var b bytes.Buffer
	proxy.PrintFlags(&b, fs)
	if !strings.HasSuffix(b.String(), "\nProgram:\n") {
		t.Errorf("flags without a group:\n%s", b.String())
	}
	fs.VisitAll(func(f *flag.Flag) {
		if strings.Count(b.String(), "  --"+f.Name+" ")+strings.Count(b.String(), "  --"+f.Name+"\n") != 1 {
			t.Errorf("--%s is not printed once", f.Name)
		}
	})
	for line := range strings.Lines(b.String()) {
		if len(line) > 101 {
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
	f(func(o *proxy.Options) { o.AdminPort = 8001 }, "--insecure-port and --admin-port are both 8001")
	f(func(o *proxy.Options) { o.InsecurePort, o.SecurePort = 0, 0 }, "both off")
	f(func(o *proxy.Options) { o.BindAddress = "localhost" }, "--bind-address")
	f(func(o *proxy.Options) { o.TLSCertFile = "x" }, "go together")
	f(func(o *proxy.Options) { o.RequestHeaderClientCAFile = "x" }, "--requestheader-username-headers")
	f(func(o *proxy.Options) { o.Resident = []string{"Pods"} }, "plural")
	f(func(o *proxy.Options) { o.Resident = []string{"a/b/c/d"} }, "plural")
	f(func(o *proxy.Options) { o.Resident = []string{"/v1/pods"} }, "plural")
	f(func(o *proxy.Options) { o.FreshnessTimeout = 0 }, "--freshness-timeout")
	f(func(o *proxy.Options) { o.IdleTimeout = -1 }, "--idle-timeout")
	f(func(o *proxy.Options) { o.FlushInterval = -1 }, "--flush-interval")
	f(func(o *proxy.Options) { o.FlushInterval = time.Minute }, "--flush-interval=1m0s is too long")
	f(func(o *proxy.Options) { o.HistoryBytes = 5 }, "--history-bytes=5 is too small")
}
