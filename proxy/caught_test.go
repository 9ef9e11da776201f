package proxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/watchfan/watchfan/fanout"
)

// panicker panics as soon as anything of it is used.
type panicker struct{ net.Conn }

func (panicker) Read([]byte) (int, error)  { panic("read") }
func (panicker) Write([]byte) (int, error) { panic("write") }
func (panicker) Close() error              { panic("close") }

// panickingRaw is a socket that panics.
type panickingRaw struct{}

func (panickingRaw) Control(func(uintptr)) error    { panic("control") }
func (panickingRaw) Read(func(uintptr) bool) error  { panic("read") }
func (panickingRaw) Write(func(uintptr) bool) error { panic("write") }

// A panic in what is done for one client, on whichever goroutine, ends that client's connection and nothing else: the stream of another
// client goes on, and new clients are served.
func TestPanicEndsItsClientAlone(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	var conns *connections
	server := frontServer(func(ctx *fasthttp.RequestCtx) {
		switch string(ctx.Path()) {
		case "/stream":
			conns.hijack(ctx, func(h *hijacked) {
				_, _ = io.Copy(h.Conn(), h.Conn()) // until the client has gone
				h.Close()
			})
		case "/taken-over":
			conns.hijack(ctx, func(*hijacked) { panic("in a hijacked exchange") })
		case "/list":
			ctx.Response.SetBodyStream(&bodyStream{conn: panicker{}, slices: bodySlices{[]byte("body")}, log: log}, 4)
		case "/passed":
			passthroughInFlight.Add(1) // which Close takes back
			ctx.Response.SetBodyStream(&responseBody{ReadCloser: panicker{}, conn: ctx.Conn(), request: &requestBody{conn: ctx.Conn()}, log: log}, 4)
		case "/closed":
			passthroughInFlight.Add(1)
			body := &responseBody{ReadCloser: panicker{}, conn: ctx.Conn(), request: &requestBody{conn: ctx.Conn()}, log: log}
			if err := body.Close(); !errors.Is(err, errPanicked) {
				t.Errorf("Close: %v", err)
			}
			ctx.SetConnectionClose()
		}
	}, log)
	conns = newConnections(server, 0, log)
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
	for _, path := range []string{"/taken-over", "/list", "/passed", "/closed"} {
		before := handlerPanics.Get()
		if _, err := io.ReadAll(dial(path)); errors.Is(err, context.DeadlineExceeded) || err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: the connection goes on", path)
		}
		if handlerPanics.Get() == before {
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

// net/http reads a request's body on its own goroutines: a panic there fails that request.
func TestPanicInRequestBody(t *testing.T) {
	c, other := net.Pipe()
	t.Cleanup(func() { c.Close(); other.Close() })
	b := &requestBody{conn: c, length: 4, stream: panicker{}, log: slog.New(slog.DiscardHandler)}
	if _, err := io.ReadAll(&bodyAttempt{body: b}); !errors.Is(err, errPanicked) {
		t.Errorf("%v, want %v", err, errPanicked)
	}
}

// The flusher's shards and the poller serve all watches: a panic in one watch's sink is that watch's error.
func TestPanicInSink(t *testing.T) {
	for _, polled := range []bool{true, false} {
		s, _, _, _ := sinkPair(t, sinkWay{polled: polled})
		s.log = slog.New(slog.DiscardHandler)
		if !polled {
			s.poller = nil
		}
		gone, dropped := make(chan bool, 4), make(chan bool, 4)
		s.gone, s.drop = func() { gone <- true }, func() { dropped <- true }
		s.raw = panickingRaw{}
		if blocked, err := s.Write([][]byte{[]byte("event")}); blocked || !errors.Is(err, errPanicked) {
			t.Errorf("Write: %t, %v", blocked, err)
		}
		drained := make(chan error, 1)
		s.Drain(func(err error) { drained <- err })
		if err := <-drained; !errors.Is(err, errPanicked) {
			t.Errorf("Drain: %v", err)
		}
		done := func(error) {}
		s.drained.Store(&done)
		s.writable()
		<-gone
		read := func() { panic("read") }
		s.read.Store(&read)
		s.readable()
		<-gone
		s.evicted = func(fanout.State) { panic("evicted") }
		s.Evicted(fanout.State{})
		s.ended = func(fanout.Reason, bool) { panic("ended") }
		s.End(fanout.Gone, false)
		<-dropped
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
