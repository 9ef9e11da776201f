package e2e_test

import (
	"context"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// TestHTTP2Connections: client-go opens as many connections as at kube-apiserver, and all its
// watches are served.
func TestHTTP2Connections(t *testing.T) {
	s, c, p := newStage(t, "http2-connections"), sharedCluster(t), sharedWatchfan(t)
	const watches = 250
	count := func(d *target) int {
		var dialed atomic.Int64
		transport := d.http2().http.Transport.(*http.Transport).Clone()
		transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialed.Add(1)
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
		own := *d.http2()
		own.http = &http.Client{Transport: transport}
		defer own.close()
		var all []*recording
		for range watches {
			all = append(all, own.watch(t, s.uri+"?watch=1"))
		}
		if n := p.admin(t).metric(t, "watchfan_http2_connections"); d != s.theirs && int64(n) < dialed.Load() {
			t.Errorf("%v HTTP/2 connections are counted of %d", n, dialed.Load())
		}
		for _, r := range all {
			if r.status != http.StatusOK || !r.open() {
				t.Errorf("a watch at %s: %d", d.name, r.status)
			}
			r.stop()
		}
		return int(dialed.Load())
	}
	if got, want := count(p.secure(t, c.token(t, "admin"))), count(s.theirs); got != want {
		t.Errorf("%d watches take %d connections, and %d straight at kube-apiserver", watches, got, want)
	}
}

// TestHTTP2ByDefault: client-go speaks HTTP/2 to watchfan without being told to, and
// kube-apiserver's flag turns it off.
func TestHTTP2ByDefault(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	for flag, want := range map[string]string{"--disable-http2=false": "HTTP/2.0", "--disable-http2": "HTTP/1.1"} {
		p := privateWatchfan(t, c, flag)
		client, err := rest.HTTPClientFor(&rest.Config{
			Host: "https://" + p.Ports.Secure, BearerToken: c.token(t, "admin"), TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Get("https://" + p.Ports.Secure + "/version")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.Proto != want {
			t.Errorf("%s: %s, want %s", flag, resp.Proto, want)
		}
		client.CloseIdleConnections()
	}
}

// TestH2Spec: h2spec, strict, against the secure port. kube-apiserver's answers come late, because an answer
// that comes before the rest of its request hides what is wrong with that.
func TestH2Spec(t *testing.T) {
	parallel(t)
	program := binary(t, "H2SPEC_BIN", "h2spec")
	c := sharedCluster(t)
	relay := proxytest.NewRelay(t, c.Address())
	p := privateWatchfan(t, c, c.through(t, relay))
	p.waitReady(t)
	relay.Delay(200 * time.Millisecond)
	host, port, err := net.SplitHostPort(p.Ports.Secure)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), program, "-h", host, "-p", port, "-t", "-k", "--strict", "-P", "/version", "-o", "20").CombinedOutput()
	if !regexp.MustCompile(`(?m)^1\d\d tests, `).Match(out) {
		t.Fatalf("%v: did not finish: %.2000s", err, out)
	}
	if _, summary, failed := strings.Cut(string(out), "Failures:"); failed || err != nil {
		t.Errorf("%v: watchfan fails %s", err, summary)
	}
}
