package proxytest

import (
	"bufio"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

// ReadRequest returns the context of a request as fasthttp reads it from a connection. A line
// without a method and a protocol is a GET.
func ReadRequest(line string, headers ...string) (*fasthttp.RequestCtx, error) {
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

// MustRead is ReadRequest for a request that can be read.
func MustRead(t testing.TB, line string, headers ...string) *fasthttp.RequestCtx {
	t.Helper()
	ctx, err := ReadRequest(line, headers...)
	if err != nil {
		t.Fatalf("read %q %q: %v", line, headers, err)
	}
	return ctx
}

// MustParse returns the result of parse for a request that it recognises.
func MustParse[T any](t testing.TB, parse func(*fasthttp.RequestCtx) (T, bool), line string, headers ...string) T {
	t.Helper()
	req, ok := parse(MustRead(t, line, headers...))
	if !ok {
		t.Fatalf("%s %q: not recognised", line, headers)
	}
	return req
}
