package websocket_test

import (
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/wire/websocket"
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
