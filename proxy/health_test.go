package proxy

import (
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/valyala/fasthttp"
)

// Profiles hold what is in memory: they are for clients on this host, wherever else the admin port is open to.
func TestProfilesStayHere(t *testing.T) {
	h := &health{profiling: true}
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
		var req fasthttp.Request
		req.SetRequestURI(c.path)
		req.Header.SetHost(c.host)
		var ctx fasthttp.RequestCtx
		ctx.Init(&req, &net.TCPAddr{IP: net.ParseIP(c.ip)}, nil)
		h.handle(&ctx)
		if got := ctx.Response.StatusCode(); got != c.want {
			t.Errorf("%s of %s from %s: %d, want %d", c.path, c.host, c.ip, got, c.want)
		}
	}
}

// The admin port's pages answer a panic of one with 500.
func TestPanicOnAdminPort(t *testing.T) {
	h := &health{pages: map[string]fasthttp.RequestHandler{"/page": func(*fasthttp.RequestCtx) { panic("page") }}}
	s := &Server{log: slog.New(slog.DiscardHandler), health: h}
	var ctx fasthttp.RequestCtx
	ctx.Request.SetRequestURI("/page")
	s.serveAdmin(&ctx)
	if code := ctx.Response.StatusCode(); code != http.StatusInternalServerError || !ctx.Response.ConnectionClose() {
		t.Errorf("%d, want 500 and the connection's end", code)
	}
}
