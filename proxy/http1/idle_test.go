package http1

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/account"
	"github.com/watchfan/watchfan/proxy/downstream"
	"github.com/watchfan/watchfan/proxy/exchange"
	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// A connection waits for a next request for the idle timeout, also after a response that has taken
// it over, and not for the time that a head may take. Then it is closed without an answer.
func TestIdleAfterTakeOver(t *testing.T) {
	for _, path := range []string{"/ordinary", "/taken-over"} {
		t.Run(path[1:], func(t *testing.T) { synctest.Test(t, func(t *testing.T) { idle(t, path) }) })
	}
}

func idle(t *testing.T, path string) {
	ask, r := converse(t, 0)
	ask(path)
	time.Sleep(2 * downstream.HeaderTimeout)
	ask("/version")
	ask(path)
	began := time.Now()
	rest, err := io.ReadAll(r)
	if waited := time.Since(began); waited != downstream.IdleTimeout || len(rest) > 0 || err != nil {
		t.Errorf("the idle connection ends after %v with %q, %v, want the end after %v", waited, rest, err, downstream.IdleTimeout)
	}
}

// converse opens a connection with a maximum age, within a bubble. ask sends a request and returns the
// head of its response.
func converse(t *testing.T, maxAge time.Duration) (ask func(path string) *http.Response, r *bufio.Reader) {
	t.Helper()
	server, err := New(func(x *exchange.Exchange) {
		x.Response.Header.Add("Content-Type", "text/plain")
		if x.Target == "/taken-over" {
			x.Response.Detached = func(to exchange.Responder) { to.Respond(new(exchange.Response)) }
		}
	}, account.New(account.Limits{}), downstream.NewConnections(maxAge, account.New(account.Limits{})), nil, NewMetrics(metrics.NewSet()), proxytest.Guard())
	if err != nil {
		t.Fatal(err)
	}
	client, served := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ServeConn(served)
	}()
	t.Cleanup(func() { client.Close(); <-done })
	r = bufio.NewReader(client)
	return func(path string) *http.Response {
		t.Helper()
		if _, err := io.WriteString(client, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("GET %s: got %v, %v, want 200", path, resp, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp
	}, r
}

// At its maximum age, give or take a tenth, a connection's next answer says Connection: close, and the
// connection ends.
func TestMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const age = time.Minute
		ask, r := converse(t, age)
		began := time.Now()
		for !ask("/ordinary").Close {
			time.Sleep(time.Second)
		}
		if took := time.Since(began); took < age*9/10 || took > age*11/10+time.Second {
			t.Errorf("the connection was too old after %s", took)
		}
		if rest, err := io.ReadAll(r); len(rest) > 0 || err != nil {
			t.Errorf("behind the last answer: %q, %v", rest, err)
		}
	})
}

// A new connection that brings nothing is closed without an answer.
func TestSilentConnection(t *testing.T) {
	server, err := New(func(*exchange.Exchange) {}, account.New(account.Limits{}), downstream.NewConnections(0, account.New(account.Limits{})), nil, NewMetrics(metrics.NewSet()), proxytest.Guard())
	if err != nil {
		t.Fatal(err)
	}
	server.SetHeaderTimeout(100 * time.Millisecond)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	defer func() { server.Shutdown(t.Context()); <-done }()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_ = client.SetDeadline(time.Now().Add(steady.Patience))
	if got, err := io.ReadAll(client); len(got) > 0 || err != nil {
		t.Errorf("got %q, %v, want nothing", got, err)
	}
}
