package proxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/operate/diagnose"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// fan is a proxy in front of a scripted kube-apiserver.
type fan struct {
	t                *testing.T
	up               *proxytest.Server
	cms              *proxytest.Collection // up's ConfigMaps
	log              *bubble.Log
	insecure, secure string // URLs
	admin            string // URL
	stop             func() // stops the proxy and waits for it
}

// startFan runs a proxy in front of up.
func startFan(t *testing.T, up *proxytest.Server, change ...func(*proxy.Options)) *fan {
	t.Helper()
	cluster := clientcmdapi.Cluster{Server: up.URL}
	if up.TLS != nil {
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: up.Certificate().Raw})
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &cluster
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: bubble.OwnToken}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"

	opts := proxy.NewOptions()
	opts.Upstream.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, opts.Upstream.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	opts.InsecurePort, opts.SecurePort, opts.AdminPort = proxy.AnyPort, 0, 0
	opts.Downstream.CertDir = t.TempDir()
	opts.ShutdownTimeout = 2 * time.Second
	// A proof that comes late on a busy machine must not decide a test.
	opts.Lane.FreshnessTimeout = proxytest.Patience
	for _, c := range change {
		c(&opts)
	}
	f := &fan{t: t, up: up, cms: up.Collection(proxytest.ConfigMaps), log: bubble.NewLog(t)}
	server, err := proxy.New(opts, slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Listen(); err != nil {
		t.Fatal(err)
	}
	f.insecure, f.secure, f.admin = "http://"+server.InsecureAddr(), "https://"+server.SecureAddr(),
		"http://"+server.AdminAddr()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	f.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(proxytest.Patience):
			t.Errorf("Run did not return within %s of its context's end", proxytest.Patience)
		}
	})
	t.Cleanup(f.stop)
	return f
}

func (f *fan) awaitLog(parts ...string) {
	f.t.Helper()
	f.until(fmt.Sprintf("log line %q", parts), func() bool { return len(f.log.With(parts...)) > 0 })
}

// until polls until a condition holds.
func (f *fan) until(what string, ok func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(proxytest.Patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("no %s", what)
		}
	}
}

// watch opens a watch as a client of the insecure port.
func (f *fan) watch(path string, args ...any) *proxytest.Watcher {
	f.t.Helper()
	w := proxytest.Open(f.t, f.insecure+fmt.Sprintf(path, args...))
	if w.Code != http.StatusOK {
		f.t.Fatalf("GET %s: got status %d", path, w.Code)
	}
	return w
}

// passed fails the test unless exactly n requests were passed through.
func (f *fan) passed(n int) {
	f.t.Helper()
	if got := f.up.Count(proxytest.Client); got != n {
		f.t.Errorf("%d requests were passed through, want %d", got, n)
	}
}

// dial opens a raw connection to a port of the proxy, given as a URL.
func (f *fan) dial(url string) *rawConn {
	f.t.Helper()
	scheme, address, _ := strings.Cut(url, "://")
	c, err := net.Dial("tcp", address)
	if err != nil {
		f.t.Fatal(err)
	}
	if scheme == "https" {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	}
	return newRawConn(f.t, c)
}

// rawConn is a client that sends bytes as they are and reads responses.
type rawConn struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func newRawConn(t *testing.T, c net.Conn) *rawConn {
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(proxytest.Patience))
	return &rawConn{c, t, bufio.NewReader(c)}
}

func (c *rawConn) send(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.Conn, strings.ReplaceAll(format, "\n", "\r\n"), args...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *rawConn) response() (*http.Response, string) {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.t.Fatalf("read response: %v", err)
	}
	return resp, bodyOf(c.t, resp)
}

func bodyOf(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read body: %v", err)
	}
	return string(body)
}

// both opens the secure port too.
func both(o *proxy.Options) { o.SecurePort, o.BindAddress = proxy.AnyPort, "127.0.0.1" }

// startWatched runs a proxy with all ports.
func startWatched(t *testing.T, change ...func(*proxy.Options)) *fan {
	t.Helper()
	return startFan(t, proxytest.NewServer(t),
		append(change, both, func(o *proxy.Options) { o.AdminPort = proxy.AnyPort })...)
}

// askAdmin sends a GET to the admin port.
func (f *fan) askAdmin(path, accept string) (int, string) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, f.admin+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp.StatusCode, bodyOf(f.t, resp)
}

// adminJSON reads a page of the admin port in JSON.
func (f *fan) adminJSON(path string, into any) {
	f.t.Helper()
	code, body := f.askAdmin(path, "application/json")
	if err := json.Unmarshal([]byte(body), into); code != http.StatusOK || err != nil {
		f.t.Fatalf("%s: %d, %v: %s", path, code, err, body)
	}
}

// watchers returns the answer to a query about watches.
func (f *fan) watchers(query string) (list diagnose.WatcherList) {
	f.t.Helper()
	f.adminJSON("/debug/watchers?"+query, &list)
	return list
}

// accounts returns what /debug/accounts says.
func (f *fan) accounts() (d diagnose.DebugAccounts) {
	f.t.Helper()
	f.adminJSON(diagnose.AccountsPath, &d)
	return d
}

// ask sends a request with a token to the secure port. The answer's body ends with the test.
func (f *fan) ask(client *http.Client, method, target, token, body string, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(f.t.Context(), method, f.secure+target, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("User-Agent", proxytest.ClientAgent)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err == nil {
		f.t.Cleanup(func() { resp.Body.Close() })
	}
	return resp, err
}

// get is ask for a GET with the client's token, whose answer must be 200.
func (f *fan) get(client *http.Client, target string) *http.Response {
	f.t.Helper()
	resp, err := f.ask(client, http.MethodGet, target, bubble.ClientToken, "")
	if err != nil || resp.StatusCode != http.StatusOK {
		f.t.Fatalf("GET %s: %+v, %v", target, resp, err)
	}
	return resp
}

// unsafe is a transport that trusts any certificate.
func unsafe() *http.Transport {
	return &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
}
