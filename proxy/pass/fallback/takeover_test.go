package fallback

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
)

// running runs a fall-back. end ends it.
func running(t *testing.T, f *Fallback) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { f.Run(ctx, 8443) })
	end = func() { cancel(); run.Wait() }
	t.Cleanup(end)
	return end
}

// A fall-back has the port of another watchfan while that one does not listen on it, and leaves it when
// the other is ready again. Neither is in the way of the other.
func TestTakeover(t *testing.T) {
	var ready atomic.Bool
	readyz := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ready.Load() && r.URL.Path == "/" { // another program in its place
			http.Redirect(w, r, "/ready", http.StatusFound)
		}
	}))
	defer readyz.Close()
	defer neighbour.CloseIdleConnections()
	serve := func(ln net.Listener, name string) {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, name)
			c.Close()
		}
	}
	open := func(address string) net.Listener {
		ln, err := downstream.ListenShared(address)
		if err != nil {
			t.Fatal(err)
		}
		go serve(ln, "other")
		return ln
	}
	other := open("127.0.0.1:0")
	address := other.Addr().String()
	opts := Options{FallbackFor: readyz.URL, FallbackWatchRate: 1}
	f := New(&opts, nil, new(crowd), metrics.NewSet(), slog.New(slog.DiscardHandler))
	ln, err := f.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		serve(ln, "fall-back")
	}()
	running(t, f)
	answer := func() string {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return ""
		}
		defer c.Close()
		name, _ := io.ReadAll(c)
		return string(name)
	}
	for range 3 {
		for range 20 {
			if got := answer(); got != "other" {
				t.Fatalf("got an answer of %q while the other has the port", got)
			}
		}
		ready.Store(false)
		other.Close()
		steady.UntilTrue(t, "answer of the fall-back", func() bool { return answer() == "fall-back" })
		other = open(address) // it is not ready yet
		ready.Store(true)
		steady.UntilTrue(t, "release of the port", func() bool { return !f.takeover.holds() })
	}
	other.Close()
	ln.Close()
	<-served
}
