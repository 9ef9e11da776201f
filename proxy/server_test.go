package proxy_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// When the proxy stops, it first says for a while that it is not ready, and serves all. Then streams end.
func TestShutdownDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = 5 * time.Second
		up := proxytest.NewBubbleServer(t)
		p := bubble.Start(t, up, func(o *proxy.Options) { o.ShutdownDelayDuration = delay })
		up.OnClients(func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			if strings.HasSuffix(r.URL.Path, "/log") {
				<-r.Context().Done()
			}
		})
		log := p.Send(bubble.Request{Target: "/api/v1/namespaces/ns/pods/web/log?follow=true"})
		go p.Stop()
		time.Sleep(delay - 1)
		if resp, body := p.Admin("/readyz"); resp.StatusCode != http.StatusInternalServerError || !strings.Contains(body, "[-]shutdown failed") {
			t.Errorf("while stopping got %s %s", resp.Status, body)
		}
		if resp, _ := p.Get("/version"); resp.StatusCode != http.StatusOK {
			t.Errorf("while stopping got %s", resp.Status)
		}
		var took time.Duration
		began := time.Now()
		if _, err := io.ReadAll(log.Response().Body); err != io.ErrUnexpectedEOF {
			t.Errorf("the log ended with %v, want an unexpected EOF", err)
		}
		if took = time.Since(began); took != 1 {
			t.Errorf("the log ended %s after the delay", took-1)
		}
	})
}

// When the proxy stops, idle connections close, and a request that is being answered is answered to its
// end. Nothing is left.
func TestShutdown(t *testing.T) {
	up := proxytest.NewServer(t)
	f := startFan(t, up, func(o *proxy.Options) { o.ShutdownTimeout = 2 * proxytest.Patience })
	came, release := make(chan struct{}), make(chan struct{})
	up.OnClients(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(came)
			<-release
		}
		io.WriteString(w, "done")
	})
	slow, idle, silent := f.dial(f.insecure), f.dial(f.insecure), f.dial(f.insecure)
	const tail = " HTTP/1.1\nHost: localhost\nUser-Agent: " + proxytest.ClientAgent + "\n\n"
	idle.send("GET /version" + tail)
	idle.response()
	slow.send("GET /slow" + tail)
	<-came
	stopped := make(chan struct{})
	go func() { f.stop(); close(stopped) }()
	for _, c := range []*rawConn{idle, silent} {
		if n, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("an idle connection brings %d bytes, %v", n, err)
		}
	}
	close(release)
	if resp, body := slow.response(); body != "done" || !resp.Close {
		t.Errorf("got %q, Connection %v", body, resp.Header)
	}
	steady.Receive(t, "end of the proxy", stopped)
	awaitGoroutines(t)
}

// The admin port shows whether upstream is there, the server's own metrics and the process's, and
// profiles. Pages of other hosts get none of it, nor anything of the insecure port.
func TestPages(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		synctest.Wait()
		if resp, body := p.Admin("/readyz?verbose"); resp.StatusCode != http.StatusOK || !strings.HasPrefix(body, "[+]ping ok\n") ||
			!strings.Contains(body, "[+]upstream ok\n") || !strings.HasSuffix(body, "readyz check passed\n") {
			t.Errorf("/readyz: got %s %s", resp.Status, body)
		}
		if _, body := p.Admin("/metrics"); !strings.Contains(body, "watchfan_passthrough_requests_in_flight 0\n") || !strings.Contains(body, "go_goroutines") {
			t.Errorf("/metrics: got %s", body)
		}
		for page, code := range map[string]int{"/livez": 200, "/debug/pprof/heap": 200, "/other": 404, "/statusz": 200, "/debug/lanes": 200} {
			if resp, _ := p.Admin(page); resp.StatusCode != code {
				t.Errorf("%s: got %s", page, resp.Status)
			}
			if resp, _ := p.Admin(page, "Host", "pages.example"); resp.StatusCode != http.StatusForbidden {
				t.Errorf("%s of another host: got %s", page, resp.Status)
			}
		}
		if resp, _ := p.Get("/version", "Host", "pages.example"); resp.StatusCode != http.StatusForbidden {
			t.Errorf("the insecure port of another host: %s", resp.Status)
		}
		p.Passed(0)
	})
}
