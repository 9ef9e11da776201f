package proxy_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/proxytest"
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

// closed fails the test unless only want comes until the connection ends.
func closed(t *testing.T, w *proxytest.WebSocket, want string) {
	t.Helper()
	if rest, err := w.Rest(); err != nil || string(rest) != want {
		t.Errorf("at the end: % x, %v, want % x", rest, err, want)
	}
}

const acceptedHead = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
	"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"

// ports are the ports of a proxy for clients, and the header lines that identify a client there.
func webSocketPorts(f *fan) map[string][]string {
	return map[string][]string{f.insecure: nil, f.secure: {"Authorization: Bearer " + clientToken}}
}

func startWebSockets(t *testing.T, change ...func(*proxy.Options)) *fan {
	return startFan(t, proxytest.NewServer(t), append([]func(*proxy.Options){
		func(o *proxy.Options) { o.SecurePort = proxy.AnyPort },
	}, change...)...)
}

// A watch over a WebSocket has the events of the same watch over HTTP, one message for each, from the
// same lane, and the client's frames are answered.
func TestWebSocketWatch(t *testing.T) {
	t.Parallel()
	f := startWebSockets(t)
	f.cms.Put("ns", "a", "1")
	for port, lines := range webSocketPorts(f) {
		w := f.webSocket(port, anyState, proxytest.ClientFrame(proxytest.PingFrame, "early"), append(lines, "Accept-Encoding: gzip")...)
		if w.Head != acceptedHead+"\r\n" {
			t.Fatalf("%s: got %q", port, w.Head)
		}
		if got := string(next(t, w)); got != "\x8a\x05early" {
			t.Errorf("%s: a ping with the handshake is answered with %q", port, got)
		}
		for _, want := range f.watch(anyState).Await(2) {
			frame := next(t, w)
			if frame[0] != proxytest.TextFrame || string(frame.Payload()) != want.Raw {
				t.Errorf("%s: got %x %q, want %q", port, frame[0], frame.Payload(), want.Raw)
			}
		}
		for _, ping := range []string{"", "hello", strings.Repeat("p", 300)} {
			if err := w.Send(proxytest.PingFrame, ping); err != nil {
				t.Fatal(err)
			}
			want := ping[:min(len(ping), 125)]
			if frame := next(t, w); frame[0] != proxytest.PongFrame || string(frame.Payload()) != want {
				t.Errorf("%s: a ping of %d bytes is answered with %q", port, len(ping), frame)
			}
		}
		if err := errors.Join(w.Send(0x81, "text"), w.Send(0xc3, "x"), w.Send(0x8a, "pong")); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprint("b", len(lines))
		f.cms.Put("ns", name, "1")
		if frame := next(t, w); frame[0] != proxytest.TextFrame || !strings.Contains(string(frame.Payload()), `"name":"`+name+`"`) {
			t.Errorf("%s: got %q", port, frame)
		}
		if err := w.Send(proxytest.CloseFrame, "\x03\xe9"); err != nil {
			t.Fatal(err)
		}
		closed(t, w, proxytest.CloseNormal)
		rv := f.cms.Delete("ns", name)
		f.watch(since, rv-1).AwaitVersion(rv) // the lane has it when the next port's watches begin
	}
	f.passed(0)
	f.up.WantCount(proxytest.WatchList, 1)
}

// What ends a connection, and the last bytes of each.
func TestWebSocketEnds(t *testing.T) {
	t.Parallel()
	f := startWebSockets(t)
	f.cms.Put("ns", "a", "1")
	for name, end := range map[string]struct {
		first string
		end   func(w *proxytest.WebSocket) error
		want  string
	}{
		"close":              {end: func(w *proxytest.WebSocket) error { return w.Send(0x88, "") }, want: proxytest.CloseNormal},
		"close at once":      {first: string(proxytest.ClientFrame(0x88, "")), want: proxytest.CloseNormal},
		"not masked":         {end: func(w *proxytest.WebSocket) error { _, err := w.Write([]byte("\x81\x01x")); return err }, want: proxytest.CloseWrong + proxytest.CloseNormal},
		"not masked at once": {first: "\x88\x00", want: proxytest.CloseWrong + proxytest.CloseNormal},
		"over 32 MiB": {end: func(w *proxytest.WebSocket) error {
			_, err := w.Write([]byte("\x82\xff\x00\x00\x00\x00\x02\x00\x00\x01abcd"))
			return err
		}, want: proxytest.CloseNormal},
		"half closed": {end: func(w *proxytest.WebSocket) error { return w.Conn.(interface{ CloseWrite() error }).CloseWrite() }, want: proxytest.CloseNormal},
	} {
		for port, lines := range webSocketPorts(f) {
			w := f.webSocket(port, anyState, []byte(end.first), lines...)
			if end.first == "" {
				for range 2 {
					next(t, w)
				}
			}
			if end.end != nil {
				if err := end.end(w); err != nil {
					t.Fatal(err)
				}
			}
			if rest, err := w.Rest(); err != nil || string(rest) != end.want {
				t.Errorf("%s, %s: %q, %v, want %q", name, port, rest, err, end.want)
			}
		}
	}
	f.passed(0)
	f.until("end of the watches", func() bool { return f.server.Watches() == 0 })
}

// A drain ends a WebSocket behind a bookmark, with CLOSE.
func TestWebSocketDrain(t *testing.T) {
	t.Parallel()
	f := startWebSockets(t)
	f.cms.Put("ns", "a", "1")
	var all []*proxytest.WebSocket
	for port, lines := range webSocketPorts(f) {
		w := f.webSocket(port, anyState, nil, lines...)
		next(t, w)
		next(t, w)
		all = append(all, w)
	}
	f.stop()
	for _, w := range all {
		if frame := next(t, w); !strings.Contains(string(frame.Payload()), `"BOOKMARK"`) {
			t.Errorf("got %q", frame)
		}
		closed(t, w, proxytest.CloseNormal)
	}
}

// The token among the subprotocols is the client's identity for reviews, and goes upstream as
// Authorization alone.
func TestWebSocketToken(t *testing.T) {
	t.Parallel()
	f := startWebSockets(t)
	f.cms.Put("ns", "a", "1")
	var mu sync.Mutex
	var asked []string // the tokens in reviews
	f.up.SetAllow(func(token, _ string) bool {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, token)
		return token == clientToken
	})
	bearer := proxytest.BearerProtocol(clientToken)
	for name, c := range map[string]struct {
		lines []string
		head  string
	}{
		"before another":   {[]string{"Sec-WebSocket-Protocol: " + bearer + ", v1"}, acceptedHead + "Sec-WebSocket-Protocol: v1\r\n\r\n"},
		"behind another":   {[]string{"Sec-WebSocket-Protocol: v1," + bearer}, acceptedHead + "Sec-WebSocket-Protocol: v1\r\n\r\n"},
		"on its own line":  {[]string{"Sec-WebSocket-Protocol: " + bearer, "Sec-WebSocket-Protocol: v1"}, acceptedHead + "Sec-WebSocket-Protocol: v1\r\n\r\n"},
		"beside two":       {[]string{"Sec-WebSocket-Protocol: v1, v2, " + bearer}, "HTTP/1.1 400 Bad Request\r\n\r\n"},
		"alone":            {[]string{"Sec-WebSocket-Protocol: " + bearer}, "HTTP/1.1 401 Unauthorized\r\n"},
		"twice":            {[]string{"Sec-WebSocket-Protocol: " + bearer + ", v1, " + bearer}, "HTTP/1.1 401 Unauthorized\r\n"},
		"not base64":       {[]string{"Sec-WebSocket-Protocol: " + bearer + "=, v1"}, "HTTP/1.1 401 Unauthorized\r\n"},
		"with a line end":  {[]string{"Sec-WebSocket-Protocol: v1, " + proxytest.BearerProtocol(clientToken+"\r\nX: y")}, "HTTP/1.1 401 Unauthorized\r\n"},
		"another identity": {[]string{"Authorization: Bearer " + clientToken, "Sec-WebSocket-Protocol: v1, " + bearer}, "HTTP/1.1 400 Bad Request\r\n\r\n"},
	} {
		for _, port := range []string{f.insecure, f.secure} {
			w := f.webSocket(port, anyState, nil, c.lines...)
			if !strings.HasPrefix(w.Head, c.head) {
				t.Errorf("%s, %s: got %q, want %q", name, port, w.Head, c.head)
			}
		}
	}
	f.passed(0)
	mu.Lock()
	defer mu.Unlock()
	for _, token := range asked {
		if token != clientToken {
			t.Errorf("kube-apiserver was asked about %q", token)
		}
	}
	if len(asked) == 0 {
		t.Error("kube-apiserver was not asked about the token")
	}
	if lines := f.log.with(bearer[40:]); len(lines) > 0 {
		t.Errorf("the token was logged: %q", lines)
	}
}

// A client that pings and does not read is parked, and bounded, as any that does not read; and others go on.
func TestWebSocketPingsUnread(t *testing.T) {
	t.Parallel()
	f := startWebSockets(t, func(o *proxy.Options) { o.AdminPort = proxy.AnyPort })
	f.cms.Put("ns", "a", strings.Repeat("x", 1000))
	for port, lines := range webSocketPorts(f) {
		w := f.webSocket(port, anyState, nil, lines...)
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
		other := f.watch(anyState)
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
