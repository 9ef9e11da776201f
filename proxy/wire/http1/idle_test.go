package http1

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
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
	server := newServer(t, func(x *exchange.Exchange) {
		x.Response.Header.Add("Content-Type", "text/plain")
		if x.Target == "/taken-over" {
			x.Response.Detached = func(to exchange.Responder) { to.Respond(new(exchange.Response)) }
		}
	}, account.New(account.Limits{}), maxAge)
	client, served := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ServeConn(served, nil)
	}()
	t.Cleanup(func() { client.Close(); <-done })
	r = bufio.NewReader(client)
	return func(path string) *http.Response {
		t.Helper()
		get(t, client, path)
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
