package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/pprofhandler"

	"github.com/watchfan/watchfan/proxy/diagnose"
	"github.com/watchfan/watchfan/proxy/exposition"
	"github.com/watchfan/watchfan/proxy/upstream"
)

const (
	upstreamCheckInterval = 5 * time.Second
	upstreamCheckTimeout  = 4 * time.Second
)

// health answers the admin port: /livez says whether we run, /readyz whether a new watch would be
// served now.
//
// It has no authentication. On a loopback address it answers clients on this host, and no web pages
// that a browser there shows. On any other it answers everybody, except with profiles: they hold
// objects and tokens, and are for clients on this host always.
type health struct {
	profiling bool
	loopback  bool                               // the port is bound to a loopback address
	pages     map[string]fasthttp.RequestHandler // what else there is, by path; set before the first request
	watchers  *diagnose.WatchersPage

	mu     sync.Mutex
	checks []healthCheck
}

type healthCheck struct {
	name string
	ok   func() error // from any goroutine; must not block
}

// add makes /readyz depend on ok. Its error is not shown to the caller of /readyz, as
// kube-apiserver does it; name says what it is about.
func (h *health) add(name string, ok func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks = append(h.checks, healthCheck{name, ok})
}

// readiness returns what /readyz depends on.
func (h *health) readiness() []healthCheck {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.checks
}

func (h *health) handle(ctx *fasthttp.RequestCtx) {
	if h.loopback && !local(ctx) {
		rejectedForeignHost.Inc()
		refuseForeign(ctx, "this port answers clients on this host only, also through kubectl port-forward, and no requests or links of other web pages: type its address instead")
		return
	}
	switch path := string(ctx.Path()); {
	case path == "/livez" || path == "/healthz":
		writeHealth(ctx, "livez", nil)
	case path == "/readyz":
		writeHealth(ctx, "readyz", h.readiness())
	case path == "/metrics":
		ctx.SetContentType("text/plain; version=0.0.4; charset=utf-8")
		exposition.Write(ctx)
	case path == diagnose.WatchersPath || strings.HasPrefix(path, diagnose.WatchersPath+"/"):
		if !h.profiling && !fromHere(ctx) {
			refuseForeign(ctx, "watches are shown to clients on this host only, as with kubectl port-forward, or to all with --profiling")
			return
		}
		h.watchers.Serve(ctx, strings.TrimPrefix(path[len(diagnose.WatchersPath):], "/"))
	case h.profiling && strings.HasPrefix(path, "/debug/pprof"):
		if !fromHere(ctx) {
			refuseForeign(ctx, "profiles hold what is in memory, and are shown to clients on this host only, as with kubectl port-forward")
			return
		}
		ctx.URI().SetPath(strings.TrimSuffix(path, "/")) // fasthttp's handler knows its index without the slash only
		pprofhandler.PprofHandler(ctx)
	case h.pages[path] != nil:
		h.pages[path](ctx)
	default:
		ctx.SetContentType("text/plain; charset=utf-8")
		ctx.SetStatusCode(http.StatusNotFound)
		fmt.Fprintln(ctx, "404 page not found: see /statusz, /livez, /readyz, /metrics, /debug/lanes, /debug/watchers and /debug/pprof/")
	}
}

func refuseForeign(ctx *fasthttp.RequestCtx, message string) {
	diagnose.WriteText(ctx, http.StatusForbidden, message+"\n")
}

// writeHealth answers as kube-apiserver's health endpoints do: "ok", or 500 and the list of checks,
// which ?verbose shows always.
func writeHealth(ctx *fasthttp.RequestCtx, name string, checks []healthCheck) {
	ctx.SetContentType("text/plain; charset=utf-8")
	ctx.Response.Header.Set("Cache-Control", "no-cache, private")
	ctx.Response.Header.Set("X-Content-Type-Options", "nosniff")
	lines := "[+]ping ok\n"
	failed := false
	for _, check := range checks {
		if err := check.ok(); err != nil {
			lines += fmt.Sprintf("[-]%s failed: %v\n", check.name, err)
			failed = true
		} else {
			lines += fmt.Sprintf("[+]%s ok\n", check.name)
		}
	}
	switch {
	case failed:
		ctx.SetStatusCode(http.StatusInternalServerError)
		fmt.Fprintf(ctx, "%s%s check failed\n", lines, name)
	case ctx.QueryArgs().Has("verbose"):
		fmt.Fprintf(ctx, "%s%s check passed\n", lines, name)
	default:
		fmt.Fprint(ctx, "ok")
	}
}

// upstreamCheck asks kube-apiserver now and then whether it is ready.
type upstreamCheck struct {
	upstream *upstream.Upstream
	log      *slog.Logger

	mu  sync.Mutex
	err error
}

func newUpstreamCheck(u *upstream.Upstream, log *slog.Logger) *upstreamCheck {
	return &upstreamCheck{upstream: u, log: log, err: errors.New("not asked yet")}
}

func (c *upstreamCheck) ok() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// run asks until ctx ends, and logs when the answer changes.
func (c *upstreamCheck) run(ctx context.Context) {
	ticker := time.NewTicker(upstreamCheckInterval)
	defer ticker.Stop()
	for first := true; ; first = false {
		err := c.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		changed := first || (err == nil) != (c.err == nil) || errors.Is(err, upstream.ErrLoop) && !errors.Is(c.err, upstream.ErrLoop)
		c.err = err
		c.mu.Unlock()
		switch {
		case changed && err != nil:
			c.log.Warn("Upstream is not reachable", "address", c.upstream.Address(), "err", err)
		case changed:
			c.log.Info("Upstream is reachable", "address", c.upstream.Address())
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// ask reports whether kube-apiserver is ready. An answer of 401 or 403 shows that it serves, which
// is what is asked.
func (c *upstreamCheck) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, upstreamCheckTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.upstream.URL("/readyz", "").String(), nil)
	if err != nil {
		return err
	}
	resp, err := c.upstream.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 4096)
	if resp.StatusCode == http.StatusLoopDetected {
		return upstream.ErrLoop
	}
	if resp.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("kube-apiserver is not ready: %s", resp.Status)
	}
	return nil
}
