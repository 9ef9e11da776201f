package proxy

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/operate/admin"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// No web page reaches the insecure port or the admin port through a browser on this host, except pages of
// the port itself: neither one whose name resolves to 127.0.0.1 nor one that sends requests there.
func TestLocal(t *testing.T) {
	f := func(want bool, host string, lines ...string) {
		t.Helper()
		x := &exchange.Exchange{Target: "/version", Header: exchange.Header{{Name: "Host", Value: host}}}
		r := httptest.NewRequest(http.MethodGet, "/version", nil)
		r.Host = host
		for _, line := range lines {
			name, value, _ := strings.Cut(line, ": ")
			x.Header.Add(name, value)
			r.Header.Add(name, value)
		}
		if got := localExchange(x); got != want {
			t.Errorf("Host %s, %q: %v", host, lines, got)
		}
		if got := localToAdmin(r); got != want {
			t.Errorf("Host %s, %q to the admin port: %v", host, lines, got)
		}
	}
	for _, host := range []string{"localhost", "LOCALHOST", "localhost:8001", "127.0.0.1:8001", "[::1]:8001"} {
		f(true, host)
	}
	for _, host := range []string{"evil.example", "evil.example:8001", "localhost.evil.example:8001", "10.1.1.1", "evil.example@localhost"} {
		f(false, host)
	}
	for origin, hosts := range map[string][]string{
		"http://localhost:8001": {"localhost:8001", "LOCALHOST:8001"},
		"http://127.0.0.1:8001": {"127.0.0.1:8001"},
		"http://[::1]:8001":     {"[::1]:8001"},
		"http://localhost":      {"localhost", "localhost:80"},
	} {
		for _, host := range hosts {
			f(true, host, "Origin: "+origin)
		}
	}
	for _, origin := range []string{"https://evil.example", "null", "http://localhost:3000", "http://127.0.0.1:8001", "http://localhost",
		"https://localhost:8001", "http://localhost:8001@evil.example"} {
		f(false, "localhost:8001", "Origin: "+origin)
	}
	f(false, "localhost", "Origin: https://localhost")
	f(false, "localhost:8001", "Origin: http://localhost:8001", "Origin: http://localhost:3000")

	for site, want := range map[string]bool{"none": true, "same-origin": true, "same-site": false, "cross-site": false, "anything new": false} {
		f(want, "localhost:8001", "Sec-Fetch-Site: "+site)
		f(want, "localhost:8001", "sec-fetch-site: "+site)
	}
	f(false, "localhost:8001", "Sec-Fetch-Site: none", "Sec-Fetch-Site: cross-site")
	f(false, "localhost:8001", "Sec-Fetch-Site: same-origin", "Origin: http://localhost:3000")
}

// Text in a target that only looks like a host changes nothing.
func TestLocalTarget(t *testing.T) {
	for target, want := range map[string][2]bool{ // with Host localhost, and with a foreign one
		"http://localhost/version":       {true, false},
		"http://evil.example/version":    {false, false},
		"http://localhost@evil.example/": {false, false},
		"//localhost://x/version":        {true, false},
		"/?://localhost/version":         {true, false},
	} {
		for i, host := range []string{"localhost", "evil.example"} {
			x := &exchange.Exchange{Target: target, Header: exchange.Header{{Name: "Host", Value: host}}}
			if got := localExchange(x); got != want[i] {
				t.Errorf("%s of %s: %v", target, host, got)
			}
		}
	}
}

// Profiles contain what is in memory. They are for clients on this host, even if the admin port is open
// to other hosts.
func TestProfilesStayHere(t *testing.T) {
	p := admin.New(admin.Config{Profiling: true, Metrics: metrics.NewSet(), Local: localToAdmin}, proxytest.Guard())
	for _, c := range []struct {
		ip, host, path string
		want           int
	}{
		{"10.1.1.1", "10.2.2.2:8002", "/livez", http.StatusOK},
		{"10.1.1.1", "watchfan.kube-system:8002", "/metrics", http.StatusOK},
		{"10.1.1.1", "10.2.2.2:8002", "/debug/pprof/", http.StatusForbidden},
		{"10.1.1.1", "localhost", "/debug/pprof/heap", http.StatusForbidden},
		{"10.1.1.1", "localhost", "/debug/pprof/cmdline", http.StatusForbidden},
		{"127.0.0.1", "pages.example", "/debug/pprof/heap", http.StatusForbidden},
		{"127.0.0.1", "localhost:8002", "/debug/pprof/cmdline", http.StatusOK},
		{"::1", "[::1]:8002", "/debug/pprof/", http.StatusOK},
	} {
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		r.Host, r.RemoteAddr = c.host, net.JoinHostPort(c.ip, "40000")
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s of %s from %s: %d, want %d", c.path, c.host, c.ip, w.Code, c.want)
		}
	}
}
