package http1

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const goodHead = "GET /api/v1/namespaces/default/pods?limit=500&resourceVersion=0 HTTP/1.1\r\nHost: 10.96.0.1:443\r\n" +
	"User-Agent: kubelet/v1.36.3 (linux/amd64) kubernetes/abcdef0\r\nAccept: application/vnd.kubernetes.protobuf,application/json\r\n" +
	"Authorization: Bearer aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nAccept-Encoding: gzip\r\n\r\n"

// fasthttpHead is a head that fasthttp has read.
func fasthttpHead(t testing.TB, raw string) *fasthttp.RequestHeader {
	t.Helper()
	h := new(fasthttp.RequestHeader)
	if err := h.Read(bufio.NewReaderSize(strings.NewReader(raw), exchange.MaxHeaderBytes)); err != nil {
		t.Fatalf("fasthttp itself refuses %.60q: %v", raw, err)
	}
	return h
}

// What fasthttp lets pass, and we do not. What it refuses itself is in proxy/suites/e2e's attacks_test.go.
func TestReadHead(t *testing.T) {
	post := "POST / HTTP/1.1\r\nHost: h\r\n"
	for name, c := range map[string]struct {
		raw  string
		code int // 0 is good
	}{
		"plain":                  {goodHead, 0},
		"no headers":             {"GET / HTTP/1.0\r\n\r\n", 0},
		"length":                 {post + "Content-Length: 2\r\n\r\n", 0},
		"chunked":                {post + "transfer-encoding:\t Chunked \r\n\r\n", 0},
		"expectation":            {post + "Expect: 100-Continue\r\nContent-Length: 2\r\n\r\n", 0},
		"options":                {post + "Connection: keep-alive, Upgrade,, X-Mine\r\n\r\n", 0},
		"absolute":               {"GET http://h/a%2fb?c=%zz HTTP/1.1\r\nHost: h\r\n\r\n", 0},
		"absolute, no path":      {"GET http://h?c HTTP/1.1\r\nHost: h\r\n\r\n", 400},
		"asterisk":               {"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", 400},
		"bad escape":             {"GET /a%2g HTTP/1.1\r\nHost: h\r\n\r\n", 400},
		"half an escape":         {"GET /a%2?b HTTP/1.1\r\nHost: h\r\n\r\n", 400},
		"HTTP/1.2":               {"GET / HTTP/1.2\r\nHost: h\r\n\r\n", 505},
		"HTTP/2 preface":         {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
		"CONNECT":                {"CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n", 405},
		"bare LF":                {"GET / HTTP/1.1\r\nHost: h\nA: b\r\n\r\n", 400},
		"bare LF at the end":     {"GET / HTTP/1.1\r\nHost: h\n\n\r\n\r\n", 400},
		"folded":                 {post + "A: b\r\n c\r\n\r\n", 400},
		"folded length":          {post + "Content-Length:\r\n 2\r\n\r\n", 400},
		"folded token":           {post + "Authorization: Bearer\r\n\tx\r\n\r\n", 400},
		"space in a name":        {post + "Transfer Encoding: chunked\r\n\r\n", 400},
		"length and chunked":     {post + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
		"chunked and length":     {post + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n", 400},
		"two types":              {post + "Content-Type: a\r\nContent-Type: a\r\n\r\n", 400},
		"identity":               {post + "Transfer-Encoding: identity\r\n\r\n", 501},
		"host of two":            {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
		"host with a path":       {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
		"host with a user":       {"GET / HTTP/1.1\r\nHost: localhost@evil\r\n\r\n", 400},
		"odd expectation":        {post + "Expect: 200-ok\r\n\r\n", 417},
		"lost token":             {post + "Connection: close, authorization\r\n\r\n", 400},
		"lost user":              {post + "Connection: Impersonate-User\r\n\r\n", 400},
		"lost extra":             {post + "Connection: keep-alive,impersonate-Extra-a\r\n\r\n", 400},
		"lost address":           {post + "Connection: X-Forwarded-For\r\n\r\n", 400},
		"lost front proxy's say": {post + "Connection: X-Remote-Group\r\n\r\n", 400},
		"many lines":             {post + strings.Repeat("A: b\r\n", exchange.MaxHeaderLines-1) + "\r\n", 0},
		"too many lines":         {post + strings.Repeat("A: b\r\n", exchange.MaxHeaderLines) + "\r\n", 431},
	} {
		t.Run(name, func(t *testing.T) {
			st := readHead(fasthttpHead(t, c.raw), new(exchange.Exchange))
			switch {
			case st == nil && c.code != 0:
				t.Errorf("it is taken, want %d", c.code)
			case st != nil && st.Code != c.code:
				t.Errorf("got %d %s, want %d", st.Code, st.Message, c.code)
			}
		})
	}
}

// Fasthttp sees close only as all of the last Connection line.
func TestReadHeadClose(t *testing.T) {
	for connection, want := range map[string]bool{
		"Connection: Close":                               true,
		"Connection: keep-alive, CLOSE":                   true,
		"Connection: close\r\nConnection: keep-alive":     true,
		"Connection: keep-alive":                          false,
		"Connection: closed":                              false,
		"Connection: keep-alive\r\nX-Connection: close":   false,
		"Connection:\r\nConnection: \t close\t\r\nA: b":   true,
		"Connection: Upgrade , close\r\nUpgrade: SPDY/99": true,
	} {
		x := new(exchange.Exchange)
		h := fasthttpHead(t, "GET / HTTP/1.1\r\nHost: h\r\n"+connection+"\r\n\r\n")
		if st := readHead(h, x); st != nil {
			t.Errorf("%q: %s", connection, st.Message)
		}
		if got := x.Close; got != want {
			t.Errorf("%q: close is %t, want %t", connection, got, want)
		}
	}
}

// FuzzReadHead: what is taken, Go's own server takes too, and sees the same length of body and the same header.
func FuzzReadHead(f *testing.F) {
	for _, lines := range []string{"", "A: b", "A : b", "A: b\n c: d", "Content-Length: 1", "Content-Length: 1\r\nTransfer-Encoding: chunked", "Connection: close",
		"Connection: x,close", "Transfer-Encoding: identity", "A:\r\n b", "A:\tb\t", "A: \xff", "Expect: 100-CONTINUE", "Cookie: a=b\r\nCookie: c", "Host: b", "\u212aey: v", "Trailer: A"} {
		f.Add(lines)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		raw := "POST /x HTTP/1.1\r\nHost: h\r\n" + lines + "\r\n\r\n"
		h, x := new(fasthttp.RequestHeader), new(exchange.Exchange)
		if err := h.Read(bufio.NewReaderSize(strings.NewReader(raw), exchange.MaxHeaderBytes)); err != nil || readHead(h, x) != nil {
			return
		}
		req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
		if err != nil {
			t.Fatalf("Go refuses %q: %v", raw, err)
		}
		if got, want := x.ContentLength, req.ContentLength; got != want {
			t.Errorf("%q has a body of %d bytes, for Go one of %d", raw, got, want)
		}
		if got, want := x.Close, req.Close; got != want {
			t.Errorf("%q closes the connection: %t, for Go %t", raw, got, want)
		}
		for _, name := range []string{"Authorization", auth.ImpersonateUser, "X-Remote-User"} {
			if got := x.Header.Get(name); got != req.Header.Get(name) {
				t.Errorf("%q has %s %q, for Go %q", raw, name, got, req.Header.Get(name))
			}
		}
	})
}

// The lines of a head are looked at and taken without an allocation. Its target and its lines are
// copied, each at once.
func TestReadHeadAllocs(t *testing.T) {
	h, x := fasthttpHead(t, goodHead), new(exchange.Exchange)
	if got := testing.AllocsPerRun(100, func() {
		x.Reset()
		if readHead(h, x) != nil {
			t.Fatal("refused")
		}
	}); got > 2 {
		t.Errorf("%v allocations for a good head", got)
	}
	lines := string(h.RawHeaders())
	if got := testing.AllocsPerRun(100, func() {
		x.Reset()
		if readLines(lines, x) != nil {
			t.Fatal("refused")
		}
	}); got > 0 {
		t.Errorf("%v allocations for good lines", got)
	}
}
