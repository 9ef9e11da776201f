package websocket

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"
	xnet "golang.org/x/net/websocket"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// FuzzHandshake compares the answer to a handshake with that of golang.org/x/net/websocket. The e2e test
// TestWebSocketHandshake compares answers with kube-apiserver's.
func FuzzHandshake(f *testing.F) {
	const path = "/api/v1/pods?watch=1"
	f.Add("Upgrade", "dGhlIHNhbXBsZSBub25jZQ==", "13", "https://x", "", "h:1", path)
	f.Add("keep-alive, UPGRADE", "x", "13", "null", "a", "h", path)
	f.Add("close", "x", "13", "http://x", "a", "h", path)
	f.Add("upgrade", "", "12", "", "a,b", "h", path)
	f.Add("upgrade", "x", "", "http://x", "", "h", path)
	f.Add("upgrade", "x", "13", "", "", "h", path)
	f.Add("upgrade", "x", "13", "foo", "a", "h", path)
	f.Add("upgrade", "x", "13", "http://x", "a, b", "h", path)
	f.Add("upgrade", "x", "12", "", "a,b", "h", path)
	f.Add("upgrade", "x", "13", "http://x", "a,", "h:x", path)
	f.Add("upgrade", "x", "13", "/", " , ", "[::1", path)
	f.Fuzz(func(t *testing.T, connection, key, version, origin, protocol, host, target string) {
		to, err := url.ParseRequestURI(target)
		if err != nil || to.RequestURI() != target || !strings.HasPrefix(target, "/") || !httpguts.ValidHostHeader(host) {
			return // a cache answers no such request
		}
		x := &exchange.Exchange{Target: target, Protocol: exchange.HTTP11, Conn: proxytest.Conn{State: &tls.ConnectionState{}}}
		req := &http.Request{Method: http.MethodGet, Host: host, URL: to, Header: make(http.Header), TLS: &tls.ConnectionState{}}
		for _, field := range []exchange.Field{{Name: "Upgrade", Value: "websocket"}, {Name: "Host", Value: host}, {Name: "Connection", Value: connection},
			{Name: "Sec-Websocket-Key", Value: key}, {Name: "Sec-Websocket-Version", Value: version},
			{Name: "Origin", Value: origin}, {Name: "Sec-Websocket-Protocol", Value: protocol}} {
			if !httpguts.ValidHeaderFieldValue(field.Value) || strings.Trim(field.Value, " \t") != field.Value {
				return // no server hands such a value on
			}
			x.Header = append(x.Header, field)
			req.Header.Add(field.Name, field.Value)
		}
		c := &scriptedConn{in: bytes.NewReader(nil)}
		accepted := false
		xnet.Handler(func(*xnet.Conn) { accepted = true }).ServeHTTP(c, req)

		if ok := Handshake(x); ok != accepted || !x.Response.Bare || x.Response.Close == ok {
			t.Fatalf("accepted: %v, want %v, close %v", ok, accepted, x.Response.Close)
		}
		got := fmt.Sprintf("HTTP/1.1 %d %s\r\n", x.Response.Status, http.StatusText(x.Response.Status))
		for _, field := range x.Response.Header {
			got += field.Name + ": " + field.Value + "\r\n"
		}
		got += "\r\n" + string(bytes.Join(x.Response.Body, nil))
		if want := c.out.String(); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}
