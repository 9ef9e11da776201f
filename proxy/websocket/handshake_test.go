package websocket_test

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/websocket"
)

// The example of RFC 6455, section 1.3.
const (
	exampleKey    = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
	exampleAccept = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
)

func TestAsked(t *testing.T) {
	f := func(want bool, line string, headers ...string) {
		t.Helper()
		if got := websocket.Asked(proxytest.MustRead(t, line, headers...)); got != want {
			t.Errorf("%s %q: %v", line, headers, got)
		}
	}
	const watch = "/api/v1/pods?watch=1"
	f(true, watch, "Upgrade: websocket", "Connection: Upgrade")
	f(true, watch, "upgrade: WebSocket", "connection: keep-alive, upgrade")
	f(true, watch, "Upgrade: websocket", "Connection: xupgradex")
	f(true, watch, "Upgrade: websocket", "Connection: keep-alive", "Connection: Upgrade")
	f(false, watch)
	f(false, watch, "Upgrade: websocket")
	f(false, watch, "Connection: Upgrade")
	f(false, watch, "Upgrade: h2c", "Connection: Upgrade")
	f(false, watch, "Upgrade: h2c", "Upgrade: websocket", "Connection: Upgrade")
	f(false, "GET "+watch+" HTTP/1.0", "Upgrade: websocket", "Connection: Upgrade")
}

// The answers are kube-apiserver's; see TestWebSocketHandshake in proxy/e2e, which compares them.
func TestHandshake(t *testing.T) {
	const (
		accepted = "101 Upgrade: websocket|Connection: Upgrade|" + exampleAccept + "|"
		origin   = "Origin: https://pages.example"
		version  = "Sec-WebSocket-Version: 13"
	)
	f := func(want string, headers ...string) {
		t.Helper()
		headers = append([]string{"Upgrade: websocket", "Connection: Upgrade"}, headers...)
		x := proxytest.MustRead(t, "/api/v1/pods?watch=1", headers...)
		x.Conn = proxytest.Conn{State: &tls.ConnectionState{}}
		ok := websocket.Handshake(x)
		r := &x.Response
		var got strings.Builder
		got.WriteString(map[int]string{101: "101 ", 400: "400 ", 403: "403 "}[r.Status])
		for _, field := range r.Header {
			got.WriteString(field.Name + ": " + field.Value + "|")
		}
		for _, slice := range r.Body {
			got.Write(slice)
		}
		if got.String() != want || ok != (r.Status == 101) || !r.Bare || r.Close == ok {
			t.Errorf("%q: got %s, %v, close %v, want %s", headers, got.String(), ok, r.Close, want)
		}
	}
	f(accepted, exampleKey, version, origin)
	f(accepted, exampleKey, version, origin, "Sec-WebSocket-Protocol:")
	f(accepted, exampleKey, version, origin, "Origin: null")
	f(accepted, exampleKey, version, origin, "Sec-WebSocket-Extensions: permessage-deflate")
	f(accepted+"Sec-WebSocket-Protocol: a|", exampleKey, version, origin, "Sec-WebSocket-Protocol:  a ")
	f(accepted+"Sec-WebSocket-Protocol: a|", exampleKey, version, origin, "Sec-WebSocket-Protocol: a", "Sec-WebSocket-Protocol: b")
	f("400 ", exampleKey, version, origin, "Sec-WebSocket-Protocol: a,b")
	f("400 ", exampleKey, version, origin, "Sec-WebSocket-Protocol: a,")
	f("403 ", exampleKey, version)
	f("403 ", exampleKey, version, "Origin: null")
	f("403 ", exampleKey, version, "Origin: foo", origin)
	f("400 mismatch challenge/response", version, origin)
	f("400 mismatch challenge/response", "Sec-WebSocket-Version: 12")
	f("400 Sec-WebSocket-Version: 13|missing or bad WebSocket Version", exampleKey, "Sec-WebSocket-Version: 12", origin)
	f("400 Sec-WebSocket-Version: 13|missing or bad WebSocket Version", exampleKey)
}
