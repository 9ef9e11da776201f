package http2

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	wire "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// world is a server on a TLS port of its own.
type world struct {
	t      testing.TB
	conns  *downstream.Connections
	ledger *account.Ledger
	addr   string
	server *Server
	ln     net.Listener

	serving  sync.WaitGroup
	accepted atomic.Int64 // connections
}

// newWorld starts a server with the handler. It stops with the test.
func newWorld(t testing.TB, handler func(*exchange.Exchange)) *world {
	return newWorldOf(t, 100, 0, handler)
}

func newWorldOf(t testing.TB, streams int, maxAge time.Duration, handler func(*exchange.Exchange)) *world {
	t.Helper()
	ln, poller := listenTLS(t, Protocol)
	ledger := account.New(account.Limits{})
	w := &world{t: t, conns: downstream.NewConnections(maxAge, ledger), ledger: ledger, addr: ln.Addr().String(), ln: ln}
	guard := exchange.NewGuard(metrics.NewSet(), slog.New(slog.NewTextHandler(t.Output(), nil)))
	rejected := new(metrics.Counter)
	handle := func(x *exchange.Exchange) {
		if x.Target == "/own" {
			x.Body.Own()
		} else {
			handler(x)
		}
	}
	base := downstream.Base{Handle: handle, Refuse: apistatus.Refuse, Ledger: ledger, Conns: w.conns, Poller: poller, Guard: guard,
		Malformed: rejected, Held: rejected}
	w.server = New(base, &Options{HTTP2MaxStreamsPerConnection: streams}, metrics.NewSet(), rejected)
	w.serving.Go(w.accept)
	t.Cleanup(func() {
		w.ln.Close()
		w.conns.CloseAll()
		w.conns.BeginClosing()
		steady.Receive(t, "end of the connections", w.conns.Empty)
		w.serving.Wait()
	})
	return w
}

// listenTLS listens on a port of its own for clients over TLS that choose one of the protocols. The
// caller closes the listener. The poller ends with the test.
func listenTLS(t testing.TB, protocols ...string) (net.Listener, *downstream.Poller) {
	t.Helper()
	poller, err := downstream.NewPoller()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() { defer close(ran); poller.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ran })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	arrivals := downstream.NewArrivals(func() int { return 2 }, downstream.NewMetrics(metrics.NewSet()))
	return tls.NewListener(downstream.ClientListener{Listener: ln, Arrivals: arrivals, TLS: true}, &tls.Config{
		Certificates: []tls.Certificate{proxytest.ServerCertificate()}, NextProtos: protocols, DynamicRecordSizingDisabled: true,
	}), poller
}

func (w *world) accept() {
	for {
		c, err := w.ln.Accept()
		if err != nil {
			return
		}
		w.accepted.Add(1)
		w.serving.Go(func() {
			w.conns.Opened(c)
			if c.(*tls.Conn).Handshake() == nil {
				w.server.Serve(c)
			}
			_ = c.Close()
			w.conns.Closed(c)
		})
	}
}

// client returns a net/http client that speaks HTTP/2 only.
func (w *world) client() *http.Client {
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, DisableCompression: true,
	}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: steady.Patience}
}

func (w *world) url(path string) string { return "https://" + w.addr + path }

// peer is a client that sends and reads frames.
type peer struct {
	t      testing.TB
	conn   *tls.Conn
	tap    *tapConn
	framer *wire.Framer
	block  bytes.Buffer
	hpack  *hpack.Encoder
	pings  byte // sent by ping
}

// dial opens a connection and sends the preface and SETTINGS, which may have a first window of
// streams. With the widest one, the connection's window is as wide.
func (w *world) dial(window ...uint32) *peer {
	w.t.Helper()
	p := w.dialSilent()
	if _, err := p.conn.Write([]byte(wire.ClientPreface)); err != nil {
		w.t.Fatal(err)
	}
	if p.window(window...); len(window) > 0 && window[0] == maxWindow {
		_ = p.framer.WriteWindowUpdate(0, maxWindow-defaultWindow)
	}
	return p
}

// dialWide is dial, and has the connection's window opened to its full width by the first stream.
func (w *world) dialWide() *peer {
	w.t.Helper()
	p := w.dial()
	p.head(1, "POST", "/own", false)
	await[*wire.RSTStreamFrame](p) // after the response
	return p
}

// window sends SETTINGS, with a first window of streams if one is given.
func (p *peer) window(window ...uint32) {
	p.t.Helper()
	var settings []wire.Setting
	for _, n := range window {
		settings = append(settings, wire.Setting{ID: wire.SettingInitialWindowSize, Val: n})
	}
	if err := p.framer.WriteSettings(settings...); err != nil {
		p.t.Fatal(err)
	}
}

// newPeer returns a peer that encodes header blocks.
func newPeer(t testing.TB) *peer {
	p := &peer{t: t}
	p.hpack = hpack.NewEncoder(&p.block)
	return p
}

// dialSilent opens a connection and sends nothing.
func (w *world) dialSilent() *peer {
	w.t.Helper()
	raw, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	tap := &tapConn{Conn: raw}
	c := tls.Client(tap, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{Protocol}})
	w.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(steady.Patience))
	if err := c.Handshake(); err != nil {
		w.t.Fatal(err)
	}
	p := newPeer(w.t)
	p.conn, p.tap, p.framer = c, tap, wire.NewFramer(c, c)
	p.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	p.framer.AllowIllegalWrites = true
	return p
}

// tapConn counts the TLS records that are read from it.
type tapConn struct {
	net.Conn
	raw []byte
}

func (c *tapConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.raw = append(c.raw, p[:n]...)
	return n, err
}

// records returns the number of whole records so far (RFC 8446, section 5.1).
func (c *tapConn) records() (n int) {
	for rest := c.raw; len(rest) >= 5; n++ {
		length := 5 + int(rest[3])<<8 + int(rest[4])
		if length > len(rest) {
			break
		}
		rest = rest[length:]
	}
	return n
}

// fields encodes a header block. pairs are names and values.
func (p *peer) fields(pairs ...string) []byte {
	p.block.Reset()
	for i := 0; i < len(pairs); i += 2 {
		_ = p.hpack.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return p.block.Bytes()
}

// get sends a GET, whose stream ends, with more fields.
func (p *peer) get(id uint32, path string, more ...string) {
	p.head(id, "GET", path, true, more...)
}

func (p *peer) head(id uint32, method, path string, last bool, more ...string) {
	block := p.fields(append([]string{":method", method, ":scheme", "https", ":path", path, ":authority", "localhost"}, more...)...)
	p.headBlock(id, last, block)
}

func (p *peer) headBlock(id uint32, last bool, block []byte) {
	_ = p.framer.WriteHeaders(wire.HeadersFrameParam{StreamID: id, BlockFragment: block, EndStream: last, EndHeaders: true})
}

// next returns the next frame that is not SETTINGS or WINDOW_UPDATE; nil at the connection's end.
func (p *peer) next() wire.Frame {
	p.t.Helper()
	for {
		f, err := p.framer.ReadFrame()
		if err != nil {
			return nil
		}
		switch f.(type) {
		case *wire.SettingsFrame, *wire.WindowUpdateFrame:
		default:
			return f
		}
	}
}

// await reads frames up to one of a kind.
func await[F wire.Frame](p *peer) F {
	p.t.Helper()
	for {
		switch f := p.next().(type) {
		case F:
			return f
		case nil:
			p.t.Fatalf("the connection has ended, want a %T", *new(F))
		}
	}
}

// ping sends a PING and reads frames up to its answer.
func (p *peer) ping() {
	p.t.Helper()
	p.pings++
	_ = p.framer.WritePing(false, [8]byte{p.pings})
	p.pinged([8]byte{p.pings})
}

// pinged reads frames up to the answer to a PING.
func (p *peer) pinged(data [8]byte) {
	p.t.Helper()
	for f := await[*wire.PingFrame](p); !f.IsAck() || f.Data != data; f = await[*wire.PingFrame](p) {
	}
}

// status reads frames up to the head of the response on a stream.
func (p *peer) status(id uint32) string {
	p.t.Helper()
	for {
		switch f := p.next().(type) {
		case nil:
			return "closed"
		case *wire.MetaHeadersFrame:
			if f.StreamID == id {
				return f.PseudoValue("status")
			}
		case *wire.RSTStreamFrame:
			if f.StreamID == id {
				return f.ErrCode.String()
			}
		case *wire.GoAwayFrame:
			if f.ErrCode != wire.ErrCodeNo {
				return "GOAWAY " + f.ErrCode.String()
			}
		}
	}
}
