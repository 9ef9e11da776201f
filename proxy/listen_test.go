package proxy_test

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy"
)

// What keeps watchfan from starting names the flag, and says what to give instead.
func TestCannotStart(t *testing.T) {
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: http://127.0.0.1:1}}]\n"+
		"contexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	taken, none := ln.Addr().(*net.TCPAddr).Port, filepath.Join(dir, "none.pem")
	f := func(change func(*proxy.Options), want string) {
		t.Helper()
		opts := proxy.NewOptions()
		opts.Upstream.Kubeconfig, opts.Downstream.CertDir = kubeconfig, dir
		opts.InsecurePort, opts.SecurePort, opts.AdminPort = proxy.AnyPort, proxy.AnyPort, proxy.AnyPort
		opts.BindAddress = "127.0.0.1"
		change(&opts)
		s, err := proxy.New(opts, slog.New(slog.DiscardHandler))
		if err == nil {
			err = s.Listen()
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	const use = ": another program uses this port: give another one, 0 for off, or -1 for any free one ("
	const have = "=192.0.2.1: this host does not have this address: give one of its own, "
	f(func(o *proxy.Options) { o.InsecurePort = taken }, fmt.Sprint("--insecure-port=", taken, use))
	f(func(o *proxy.Options) { o.SecurePort = taken }, fmt.Sprint("--secure-port=", taken, use))
	f(func(o *proxy.Options) { o.AdminPort = taken }, fmt.Sprint("--admin-port=", taken, use))
	f(func(o *proxy.Options) { o.BindAddress = "192.0.2.1" }, "--bind-address"+have)
	f(func(o *proxy.Options) { o.AdminBindAddress = "192.0.2.1" }, "--admin-bind-address"+have)
	f(func(o *proxy.Options) { o.Downstream.TLSCertFile, o.Downstream.TLSPrivateKeyFile = none, none },
		"--tls-cert-file, --tls-private-key-file: stat "+none+": no such file or directory: give PEM files")
	f(func(o *proxy.Options) { o.Auth.ClientCAFile = none }, "--client-ca-file: stat "+none+": no such file or directory: give a PEM file")
	f(func(o *proxy.Options) {
		o.Auth.RequestHeaderClientCAFile, o.Auth.RequestHeaderUsernameHeaders = none, []string{"X-Remote-User"}
	},
		"--requestheader-client-ca-file: stat "+none+": no such file or directory: give a PEM file")
	f(func(o *proxy.Options) { o.Upstream.Kubeconfig = none }, "no cluster is configured: --kubeconfig="+none+" does not exist: ")
}
