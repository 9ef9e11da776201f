package proxytest

import (
	"bufio"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// ReadRequest returns a request as a connection without TLS brings it. A request line without a
// method and a protocol is a GET. An error says that fasthttp does not read it.
func ReadRequest(line string, headers ...string) (*exchange.Exchange, error) {
	if !strings.Contains(line, " ") {
		line = "GET " + line + " HTTP/1.1"
	}
	raw := line + "\r\nHost: h\r\n"
	for _, h := range headers {
		raw += h + "\r\n"
	}
	var req fasthttp.Request
	if err := req.Read(bufio.NewReaderSize(strings.NewReader(raw+"\r\n"), 64<<10)); err != nil {
		return nil, err
	}
	x := &exchange.Exchange{
		Method:   string(req.Header.Method()),
		Target:   string(req.Header.RequestURI()),
		Protocol: exchange.HTTP10,
		Close:    req.Header.ConnectionClose(),
		Conn:     Conn{},
	}
	if n := req.Header.ContentLength(); n >= -1 {
		x.ContentLength = int64(n)
	}
	if req.Header.IsHTTP11() {
		x.Protocol = exchange.HTTP11
	}
	for line := range strings.SplitSeq(string(req.Header.RawHeaders()), "\r\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			x.Header.Add(name, strings.Trim(value, " \t"))
		}
	}
	return x, nil
}

// MustRead is ReadRequest for a request that can be read.
func MustRead(t testing.TB, line string, headers ...string) *exchange.Exchange {
	t.Helper()
	x, err := ReadRequest(line, headers...)
	if err != nil {
		t.Fatalf("read %q %q: %v", line, headers, err)
	}
	return x
}

// MustParse returns what parse makes of a request that it recognises.
func MustParse[T any](t testing.TB, parse func(*exchange.Exchange) (T, bool), line string, headers ...string) T {
	t.Helper()
	req, ok := parse(MustRead(t, line, headers...))
	if !ok {
		t.Fatalf("%s %q: not recognised", line, headers)
	}
	return req
}

// Conn is the connection of a client that stays, at an address that nobody knows. State is its TLS,
// nil for none.
type Conn struct{ State *tls.ConnectionState }

func (c Conn) RemoteAddr() net.Addr           { return &net.TCPAddr{IP: net.IPv4zero} }
func (c Conn) Secure() bool                   { return c.State != nil }
func (c Conn) TLS() *tls.ConnectionState      { return c.State }
func (Conn) TCP() *net.TCPConn                { return nil }
func (Conn) Left() bool                       { return false }
func (Conn) Break()                           {}
func (Conn) Payer() account.Source            { return account.Source{Stranger: true} }
func (Conn) KnownAs(account.Source)           {}
func (Conn) Dismissed() <-chan struct{}       { return nil }
func (Conn) Remaining() (time.Duration, bool) { return 0, false }
func (Conn) Arriving() bool                   { return false }
func (Conn) EndArrival()                      {}
func (Conn) Turn() (give func())              { return func() {} }
