package proxy_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
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

// The ports file has the ports, and the first lines of the log say which hosts reach each. The insecure port
// listens on the loopback address only.
func TestPortsFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "ports")
	f := startFan(t, proxytest.NewServer(t), func(o *proxy.Options) {
		o.SecurePort, o.AdminPort, o.PortsFile = proxy.AnyPort, proxy.AnyPort, name
		o.BindAddress = "0.0.0.0"
	})
	got, err := os.ReadFile(name)
	port := func(url string) string { return url[strings.Index(url, "://")+3:] }
	want := fmt.Sprintf(`{"insecure":%q,"secure":%q,"admin":%q,"pid":%d}`+"\n", port(f.insecure), port(f.secure), port(f.admin), os.Getpid())
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	if !strings.HasPrefix(f.insecure, "http://127.0.0.1:") {
		t.Errorf("the insecure port is at %s", f.insecure)
	}
	for _, c := range [][2]string{{"Serving plaintext", `clients="this host only"`}, {"Serving TLS", `clients="other hosts too"`},
		{"Serving health", `clients="this host only"`}} {
		if len(f.log.With(c[0], c[1])) != 1 {
			t.Errorf("no line %s with %s", c[0], c[1])
		}
	}
}

// refused reports whether a port, given as a URL, resets a new connection; nil if it does.
func refused(url string) error {
	scheme, address, _ := strings.Cut(url, "://")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil // reset already
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(proxytest.Patience))
	if scheme == "https" {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	if _, err = io.WriteString(conn, "GET /version HTTP/1.0\r\nUser-Agent: "+proxytest.ClientAgent+"\r\n\r\n"); err != nil {
		return nil
	}
	if got, err := io.ReadAll(conn); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("got %.20q, %v", got, err)
	}
	return nil
}

// A connection above --max-connections is reset at once, except on the admin port. When another one
// ends, a new one is accepted.
func TestMaxConnections(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t), both, func(o *proxy.Options) { o.AdminPort, o.Downstream.MaxConnections = proxy.AnyPort, 3 })
	var open []*rawConn
	for range 3 {
		c := f.dial(f.insecure)
		c.send("GET /version HTTP/1.1\nHost: localhost\nUser-Agent: " + proxytest.ClientAgent + "\n\n")
		if resp, _ := c.response(); resp.StatusCode != http.StatusNotFound {
			t.Fatalf("within the bound: %s", resp.Status)
		}
		open = append(open, c)
	}
	for _, url := range []string{f.insecure, f.insecure, f.secure} {
		if err := refused(url); err != nil {
			t.Errorf("beyond the bound at %s: %v", url, err)
		}
	}
	if code, _ := f.askAdmin("/livez", ""); code != http.StatusOK {
		t.Errorf("the admin port: %d", code)
	}
	open[0].Close()
	f.until("room again", func() bool { return refused(f.insecure) != nil })
}

// While memory is spent, new connections are reset. While it is full, they are there for a 429.
func TestMemorySpent(t *testing.T) {
	percent := new(atomic.Int64)
	percent.Store(92)
	f := startFan(t, proxytest.NewServer(t), hundredMiB(percent))
	f.awaitLog("memory=full")
	if refused(f.insecure) == nil {
		t.Error("no connection while memory is full")
	}
	percent.Store(96)
	f.awaitLog("memory=spent")
	if err := refused(f.insecure); err != nil {
		t.Error(err)
	}
}
