package admin

import (
	"errors"
	"net/http"
	"testing"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/operate/diagnose"
)

// /livez depends on nothing. /readyz lists its checks if one fails, and with ?verbose.
func TestHealth(t *testing.T) {
	var failure error
	p := startPort(t, Config{Checks: []diagnose.Check{
		{Name: "first", OK: func() error { return nil }}, {Name: "second", OK: func() error { return failure }}}})
	check := func(path string, code int, body string) {
		t.Helper()
		resp, got := p.do(http.MethodGet, path, nil)
		if resp.StatusCode != code || got != body || resp.Header.Get("Cache-Control") != "no-cache, private" {
			t.Errorf("%s: %s, %v, %q; want %d, %q", path, resp.Status, resp.Header, got, code, body)
		}
	}
	check("/readyz", 200, "ok")
	check("/readyz?verbose", 200, "[+]ping ok\n[+]first ok\n[+]second ok\nreadyz check passed\n")
	check("/readyz?verbose=false", 200, "[+]ping ok\n[+]first ok\n[+]second ok\nreadyz check passed\n")
	failure = errors.New("not yet")
	for _, path := range []string{"/readyz", "/readyz?verbose"} {
		check(path, 500, "[+]ping ok\n[+]first ok\n[-]second failed: not yet\nreadyz check failed\n")
	}
	for _, path := range []string{"/livez", "/healthz"} {
		check(path, 200, "ok")
		check(path+"?verbose", 200, "[+]ping ok\nlivez check passed\n")
	}
}

// On loopback, requests that are not local are refused and counted, for any path and method.
func TestForeign(t *testing.T) {
	foreign := new(metrics.Counter)
	p := startPort(t, Config{Loopback: true, Foreign: foreign, Local: func(r *http.Request) bool {
		return r.Host == "localhost"
	}})
	for i, head := range []string{
		"GET /livez HTTP/1.1\r\nHost: pages.example\r\nConnection: close\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: pages.example\r\nConnection: close\r\n\r\n",
		"GET http://pages.example/livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
		"CONNECT pages.example:80 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
	} {
		if got := p.raw(head); len(got) < 12 || got[:12] != "HTTP/1.1 403" || foreign.Get() != uint64(i+1) {
			t.Errorf("%q: %q, %d counted", head, got, foreign.Get())
		}
	}
	got := p.raw("GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	if len(got) < 12 || got[:12] != "HTTP/1.1 200" {
		t.Errorf("a local request: %q", got)
	}
}
