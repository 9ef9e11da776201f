package e2e_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// watchfan is a running watchfan.
type watchfan struct {
	*proxytest.Watchfan
	own *cluster // whose admin watchfan is; nil if it is somebody else
}

// privateWatchfan starts a watchfan for one test.
func privateWatchfan(t *testing.T, c *cluster, args ...string) *watchfan {
	t.Helper()
	p := runWatchfan(t, binary(t, "WATCHFAN_BIN", "watchfan"), c.Ready.Kubeconfigs["admin"], args...)
	p.own = c
	return p
}

// watchfanAs starts a watchfan for one test with a kubeconfig.
func watchfanAs(t *testing.T, kubeconfig string, args ...string) *watchfan {
	t.Helper()
	return runWatchfan(t, binary(t, "WATCHFAN_BIN", "watchfan"), kubeconfig, args...)
}

func runWatchfan(t *testing.T, program, kubeconfig string, args ...string) *watchfan {
	t.Helper()
	p, err := startWatchfan(program, t.TempDir(), kubeconfig, args...)
	if err != nil {
		t.Fatalf("start watchfan: %v", err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("watchfan's log:\n%s", proxytest.Tail(p.Log, 60))
		}
	})
	return p
}

// mortalWatchfan starts a watchfan that the test kills.
func mortalWatchfan(t *testing.T, program string, c *cluster, args ...string) *watchfan {
	t.Helper()
	p, err := startWatchfan(program, t.TempDir(), c.Ready.Kubeconfigs["admin"], args...)
	if err != nil {
		t.Fatalf("start watchfan: %v", err)
	}
	t.Cleanup(p.kill)
	return p
}

func (p *watchfan) kill() {
	_ = p.Cmd.Process.Kill()
	<-p.Exited
}

// startWatchfan starts a watchfan whose reads wait longer for a proof than a busy machine needs: by
// default they pass through after 3 s, and then a slow machine would decide which path a test takes.
func startWatchfan(program, dir, kubeconfig string, args ...string) (*watchfan, error) {
	p, err := proxytest.StartWatchfan(program, dir, kubeconfig, steady.Patience,
		append([]string{"--freshness-timeout=2m"}, args...)...)
	if err != nil {
		return nil, err
	}
	return &watchfan{Watchfan: p}, nil
}

// awaitExit waits until p has ended.
func (p *watchfan) awaitExit(t testing.TB) {
	t.Helper()
	patience, cancel := context.WithTimeout(context.Background(), steady.Patience)
	defer cancel()
	select {
	case <-p.Exited:
	case <-patience.Done():
		t.Fatal("watchfan has not exited")
	}
}

// plain returns the way through the insecure port. With -http2 it is the TLS port instead, as the
// same user.
func (p *watchfan) plain(t testing.TB) *target {
	t.Helper()
	if *overHTTP2 && p.own != nil {
		return p.secure(t, p.own.token(t, "admin"))
	}
	d := newTarget("watchfan", "http://"+p.Ports.Insecure, nil)
	t.Cleanup(d.close)
	return d
}

// needsPlain skips a test with -http2 that is about the insecure port or its identity, or that counts
// reviews of tokens.
func needsPlain(t testing.TB) {
	t.Helper()
	if *overHTTP2 {
		t.Skip("this test needs the insecure port")
	}
}

// secure returns the way through the TLS port with a token; "" is none.
func (p *watchfan) secure(t testing.TB, token string) *target {
	t.Helper()
	d := newTarget("watchfan/tls", "https://"+p.Ports.Secure, &tls.Config{InsecureSkipVerify: true})
	d.token = token
	t.Cleanup(d.close)
	return d
}

// ways returns the ways through both ports, with a token through the TLS port: HTTP/1.1 through
// each, and HTTP/2.
func (p *watchfan) ways(t testing.TB, token string) []*target {
	t.Helper()
	secure := p.secure(t, token)
	http2 := secure.http2()
	t.Cleanup(http2.close)
	return []*target{p.plain(t), secure, http2}
}

// admin returns the way to the admin port.
func (p *watchfan) admin(t testing.TB) *target {
	t.Helper()
	d := newTarget("watchfan/admin", "http://"+p.Ports.Admin, nil)
	t.Cleanup(d.close)
	return d
}

// waitReady waits until /readyz is ok.
func (p *watchfan) waitReady(t testing.TB) {
	t.Helper()
	admin := p.admin(t)
	steady.Until(t, "answer of /readyz", func() error {
		resp, err := admin.try(http.MethodGet, "/readyz", nil, "")
		if err == nil && resp.status != http.StatusOK {
			err = fmt.Errorf("%d: %s", resp.status, resp.body)
		}
		return err
	})
}

// awaitWatchers waits until n watches are served from the cache of the watchfan whose admin port d
// leads to.
func (d *target) awaitWatchers(t testing.TB, n int) {
	t.Helper()
	steady.Until(t, "right number of watchers", func() error {
		if got := d.metric(t, "watchfan_watchers"); got != float64(n) {
			return fmt.Errorf("%v, want %d", got, n)
		}
		return nil
	})
}
