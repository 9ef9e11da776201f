package http1

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Protocol is the name of HTTP/1.1 in TLS.
const Protocol = "http/1.1"

// Server is fasthttp's server with the limits and conventions of kube-apiserver's HTTP server. Its
// methods may be called from any goroutine.
type Server struct {
	downstream.Base
	fast [len(headSizes)]*fasthttp.Server
}

// New returns a server.
func New(base downstream.Base) *Server {
	s := &Server{Base: base}
	for i, size := range headSizes {
		s.fast[i] = s.newFastServer(size)
	}
	return s
}

// newFastServer returns a server for heads of one size.
func (s *Server) newFastServer(size int) *fasthttp.Server {
	return &fasthttp.Server{
		ReadBufferSize:   size, // also the limit of a request's head
		DisableKeepalive: size == largeHead,

		Handler:        s.serve,
		HeaderReceived: settleExpectation,
		ExpectHandler:  s.expect,
		ErrorHandler:   s.unreadable,
		ConnState:      s.stateChanged,
		Logger:         fasthttpLogger{s.Guard.Log},

		ReadTimeout:  downstream.HeaderTimeout,
		WriteTimeout: downstream.StallTimeout, // not of streams; kube-apiserver's value
		IdleTimeout:  downstream.IdleTimeout,
		Concurrency:  1 << 20, // more than --max-connections may be

		StreamRequestBody:            true,
		DisablePreParseMultipartForm: true,
		KeepHijackedConns:            true,
		CloseOnShutdown:              true,

		NoDefaultServerHeader: true,
		NoDefaultContentType:  true,
		SecureErrorLogMessage: true, // heads hold tokens
	}
}

// Also makes connections whose TLS has negotiated another protocol be served by serve. serve gets the
// connection as the listener accepted it, and may block until the connection has ended. The server
// then closes the connection. Also must be called before Serve.
func (s *Server) Also(protocol string, serve func(net.Conn)) {
	s.fast[0].NextProto(protocol, func(c net.Conn) error {
		serve(accepted(c))
		return nil
	})
}

// Serve serves the connections that ln accepts, until Shutdown.
func (s *Server) Serve(ln net.Listener) error { return s.fast[0].Serve(frontListener{ln}) }

// ServeConn serves one connection until it is closed or taken over. kept are bytes that the client has
// sent already.
func (s *Server) ServeConn(c net.Conn, kept []byte) error {
	return s.fast[0].ServeConn(withKept(c, kept))
}

// Shutdown closes the listeners. It waits until fasthttp has no connection left or ctx ends.
func (s *Server) Shutdown(ctx context.Context) { _ = s.fast[0].ShutdownWithContext(ctx) }

// stateChanged is fasthttp's ConnState hook.
func (s *Server) stateChanged(c net.Conn, state fasthttp.ConnState) {
	read := keptOf(c)
	if read.taken {
		return
	}
	switch state {
	case fasthttp.StateNew:
		s.Conns.Opened(read.Conn)
	case fasthttp.StateActive:
		read.headBegun()
	case fasthttp.StateIdle:
		// fasthttp leaves the last response's write deadline in place. It would fail a later "100
		// Continue".
		_ = c.SetWriteDeadline(time.Time{})
		read.beginHead()
		s.Conns.Resting(read.Conn)
	case fasthttp.StateClosed:
		if read.broken != nil {
			read.broken() // it calls Closed
			return
		}
		s.Conns.Closed(read.Conn)
	}
	// StateActive comes before the first byte of a connection's first request, so handle calls Serving.
	// StateHijacked comes after the hijacking, when the connection's new owner may have
	// closed it already.
}

// serve is fasthttp's handler.
func (s *Server) serve(ctx *fasthttp.RequestCtx) {
	x := exchange.Take()
	defer x.Give()
	body := s.handle(ctx, x)
	if entry := keptOf(ctx.Conn()).entry; entry != nil && !x.Conn.Payer().Stranger {
		entry.Move(x.Conn.Payer())
	}
	s.respond(ctx, x, body)
	if body != nil && x.Response.Reader == nil {
		body.Own() // nobody reads it any more
	}
}

// handle calls the handler for a request whose head is good, and rejects other requests. body is
// the request's, nil for none. A panic of the handler ends the request only.
func (s *Server) handle(ctx *fasthttp.RequestCtx, x *exchange.Exchange) (body *requestBody) {
	defer s.Guard.Caught("request", func() {
		s.Refuse(x, exchange.Panicked)
		x.Response.Close = true
	})
	read := keptOf(ctx.Conn())
	read.endHead()
	conn := s.Conns.Serving(read.Conn)
	x.Conn, x.Received = conn, ctx.Time()
	if stream := ctx.RequestBodyStream(); stream != nil {
		body = &requestBody{conn: ctx.Conn(), client: conn, ledger: s.Ledger, stream: stream, length: ctx.Request.Header.ContentLength()}
		x.Body = body
	}
	if wrong := readHead(&ctx.Request.Header, x); wrong != nil {
		s.Malformed.Inc()
		s.Refuse(x, wrong)
		x.Response.Close = true // another server may see the end of the body elsewhere
		return body
	}
	defer conn.EndArrival()
	s.Handle(x)
	x.Response.Close = x.Response.Close || x.Close || conn.Last()
	return body
}

// expect is fasthttp's ExpectHandler. It rejects a request with a bad head before the client sends
// the body.
func (s *Server) expect(ctx *fasthttp.RequestCtx) (code int) {
	defer s.Guard.Caught("expectation", func() { code = http.StatusExpectationFailed })
	x := new(exchange.Exchange)
	wrong := readHead(&ctx.Request.Header, x)
	if wrong == nil {
		return http.StatusContinue
	}
	s.reject(ctx, x, wrong)
	return wrong.Code
}

// unreadable is fasthttp's ErrorHandler. It answers a request that fasthttp could not read. fasthttp
// then closes the connection.
func (s *Server) unreadable(ctx *fasthttp.RequestCtx, err error) {
	defer s.Guard.Caught("malformed request", nil) // the connection is closed anyway
	var tooLong *fasthttp.ErrSmallBuffer
	var network net.Error
	if errors.As(err, &network) && !network.Timeout() {
		return // the client is gone
	}
	if errors.As(err, &tooLong) && s.serveLonger(ctx.Conn()) {
		return // what fasthttp writes goes nowhere
	}
	wrong := exchange.BadRequest("the request could not be read as HTTP/1.1")
	switch {
	case errors.Is(err, errBareLineFeed):
		wrong = bareLineFeed
	case tooLong != nil:
		wrong = exchange.HeadTooLong
	case errors.Is(err, fasthttp.ErrUnsupportedTransferEncoding):
		wrong = badTransferEncoding
	case network != nil:
		wrong = &exchange.Refusal{Code: http.StatusRequestTimeout, Message: "the request did not arrive in time"}
	}
	x := new(exchange.Exchange)
	_ = readHead(&ctx.Request.Header, x) // as much as has come
	s.reject(ctx, x, wrong)
}

func (s *Server) reject(ctx *fasthttp.RequestCtx, x *exchange.Exchange, wrong *exchange.Refusal) {
	s.Malformed.Inc()
	s.Refuse(x, wrong)
	s.write(ctx, x)
}

// fasthttpLogger logs fasthttp's own messages, which are about single connections.
type fasthttpLogger struct{ log *slog.Logger }

// Printf replaces fasthttp's own errors. They quote the unreadable input, including tokens.
func (l fasthttpLogger) Printf(format string, args ...any) {
	for i, arg := range args {
		var network net.Error
		if err, ok := arg.(error); ok && !errors.As(err, &network) {
			args[i] = "the request could not be read"
		}
	}
	l.log.Debug("Connection failed", "err", fmt.Sprintf(format, args...))
}
