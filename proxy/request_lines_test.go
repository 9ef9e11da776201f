package proxy

import (
	"bufio"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

// read returns the context of a request as fasthttp reads it from a connection. A request line without
// a method and a protocol is a GET.
func read(line string, headers ...string) (*fasthttp.RequestCtx, error) {
	if !strings.Contains(line, " ") {
		line = "GET " + line + " HTTP/1.1"
	}
	raw := line + "\r\nHost: h\r\n"
	for _, h := range headers {
		raw += h + "\r\n"
	}
	ctx := new(fasthttp.RequestCtx)
	return ctx, ctx.Request.Read(bufio.NewReader(strings.NewReader(raw + "\r\n")))
}

// mustRead is read for a request that can be read.
func mustRead(t testing.TB, line string, headers ...string) *fasthttp.RequestCtx {
	t.Helper()
	ctx, err := read(line, headers...)
	if err != nil {
		t.Fatalf("read %q %q: %v", line, headers, err)
	}
	return ctx
}

// mustParse parses a request that is recognised.
func mustParse(t testing.TB, line string, headers ...string) *request {
	t.Helper()
	req, ok := parseRequest(mustRead(t, line, headers...))
	if !ok {
		t.Fatalf("%s %q: not recognised", line, headers)
	}
	return req
}
