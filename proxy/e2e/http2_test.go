package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// http2Stage is a namespace seen over HTTP/2, through watchfan and straight.
type http2Stage struct {
	*stage
	proxy *watchfan
}

func newHTTP2Stage(t *testing.T, ns string) *http2Stage {
	s := &http2Stage{stage: newStage(t, ns), proxy: sharedWatchfan(t)}
	c := sharedCluster(t)
	s.ours, s.theirs = s.proxy.secure(t, c.token(t, "admin")).http2(), s.theirs.http2()
	t.Cleanup(s.ours.close)
	t.Cleanup(s.theirs.close)
	return s
}

// TestHTTP2Connections: client-go opens as many connections as at kube-apiserver, and all its
// watches are served.
func TestHTTP2Connections(t *testing.T) {
	s := newHTTP2Stage(t, "http2-connections")
	const watches = 250
	count := func(d *target) int {
		var dialed atomic.Int64
		transport := d.http.Transport.(*http.Transport).Clone()
		transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialed.Add(1)
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
		own := *d
		own.http = &http.Client{Transport: transport}
		defer own.close()
		var all []*recording
		for range watches {
			r := own.watch(t, s.uri+"?watch=1")
			all = append(all, r)
		}
		if d == s.ours {
			if n := s.proxy.admin(t).metric(t, "watchfan_http2_connections"); int64(n) < dialed.Load() {
				t.Errorf("%v HTTP/2 connections are counted of %d", n, dialed.Load())
			}
		}
		for _, r := range all {
			if r.status != http.StatusOK || !r.open() {
				t.Errorf("a watch at %s: %d", d.name, r.status)
			}
			r.stop()
		}
		return int(dialed.Load())
	}
	if got, want := count(s.ours), count(s.theirs); got != want {
		t.Errorf("%d watches take %d connections, and %d straight at kube-apiserver", watches, got, want)
	}
}

// TestHTTP2ByDefault: client-go speaks HTTP/2 to watchfan without being told to, and
// kube-apiserver's flag turns it off.
func TestHTTP2ByDefault(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	for name, want := range map[string]string{"": "HTTP/2.0", "--disable-http2": "HTTP/1.1"} {
		var args []string
		if name != "" {
			args = append(args, name)
		}
		p := privateWatchfan(t, c, args...)
		client, err := rest.HTTPClientFor(&rest.Config{
			Host: "https://" + p.ports.Secure, BearerToken: c.token(t, "admin"), TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Get("https://" + p.ports.Secure + "/version")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.Proto != want {
			t.Errorf("%q: %s, want %s", name, resp.Proto, want)
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
	failures, err := h2spec(t, program, p.ports.Secure)
	if err != nil {
		t.Fatal(err)
	}
	for _, failure := range failures {
		t.Errorf("watchfan fails %s", failure)
	}
}

// h2spec runs the suite, and returns the cases that fail.
func h2spec(t *testing.T, program, address string) (failures []string, err error) {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if host == "" || host == "::" || host == "0.0.0.0" {
		host = "127.0.0.1"
	}
	out, err := exec.CommandContext(t.Context(), program, "-h", host, "-p", port, "-t", "-k", "--strict", "-P", "/version", "-o", "20").CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		return nil, err
	}
	if !regexp.MustCompile(`(?m)^1\d\d tests, `).Match(out) {
		return nil, fmt.Errorf("did not finish: %.2000s", out)
	}
	_, summary, _ := strings.Cut(string(out), "Failures:")
	for line := range strings.Lines(summary) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "×") {
			failures = append(failures, strings.TrimSpace(strings.TrimPrefix(line, "×")))
		}
	}
	return failures, nil
}
