package http1

import (
	"net/http"
	"strings"

	"github.com/valyala/fasthttp"
	"golang.org/x/net/http/httpguts"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// readHead reads the head that fasthttp has read into x. It returns what is wrong with the head,
// nil if nothing is. fasthttp accepts heads that kube-apiserver's HTTP server rejects, and heads
// that two servers on the way might read differently. Such a request must not be forwarded: a proxy
// in front of this one may have seen another request in the same bytes.
//
// The target is a path, or a URL with one, and each % in the path begins an escape. The lines of
// the head are checked and taken as they came:
//
//	name            ":"  value  CRLF     a token, directly followed by the colon; not folded; no bare LF
//	Content-Length, Transfer-Encoding    one of them; the latter once and chunked
//	Content-Type                         once
//	Host                                 only characters that are valid in a host
//	Expect                               100-continue or nothing; left out of x
//	Connection                           names no header that identifies the client
//
// It allocates two strings, one for the target and one for all lines.
func readHead(h *fasthttp.RequestHeader, x *exchange.Exchange) *exchange.Refusal {
	x.Method, x.Target = usualMethods[string(h.Method())], string(h.RequestURI())
	if x.Method == "" {
		x.Method = string(h.Method())
	}
	if x.ContentLength = int64(h.ContentLength()); x.ContentLength < chunkedLength {
		x.ContentLength = 0
	}
	wrong := readRequestLine(h, x)
	if st := readLines(string(h.RawHeaders()), x); wrong == nil {
		wrong = st
	}
	x.Close = x.Close || h.ConnectionClose()
	return wrong
}

// usualMethods has the methods for which nothing is allocated.
var usualMethods = map[string]string{
	http.MethodGet:   http.MethodGet,
	http.MethodPost:  http.MethodPost,
	http.MethodPut:   http.MethodPut,
	http.MethodPatch: http.MethodPatch,
}

// readRequestLine reads the protocol and checks the method and the target.
func readRequestLine(h *fasthttp.RequestHeader, x *exchange.Exchange) *exchange.Refusal {
	switch string(h.Protocol()) {
	case "HTTP/1.1":
		x.Protocol = exchange.HTTP11
	case "HTTP/1.0":
		x.Protocol = exchange.HTTP10
	default:
		return &exchange.Refusal{Code: http.StatusHTTPVersionNotSupported,
			Message: "only HTTP/1.1 and HTTP/1.0 are served here; HTTP/2 has to be negotiated in TLS"}
	}
	if x.Method == http.MethodConnect {
		return exchange.NoConnect
	}
	if _, ok := exchange.CutTarget(x.Target); !ok {
		return exchange.BadTarget
	}
	return nil
}

// readLines reads the lines of a head into x, up to the first bad one.
func readLines(raw string, x *exchange.Exchange) *exchange.Refusal {
	lines := 0
	for line := range strings.Lines(raw) {
		line, whole := strings.CutSuffix(line, "\r\n")
		if !whole {
			return bareLineFeed
		}
		if line == "" {
			break
		}
		if lines++; lines > exchange.MaxHeaderLines {
			return exchange.HeadTooLong
		}
		name, value, _ := strings.Cut(line, ":")
		if len(name) == len(line) || !httpguts.ValidHeaderFieldName(name) {
			return exchange.BadRequest("a line of the request's header does not begin with a name and a colon")
		}
		value = strings.Trim(value, " \t")
		if st := checkField(x, name, value); st != nil {
			return st
		}
		if !exchange.SameName(name, "expect") {
			x.Header.Add(name, value)
		}
	}
	return nil
}

// checkField checks a line of which those before are in x.
func checkField(x *exchange.Exchange, name, value string) *exchange.Refusal {
	switch {
	case exchange.SameName(name, "host"):
		if !httpguts.ValidHostHeader(value) {
			return exchange.BadHost
		}
	case exchange.SameName(name, "expect"):
		if value != "" && !exchange.SameName(value, continueExpectation) {
			return &exchange.Refusal{Code: http.StatusExpectationFailed, Message: "only 100-continue can be expected here"}
		}
	case exchange.SameName(name, "connection"):
		return checkConnection(x, value)
	case exchange.SameName(name, "content-type"): // fasthttp takes the last one, kube-apiserver the first
		if x.Header.Has(name) {
			return exchange.TypeTwice
		}
	case exchange.SameName(name, "transfer-encoding") && !exchange.SameName(value, "chunked"):
		return badTransferEncoding
	case exchange.SameName(name, "content-length"), exchange.SameName(name, "transfer-encoding"):
		if x.Header.Has("Content-Length") || x.Header.Has("Transfer-Encoding") {
			return lengthTwice
		}
	}
	return nil
}

var (
	bareLineFeed        = exchange.BadRequest("a line of the request's header does not end in CRLF")
	lengthTwice         = exchange.BadRequest("the request says more than once how long its body is")
	badTransferEncoding = &exchange.Refusal{Code: http.StatusNotImplemented,
		Message: "only chunked is a transfer encoding here, once, in HTTP/1.1"}
)

// checkConnection reads one line of a Connection header. It records close, which fasthttp sees only
// if it is all of the last line. The named headers are not forwarded (RFC 9110, section 7.6.1).
// Headers that identify the client, or a user that it impersonates, must not get lost this way.
func checkConnection(x *exchange.Exchange, value string) *exchange.Refusal {
	for option := range strings.SplitSeq(value, ",") {
		switch option = strings.Trim(option, " \t"); {
		case exchange.SameName(option, "close"):
			x.Close = true
		case exchange.SameName(option, "authorization"), exchange.NameHasPrefix(option, "impersonate-"), exchange.NameHasPrefix(option, "x-remote-"),
			exchange.SameName(option, "x-forwarded-for"), exchange.SameName(option, "audit-id"):
			return exchange.BadRequest("the Connection header names one that is meant for the API server")
		}
	}
	return nil
}

// continueExpectation is the only defined expectation.
const continueExpectation = "100-continue"

// settleExpectation is fasthttp's HeaderReceived hook. fasthttp sends "100 Continue" only for
// 100-continue in lower case, and sends it even if there is no body. kube-apiserver's HTTP server
// accepts any case, and sends it only if there is a body. This hook does the same.
func settleExpectation(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	if expect := h.Peek(fasthttp.HeaderExpect); len(expect) > 0 {
		n := h.ContentLength()
		switch {
		case n == 0 || n == -2 || !h.IsHTTP11():
			h.Del(fasthttp.HeaderExpect)
		case exchange.SameName(string(expect), continueExpectation):
			h.Set(fasthttp.HeaderExpect, continueExpectation)
		}
	}
	return fasthttp.RequestConfig{}
}
