package downstream

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/valyala/fasthttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/apistatus"
	"github.com/watchfan/watchfan/proxy/request"
)

// Limits for every client.
const (
	HeaderTimeout = 32 * time.Second // for a request's head; kube-apiserver's ReadHeaderTimeout
	IdleTimeout   = 90 * time.Second // between requests; kube-apiserver's

	// StallTimeout is how long one write to a client, or one read of its request's body, may take
	// without any progress.
	StallTimeout = 60 * time.Second

	// maxHeaderBytes bounds a request's head, and is the size of a connection's buffer.
	// Kube-apiserver's is 1 MiB. Tokens have a few KiB. Lists of groups and selectors are the
	// longest headers, and none is known that comes near.
	maxHeaderBytes = 64 << 10
)

// FrontServer is fasthttp's server with the limits and the manners of kube-apiserver.
func FrontServer(handler fasthttp.RequestHandler, log *slog.Logger) *fasthttp.Server {
	return &fasthttp.Server{
		Handler:        handler,
		HeaderReceived: settleExpectation,
		ExpectHandler: func(ctx *fasthttp.RequestCtx) (code int) {
			defer request.Caught(log, "expectation", func() { code = http.StatusExpectationFailed })
			return refuseBody(ctx)
		},
		ErrorHandler: func(ctx *fasthttp.RequestCtx, err error) {
			defer request.Caught(log, "malformed request", nil) // the connection is closed anyway
			rejectMalformed(ctx, err)
		},
		Logger: FasthttpLogger{log},

		ReadBufferSize: maxHeaderBytes, // also the limit of a request's head
		ReadTimeout:    HeaderTimeout,
		WriteTimeout:   StallTimeout, // for a response that is not streamed; kube-apiserver's --request-timeout
		IdleTimeout:    IdleTimeout,
		Concurrency:    1 << 20, // more than --max-connections may be

		StreamRequestBody:            true,
		DisablePreParseMultipartForm: true,
		KeepHijackedConns:            true,
		CloseOnShutdown:              true,

		NoDefaultServerHeader: true,
		NoDefaultContentType:  true,
		SecureErrorLogMessage: true, // heads hold tokens
	}
}

// rejectMalformed answers a request that fasthttp could not read; it closes the connection
// afterwards.
func rejectMalformed(ctx *fasthttp.RequestCtx, err error) {
	var tooLong *fasthttp.ErrSmallBuffer
	var network net.Error
	if errors.As(err, &network) && !network.Timeout() {
		return // the client is gone
	}
	RejectedMalformed.Inc()
	switch {
	case errors.As(err, &tooLong):
		apistatus.Write(ctx, apistatus.Failure(http.StatusRequestHeaderFieldsTooLarge, metav1.StatusReasonUnknown,
			fmt.Sprintf("the request's header is longer than %d bytes", maxHeaderBytes)))
	case errors.Is(err, fasthttp.ErrUnsupportedTransferEncoding):
		apistatus.Write(ctx, unsupportedTransferEncoding())
	case network != nil:
		apistatus.Write(ctx, apistatus.Failure(http.StatusRequestTimeout, metav1.StatusReasonTimeout, "the request did not arrive in time"))
	default:
		apistatus.Write(ctx, apistatus.BadRequest("the request could not be read as HTTP/1.1"))
	}
}

// FasthttpLogger takes fasthttp's own lines, which are about single connections.
type FasthttpLogger struct{ Log *slog.Logger }

// Printf leaves out fasthttp's own errors, which quote what it could not read, tokens included.
func (l FasthttpLogger) Printf(format string, args ...any) {
	for i, arg := range args {
		var network net.Error
		if err, ok := arg.(error); ok && !errors.As(err, &network) {
			args[i] = "the request could not be read"
		}
	}
	l.Log.Debug("Connection failed", "err", fmt.Sprintf(format, args...))
}

// DiscardBody reads what is left of a body, if that is little and comes soon, and reports whether
// that was all of it. Closing a connection with unread bytes resets it, and the client may lose the
// response.
func DiscardBody(c net.Conn, stream io.Reader) (all bool) {
	_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	n, err := io.CopyN(io.Discard, stream, 256<<10)
	return err == io.EOF && n < 256<<10
}
