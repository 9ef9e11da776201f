package http2

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	wire "golang.org/x/net/http2"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Floods end the connection with ENHANCE_YOUR_CALM.
func TestFloods(t *testing.T) {
	for name, flood := range map[string]func(p *peer, i int){
		"SETTINGS":       func(p *peer, _ int) { _ = p.framer.WriteSettings() },
		"PING":           func(p *peer, _ int) { _ = p.framer.WritePing(false, [8]byte{}) },
		"PRIORITY":       func(p *peer, i int) { _ = p.framer.WritePriority(uint32(2*i+3), wire.PriorityParam{Weight: 1}) },
		"WINDOW_UPDATE":  func(p *peer, _ int) { _ = p.framer.WriteWindowUpdate(0, 1) },
		"tiny windows":   func(p *peer, _ int) { _ = p.framer.WriteWindowUpdate(1, 1) },
		"empty DATA":     func(p *peer, _ int) { _ = p.framer.WriteData(1, false, nil) },
		"padded DATA":    func(p *peer, _ int) { _ = p.framer.WriteDataPadded(1, false, nil, make([]byte, 9)) },
		"unknown frames": func(p *peer, _ int) { _ = p.framer.WriteRawFrame(0xee, 0, 0, nil) },
		"resets": func(p *peer, i int) {
			id := uint32(2*i + 3)
			p.get(id, "/wait")
			_ = p.framer.WriteRSTStream(id, wire.ErrCodeCancel)
		},
		"resets that we make": func(p *peer, i int) {
			id := uint32(2*i + 3)
			p.get(id, "/wait")
			_ = p.framer.WriteWindowUpdate(id, 0)
		},
		"crumbs of DATA on a stream that was reset": func(p *peer, i int) {
			if i == 0 {
				_ = p.framer.WriteWindowUpdate(1, 0)
			}
			_ = p.framer.WriteData(1, false, []byte("x"))
		},
		"heads of a stream that was reset": func(p *peer, i int) {
			if i == 0 {
				_ = p.framer.WriteWindowUpdate(1, 0)
			}
			p.get(1, "/wait")
		},
		"malformed heads":  func(p *peer, i int) { p.get(uint32(2*i+3), "/wait", "connection", "close") },
		"too many streams": func(p *peer, i int) { p.get(uint32(2*i+3), "/wait") },
		"empty CONTINUATION": func(p *peer, i int) {
			if i == 0 {
				_ = p.framer.WriteHeaders(wire.HeadersFrameParam{StreamID: 3, BlockFragment: p.fields(":method", "GET")})
			}
			_ = p.framer.WriteContinuation(3, false, nil)
		},
		"long CONTINUATION": func(p *peer, i int) {
			if i == 0 {
				_ = p.framer.WriteHeaders(wire.HeadersFrameParam{StreamID: 3, BlockFragment: p.fields(":method", "GET")})
			}
			_ = p.framer.WriteContinuation(3, false, bytes.Repeat([]byte{0x82}, maxFrame))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var most, now atomic.Int64
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w := newWorldOf(t, 10, 0, func(x *exchange.Exchange) {
				x.Response.Detached = func(exchange.Responder) {
					n := now.Add(1)
					defer now.Add(-1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					<-ctx.Done()
				}
			})
			p := w.dial()
			p.head(1, "POST", "/wait", false)
			go func() {
				for i := range 2 * crumbsAtOnce {
					flood(p, i)
				}
			}()
			if f := await[*wire.GoAwayFrame](p); f.ErrCode != wire.ErrCodeEnhanceYourCalm {
				t.Errorf("got %s", f.ErrCode)
			}
			if most.Load() > 10 {
				t.Errorf("%d handlers at once", most.Load())
			}
			cancel()
		})
	}
}

// A client that reads nothing and makes the proxy answer is cut off, and holds little memory.
func TestUnreadAnswers(t *testing.T) {
	w := newWorldEcho(t)
	p := w.dial(maxWindow)
	id := uint32(1)
	for ; id < 40; id += 2 {
		p.get(id, "/long") // fills the socket
	}
	_ = p.conn.SetWriteDeadline(time.Now().Add(steady.Patience))
	for {
		if err := p.framer.WritePing(false, [8]byte{}); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the connection goes on")
		} else if err != nil {
			return // the connection has ended
		}
	}
}

// Requests that are longer than what may wait unread break the flow control.
func TestBodiesNobodyReads(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := newWorld(t, func(x *exchange.Exchange) {
		x.Conn.EndArrival()
		<-ctx.Done()
	})
	defer cancel()
	p := w.dialWide()
	p.head(3, "POST", "/", false)
	for range streamWindow/maxFrame + 1 {
		_ = p.framer.WriteData(3, false, make([]byte, maxFrame))
	}
	if got := p.status(3); got != "FLOW_CONTROL_ERROR" {
		t.Errorf("got %s", got)
	}
	// The connection's window bounds all of them together. The others go on.
	id := uint32(5)
	for range connWindow / streamWindow {
		p.head(id, "POST", "/", false)
		for range streamWindow / maxFrame {
			_ = p.framer.WriteData(id, false, make([]byte, maxFrame))
		}
		id += 2
	}
	p.head(id, "POST", "/", false)
	_ = p.framer.WriteData(id, false, []byte("x"))
	if got := p.status(id); got != "FLOW_CONTROL_ERROR" {
		t.Errorf("got %s", got)
	}
	p.ping()
}

// The memory of a connection that waits for the rest of its head is small.
func TestUnfinishedHeads(t *testing.T) {
	w := newWorldEcho(t)
	before := proxytest.Heap()
	const conns = 50
	for range conns {
		p := w.dial()
		_ = p.framer.WriteHeaders(wire.HeadersFrameParam{StreamID: 1, BlockFragment: p.fields(
			":method", "GET", "x", strings.Repeat("x", 15_000))})
		for range 3 {
			_ = p.framer.WriteContinuation(1, false, bytes.Repeat([]byte{0x82}, maxFrame))
		}
	}
	time.Sleep(100 * time.Millisecond) //testlint:allow timer what has not come yet takes less memory
	if each := (proxytest.Heap() - before) / conns; each > 400<<10 {
		t.Errorf("%d KiB for each, with the client", each>>10)
	}
}

// Frames that RFC 9113 forbids end the stream or the connection, with the code that it names.
func TestForbiddenFrames(t *testing.T) {
	for name, c := range map[string]struct {
		send func(p *peer)
		want string
	}{
		"even stream":               {func(p *peer) { p.get(2, "/body") }, "GOAWAY PROTOCOL_ERROR"},
		"stream 0":                  {func(p *peer) { p.get(0, "/body") }, "GOAWAY PROTOCOL_ERROR"},
		"lower stream":              {func(p *peer) { p.get(5, "/none"); p.status(5); p.get(1, "/none") }, "GOAWAY PROTOCOL_ERROR"},
		"closed stream":             {func(p *peer) { p.get(1, "/none"); p.status(1); p.get(1, "/none") }, "GOAWAY STREAM_CLOSED"},
		"DATA on an idle stream":    {func(p *peer) { _ = p.framer.WriteData(1, true, nil) }, "GOAWAY PROTOCOL_ERROR"},
		"RST_STREAM on an idle one": {func(p *peer) { _ = p.framer.WriteRSTStream(1, 0) }, "GOAWAY PROTOCOL_ERROR"},
		"window of an idle stream":  {func(p *peer) { _ = p.framer.WriteWindowUpdate(1, 1) }, "GOAWAY PROTOCOL_ERROR"},
		"DATA after the end":        {func(p *peer) { p.get(1, "/wait"); _ = p.framer.WriteData(1, true, nil) }, "STREAM_CLOSED"},
		"HEADERS after the end":     {func(p *peer) { p.get(1, "/wait"); p.get(1, "/wait") }, "STREAM_CLOSED"},
		"trailers without end":      {func(p *peer) { p.head(1, "POST", "/wait", false); p.headBlock(1, false, p.fields("a", "b")) }, "PROTOCOL_ERROR"},
		"pseudo-header in trailers": {func(p *peer) { p.head(1, "POST", "/wait", false); p.headBlock(1, true, p.fields(":path", "/")) }, "PROTOCOL_ERROR"},
		"longer than its length": {func(p *peer) {
			p.head(1, "POST", "/wait", false, "content-length", "2")
			_ = p.framer.WriteData(1, false, []byte("abc"))
		}, "PROTOCOL_ERROR"},
		"shorter than its length": {func(p *peer) {
			p.head(1, "POST", "/wait", false, "content-length", "2")
			_ = p.framer.WriteData(1, true, []byte("a"))
		}, "PROTOCOL_ERROR"},
		"window of 2^31":           {func(p *peer) { p.get(1, "/wait"); _ = p.framer.WriteWindowUpdate(1, maxWindow) }, "FLOW_CONTROL_ERROR"},
		"connection window 2^31":   {func(p *peer) { _ = p.framer.WriteWindowUpdate(0, maxWindow) }, "GOAWAY FLOW_CONTROL_ERROR"},
		"empty window update":      {func(p *peer) { _ = p.framer.WriteWindowUpdate(0, 0) }, "GOAWAY PROTOCOL_ERROR"},
		"empty update of a stream": {func(p *peer) { p.get(1, "/wait"); _ = p.framer.WriteWindowUpdate(1, 0) }, "PROTOCOL_ERROR"},
		"initial window 2^31":      {func(p *peer) { _ = p.framer.WriteSettings(wire.Setting{ID: 4, Val: 1 << 31}) }, "GOAWAY FLOW_CONTROL_ERROR"},
		"open windows 2^31": {func(p *peer) {
			p.get(1, "/wait")
			_ = p.framer.WriteWindowUpdate(1, maxWindow-defaultWindow)
			_ = p.framer.WriteSettings(wire.Setting{ID: 4, Val: defaultWindow + 1})
		}, "GOAWAY FLOW_CONTROL_ERROR"},
		"ENABLE_PUSH 2":      {func(p *peer) { _ = p.framer.WriteSettings(wire.Setting{ID: 2, Val: 2}) }, "GOAWAY PROTOCOL_ERROR"},
		"MAX_FRAME_SIZE 1":   {func(p *peer) { _ = p.framer.WriteSettings(wire.Setting{ID: 5, Val: 1}) }, "GOAWAY PROTOCOL_ERROR"},
		"push":               {func(p *peer) { _ = p.framer.WriteRawFrame(5, 4, 1, make([]byte, 4)) }, "GOAWAY PROTOCOL_ERROR"},
		"large frame":        {func(p *peer) { _ = p.framer.WriteRawFrame(0, 0, 1, make([]byte, maxFrame+1)) }, "GOAWAY FRAME_SIZE_ERROR"},
		"odd SETTINGS":       {func(p *peer) { _ = p.framer.WriteRawFrame(4, 0, 0, make([]byte, 5)) }, "GOAWAY FRAME_SIZE_ERROR"},
		"CONTINUATION alone": {func(p *peer) { _ = p.framer.WriteContinuation(1, true, nil) }, "GOAWAY PROTOCOL_ERROR"},
		"frame within a block": {func(p *peer) {
			_ = p.framer.WriteHeaders(wire.HeadersFrameParam{StreamID: 1, BlockFragment: p.fields(":method", "GET")})
			_ = p.framer.WritePing(false, [8]byte{})
		}, "GOAWAY PROTOCOL_ERROR"},
		"no HPACK":                       {func(p *peer) { p.headBlock(1, true, []byte{0xff, 0xff, 0xff, 0xff, 0xff}) }, "GOAWAY COMPRESSION_ERROR"},
		"empty update of an idle stream": {func(p *peer) { _ = p.framer.WriteWindowUpdate(1, 0) }, "PROTOCOL_ERROR"},
		"depends on itself":              {func(p *peer) { _ = p.framer.WritePriority(1, wire.PriorityParam{StreamDep: 1}) }, "PROTOCOL_ERROR"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			w := newWorld(t, func(x *exchange.Exchange) {
				if x.Target == "/wait" {
					x.Conn.EndArrival()
					<-ctx.Done()
				}
				echo(x)
			})
			defer cancel()
			p := w.dial()
			c.send(p)
			if got := p.status(1); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// A connection begins with the preface and SETTINGS.
func TestPreface(t *testing.T) {
	for name, bytes := range map[string]string{
		"HTTP/1.1":    "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"no SETTINGS": wire.ClientPreface + "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678",
		"half":        wire.ClientPreface[:10],
	} {
		w := newWorldEcho(t)
		p := w.dialSilent()
		_, _ = io.WriteString(p.conn, bytes)
		_ = p.conn.CloseWrite()
		want := "GOAWAY PROTOCOL_ERROR"
		if name == "half" {
			want = "closed"
		}
		if got := p.status(1); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

// A connection's first request may be rejected, and the client may open a window for the answer later.
func TestRejectionWaitsForWindow(t *testing.T) {
	w := newWorldEcho(t)
	p := w.dial(0)
	p.get(1, "no-path")
	if got := p.status(1); got != "400" {
		t.Fatalf("got %s", got)
	}
	_ = p.framer.WriteWindowUpdate(1, 1<<20)
	if _, ok := p.next().(*wire.DataFrame); !ok {
		t.Error("the window is not seen")
	}
}

// FuzzConnection feeds bytes to a connection. It must end in time, and leave nothing behind.
func FuzzConnection(f *testing.F) {
	var buf bytes.Buffer
	framer := wire.NewFramer(&buf, nil)
	p := newPeer(f)
	p.framer = framer
	p.window(5)
	p.get(1, "/body")
	p.head(3, "POST", "/upload", false)
	_ = framer.WriteData(3, true, []byte("body"))
	_ = framer.WriteWindowUpdate(1, 10)
	_ = framer.WriteRSTStream(1, wire.ErrCodeCancel)
	_ = framer.WritePing(false, [8]byte{1})
	f.Add(buf.Bytes())
	w := newWorld(f, echo)
	f.Fuzz(func(t *testing.T, frames []byte) {
		c := (&world{t: t, addr: w.addr}).dialSilent()
		_, _ = io.WriteString(c.conn, wire.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		_, _ = c.conn.Write(frames)
		_ = c.conn.CloseWrite()
		_ = c.conn.SetDeadline(time.Now().Add(steady.Patience))
		if _, err := io.Copy(io.Discard, c.conn); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Error("the connection does not end")
		}
		c.conn.Close()
	})
}
