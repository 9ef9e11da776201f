package proxy_test

import (
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/bubble"
)

// webSocket opens a WebSocket on a port, with the Host and the Origin of a page of its own.
func (f *fan) webSocket(port, uri string, first []byte, lines ...string) *proxytest.WebSocket {
	f.t.Helper()
	_, address, _ := strings.Cut(port, "://")
	lines = append([]string{"Host: " + address, "Origin: " + port, "User-Agent: " + proxytest.ClientAgent}, lines...)
	w, err := proxytest.OpenWebSocket(f.dial(port).Conn, uri, first, lines...)
	if err != nil {
		f.t.Fatal(err)
	}
	return w
}

// next returns the next frame.
func next(t *testing.T, w *proxytest.WebSocket) proxytest.Frame {
	t.Helper()
	frame, err := w.Next()
	if err != nil {
		t.Fatalf("%v, behind % x", err, frame)
	}
	return frame
}

const acceptedHead = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
	"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"

// ports are the ports of a proxy for clients, and the header lines that identify a client there.
func webSocketPorts(f *fan) map[string][]string {
	return map[string][]string{f.insecure: nil, f.secure: {"Authorization: Bearer " + bubble.ClientToken}}
}

func startWebSockets(t *testing.T) *fan {
	return startFan(t, proxytest.NewServer(t), func(o *proxy.Options) { o.SecurePort = proxy.AnyPort })
}

// A watch over a WebSocket has the events of the same watch over HTTP, one message for each, from the
// same lane, and the client's frames are answered. A drain ends it behind a bookmark, with CLOSE.
func TestWebSocketWatch(t *testing.T) {
	t.Parallel()
	f := startWebSockets(t)
	f.cms.Put("ns", "a", "1")
	var all []*proxytest.WebSocket
	for port, lines := range webSocketPorts(f) {
		w := f.webSocket(port, bubble.AnyState, proxytest.ClientFrame(proxytest.PingFrame, "early"), append(lines, "Accept-Encoding: gzip")...)
		if w.Head != acceptedHead+"\r\n" {
			t.Fatalf("%s: got %q", port, w.Head)
		}
		if got := string(next(t, w)); got != "\x8a\x05early" {
			t.Errorf("%s: a ping with the handshake is answered with %q", port, got)
		}
		for _, want := range f.watch(bubble.AnyState).Await(2) {
			frame := next(t, w)
			if frame[0] != proxytest.TextFrame || string(frame.Payload()) != want.Raw {
				t.Errorf("%s: got %x %q, want %q", port, frame[0], frame.Payload(), want.Raw)
			}
		}
		all = append(all, w)
	}
	rv := f.cms.Put("ns", "b", "1")
	for _, w := range all {
		if frame := next(t, w); frame[0] != proxytest.TextFrame || !strings.Contains(string(frame.Payload()), `"name":"b"`) {
			t.Errorf("got %q", frame)
		}
	}
	f.watch(bubble.AnyState).AwaitVersion(rv)
	f.passed(0)
	f.up.WantCount(proxytest.WatchList, 1)
	f.stop()
	for _, w := range all {
		if frame := next(t, w); !strings.Contains(string(frame.Payload()), `"BOOKMARK"`) {
			t.Errorf("got %q", frame)
		}
		if rest, err := w.Rest(); err != nil || string(rest) != proxytest.CloseNormal {
			t.Errorf("at the end: % x, %v", rest, err)
		}
	}
}

// A client that pings and does not read is parked, and bounded, as any that does not read; and others go on.
func TestWebSocketPingsUnread(t *testing.T) {
	t.Parallel()
	f := startWebSockets(t)
	f.cms.Put("ns", "a", strings.Repeat("x", 1000))
	for port, lines := range webSocketPorts(f) {
		w := f.webSocket(port, bubble.AnyState, nil, lines...)
		next(t, w)
		next(t, w)
		pings := []byte(strings.Repeat(string(proxytest.ClientFrame(proxytest.PingFrame, strings.Repeat("p", 100))), 1000))
		sent := 0
		for range 100 { // 10 MB, more than sockets hold
			n, err := w.Write(pings)
			if sent += n; err != nil {
				t.Fatalf("%s: pings are not read: %v behind %d bytes", port, err, sent)
			}
		}
		other := f.watch(bubble.AnyState)
		rv := f.cms.Put("ns", "a", "2")
		other.AwaitVersion(rv)
		other.Close()
		for pongs := 0; ; pongs++ { // the client reads again
			frame := next(t, w)
			if frame[0] == proxytest.TextFrame {
				if pongs == 0 || pongs == 100*1000 {
					t.Errorf("%s: %d pongs", port, pongs)
				}
				break
			}
			if frame[0] != proxytest.PongFrame || len(frame.Payload()) != 100 {
				t.Fatalf("%s: got %.40q", port, frame)
			}
		}
		f.cms.Put("ns", "a", "3")
		for frame := next(t, w); !strings.Contains(string(frame), `"v":"3"`); frame = next(t, w) {
			if frame[0] != proxytest.PongFrame && frame[0] != proxytest.TextFrame {
				t.Fatalf("%s: got %.40q", port, frame)
			}
		}
	}
}
