package http1

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// panicker panics as soon as anything of it is used.
type panicker struct{ net.Conn }

func (panicker) Read([]byte) (int, error)  { panic("read") }
func (panicker) Write([]byte) (int, error) { panic("write") }
func (panicker) Close() error              { panic("close") }

// panickingStream panics when it begins.
type panickingStream struct{ exchange.Stream }

func (panickingStream) Begin(fanout.Sink)       { panic("begin") }
func (panickingStream) End(fanout.Reason, bool) {}

// panickingBody panics as soon as anything of it is used.
type panickingBody struct{}

func (panickingBody) Read([]byte) (int, error) { panic("read") }
func (panickingBody) Close() error             { panic("close") }

// fasthttp uses a response's body beside others: a panic there fails that response.
func TestPanicInResponseBody(t *testing.T) {
	slices := &slicesBody{conn: panicker{}, slices: exchange.BodySlices{[]byte("body")}, guard: proxytest.Guard()}
	c, other := net.Pipe()
	t.Cleanup(func() { c.Close(); other.Close() })
	reader := &responseBody{ReadCloser: panickingBody{}, conn: c, request: &requestBody{conn: c}, guard: proxytest.Guard()}
	_, inSlices := slices.WriteTo(io.Discard)
	_, inReader := reader.WriteTo(io.Discard)
	for _, err := range []error{inSlices, inReader, reader.Close()} {
		if !errors.Is(err, exchange.ErrPanicked) {
			t.Errorf("%v, want %v", err, exchange.ErrPanicked)
		}
	}
}

// A panic in what is done for one client, on whichever goroutine, ends that client's connection and
// nothing else: the stream of another client goes on, and new clients are served.
func TestPanicEndsItsClientAlone(t *testing.T) {
	guard := proxytest.Guard()
	connect := startServer(t, guard, func(x *exchange.Exchange) {
		switch x.Target {
		case "/stream":
			x.Response.Detached = func(to exchange.Responder) {
				client, err := to.Upgrade(&exchange.Response{})
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(client, client) // until the client has gone
			}
		case "/taken-over":
			x.Response.Detached = func(exchange.Responder) { panic("in a response that lasts") }
		case "/watch":
			x.Response.Stream = panickingStream{}
		case "/passed":
			x.Response.Reader, x.Response.Length = panickingBody{}, 4
		case "/handler":
			panic("in the handler")
		}
	}, false)
	dial := func(path string) net.Conn {
		c := connect()
		get(t, c, path)
		return c
	}
	honest := dial("/stream")
	if head, err := http.ReadResponse(bufio.NewReader(io.LimitReader(honest, int64(len("HTTP/1.1 101 Switching Protocols\r\n\r\n")))), nil); err != nil || head.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("an upgrade is answered with %v, %v", head, err)
	}
	echo := make([]byte, 1)
	for _, path := range []string{"/taken-over", "/watch", "/passed", "/handler"} {
		before := guard.Panics.Get()
		if _, err := io.ReadAll(dial(path)); errors.Is(err, context.DeadlineExceeded) || err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: the connection goes on", path)
		}
		if guard.Panics.Get() == before {
			t.Errorf("%s: the panic was not counted", path)
		}
		if _, err := honest.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(honest, echo); err != nil {
			t.Fatalf("%s: another client's stream: %v", path, err)
		}
	}
}
