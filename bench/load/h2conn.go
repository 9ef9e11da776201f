package load

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/watchfan/watchfan/bench/measure"
)

// A Flow is the flow control of a client's HTTP/2 connection (RFC 9113, section 5.2), in bytes.
type Flow struct {
	stream, connection         uint32 // windows at the begin
	streamStep, connectionStep int    // bytes that are read before the client gives them back
}

var (
	// LargeSteps has client-go's windows. They are given back rarely, to measure the servers.
	LargeSteps = Flow{4 << 20, 1 << 30, 1 << 20, 64 << 20}
	// ClientGoSteps is what client-go does: it gives windows back behind every 4 KiB.
	ClientGoSteps = Flow{4 << 20, 1 << 30, 4 << 10, 4 << 10}
	// SmallWindows are those that HTTP/2 begins with. A stream that is not read soon has none.
	SmallWindows = Flow{65_535, 1 << 30, 32 << 10, 64 << 20}
)

// An h2conn is a client's HTTP/2 connection. Its bytes come in pieces that may be cut anywhere:
//
//	length type flags stream  payload   length type flags stream  payload …
//	└── 9 bytes of header ─┘
//
// It keeps a frame until it is whole, for the framer. One goroutine at a time may use it.
type h2conn struct {
	conn
	flow Flow
	to   func(http2.Frame) error // takes heads and trailers, data and resets; an error ends the connection

	out     bytes.Buffer // frames to send, until flush
	fields  bytes.Buffer // of the request that is being encoded
	encoder *hpack.Encoder
	framer  *http2.Framer // writes to out; reads whole frames from source
	source  bytes.Reader
	nextID  uint32
	unpaid  int    // bytes of all streams that were not given back
	held    []byte // of a frame that is not whole, or of one whose headers go on in the next
}

const (
	frameHeader  = 9
	mostHeld     = 1 << 20 // bytes of a frame, or of one header block
	mostHeadSize = 64 << 10
)

// dialH2 connects to e and sends the preface. The connection is still blocking.
func dialH2(d measure.Dialer, e Endpoint, f Flow) (*h2conn, error) {
	if e.TLS == nil {
		return nil, errors.New("HTTP/2 needs TLS")
	}
	e.TLS = e.TLS.Clone()
	e.TLS.NextProtos = []string{"h2"}
	c, err := open(d, e)
	if err != nil {
		return nil, err
	}
	h := newH2Conn(c, f)
	if got := c.rw.(*tls.Conn).ConnectionState().NegotiatedProtocol; got != "h2" {
		err = fmt.Errorf("the server chose the protocol %q, not h2", got)
	} else {
		err = h.begin()
	}
	if err != nil {
		c.sock.Close()
		return nil, err
	}
	return h, nil
}

func newH2Conn(c conn, f Flow) *h2conn {
	h := &h2conn{conn: c, flow: f, nextID: 1}
	h.encoder = hpack.NewEncoder(&h.fields)
	h.framer = http2.NewFramer(&h.out, &h.source)
	h.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	h.framer.MaxHeaderListSize = mostHeadSize
	h.framer.SetMaxReadFrameSize(mostHeld)
	h.framer.SetReuseFrames()
	return h
}

func (h *h2conn) begin() error {
	const atFirst = 65_535 // a connection's window
	h.out.WriteString(http2.ClientPreface)
	err := h.framer.WriteSettings(
		http2.Setting{ID: http2.SettingEnablePush, Val: 0},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: h.flow.stream},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: mostHeadSize})
	if err == nil {
		err = h.framer.WriteWindowUpdate(0, h.flow.connection-atFirst)
	}
	return errors.Join(err, h.flush())
}

// ask adds a GET of JSON to what flush sends, and returns its stream.
func (h *h2conn) ask(e Endpoint, uri string, gzip bool) (id uint32, err error) {
	h.fields.Reset()
	field := func(name, value string) {
		err = errors.Join(err, h.encoder.WriteField(hpack.HeaderField{Name: name, Value: value}))
	}
	field(":method", "GET")
	field(":scheme", "https")
	field(":authority", e.Addr.String())
	field(":path", uri)
	field("user-agent", Name)
	field("accept", "application/json")
	if gzip {
		field("accept-encoding", "gzip")
	}
	if e.Token != "" {
		field("authorization", "Bearer "+e.Token)
	}
	id = h.nextID
	h.nextID += 2
	return id, errors.Join(err, h.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, BlockFragment: h.fields.Bytes(), EndStream: true, EndHeaders: true}))
}

func (h *h2conn) flush() error {
	if h.out.Len() == 0 {
		return nil
	}
	_, err := h.rw.Write(h.out.Bytes())
	h.out.Reset()
	return err
}

// feed takes the next bytes and sends what they call for.
func (h *h2conn) feed(p []byte) error {
	if len(h.held) > 0 {
		h.held = append(h.held, p...)
		p = h.held
	}
	for {
		n, err := frameIn(p)
		if err != nil {
			return err
		}
		if n == 0 {
			if len(p) != len(h.held) { // otherwise p is held
				h.held = append(h.held[:0], p...)
			}
			return h.flush()
		}
		if err := h.frame(p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
}

// frameIn returns the length of the frame that p begins with, and of those that continue its headers, or 0.
func frameIn(p []byte) (n int, err error) {
	for len(p)-n >= frameHeader {
		head := p[n:]
		n += frameHeader + int(head[0])<<16 + int(head[1])<<8 + int(head[2])
		if n > mostHeld {
			return 0, fmt.Errorf("a frame or a head of more than %d bytes", mostHeld)
		}
		if n > len(p) {
			return 0, nil
		}
		kind, flags := http2.FrameType(head[3]), http2.Flags(head[4])
		if kind != http2.FrameHeaders && kind != http2.FrameContinuation || flags.Has(http2.FlagHeadersEndHeaders) {
			return n, nil
		}
	}
	return 0, nil
}

func (h *h2conn) frame(whole []byte) error {
	h.source.Reset(whole)
	f, err := h.framer.ReadFrame()
	if err != nil {
		return err
	}
	switch f := f.(type) {
	case *http2.MetaHeadersFrame, *http2.DataFrame, *http2.RSTStreamFrame:
		return h.to(f)
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return h.framer.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return h.framer.WritePing(true, f.Data)
		}
	case *http2.GoAwayFrame:
		return fmt.Errorf("the server goes away: %v %.100q", f.ErrCode, f.DebugData())
	}
	return nil
}

// giveBack gives bytes that were read back to the connection, and to a stream, if it owes enough of
// them. It returns what the stream owes then. id 0 is the connection alone.
func (h *h2conn) giveBack(id uint32, unpaid, read int) (int, error) {
	var err error
	if h.unpaid += read; h.unpaid >= h.flow.connectionStep {
		err = h.framer.WriteWindowUpdate(0, uint32(h.unpaid))
		h.unpaid = 0
	}
	if unpaid += read; id != 0 && unpaid >= h.flow.streamStep {
		err = errors.Join(err, h.framer.WriteWindowUpdate(id, uint32(unpaid)))
		unpaid = 0
	}
	return unpaid, err
}
