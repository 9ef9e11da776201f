package proxy

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/admin"
	"github.com/watchfan/watchfan/proxy/diagnose"
	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/selfcheck"
)

// Profiles contain what is in memory, and digests take time. Both are for clients on this host, even
// if the admin port is open to other hosts.
func TestProfilesStayHere(t *testing.T) {
	none := diagnose.DigestsPage(func(string, uint64) []selfcheck.LaneDigest { return nil })
	p := admin.New(admin.Config{Profiling: true, Metrics: metrics.NewSet(), Local: localToAdmin, Digests: none},
		proxytest.Guard())
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
		{"10.1.1.1", "localhost", "/debug/digests?resource=v1/pods", http.StatusForbidden},
		{"127.0.0.1", "pages.example", "/debug/digests?resource=v1/pods", http.StatusForbidden},
		{"127.0.0.1", "localhost:8002", "/debug/digests?resource=v1/pods", http.StatusNotFound},
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
