package downstream

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/watchfan/watchfan/proxy/request"
)

// panicker panics as soon as anything of it is used.
type panicker struct{ net.Conn }

func (panicker) Read([]byte) (int, error)  { panic("read") }
func (panicker) Write([]byte) (int, error) { panic("write") }
func (panicker) Close() error              { panic("close") }

// A panic in what is done for one client, on whichever goroutine, ends that client's connection and
// nothing else: the stream of another client goes on, and new clients are served.
func TestPanicEndsItsClientAlone(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	var conns *Connections
	server := FrontServer(func(ctx *fasthttp.RequestCtx) {
		switch string(ctx.Path()) {
		case "/stream":
			conns.Hijack(ctx, func(h *Hijacked) {
				_, _ = io.Copy(h.Conn(), h.Conn()) // until the client has gone
				h.Close()
			})
		case "/taken-over":
			conns.Hijack(ctx, func(*Hijacked) { panic("in a hijacked exchange") })
		case "/list":
			ctx.Response.SetBodyStream(&bodyStream{conn: panicker{}, slices: BodySlices{[]byte("body")}, log: log}, 4)
		}
	}, log)
	conns = NewConnections(server, 0, log)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	defer func() {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = server.ShutdownWithContext(ctx)
		<-served
	}()
	dial := func(path string) net.Conn {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		return c
	}
	honest := dial("/stream")
	echo := make([]byte, 1)
	for _, path := range []string{"/taken-over", "/list"} {
		before := request.HandlerPanics.Get()
		if _, err := io.ReadAll(dial(path)); errors.Is(err, context.DeadlineExceeded) || err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: the connection goes on", path)
		}
		if request.HandlerPanics.Get() == before {
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
