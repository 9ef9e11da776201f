//go:build linux

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

// A flow is the flow control of a client's HTTP/2 connection (RFC 9113, section 5.2), in bytes.
type flow struct {
	stream, connection         uint32 // windows at the begin
	streamStep, connectionStep int    // bytes that are read before the client gives them back
}

var (
	// LargeSteps has client-go's windows. They are given back rarely, to measure the servers.
	LargeSteps = flow{4 << 20, 1 << 30, 1 << 20, 64 << 20}
	// ClientGoSteps is what client-go does: it gives windows back behind every 4 KiB.
	ClientGoSteps = flow{4 << 20, 1 << 30, 4 << 10, 4 << 10}
	// SmallWindows are those that HTTP/2 begins with. A stream that is not read soon has none.
	SmallWindows = flow{65_535, 1 << 30, 32 << 10, 64 << 20}
)

// An answerTaker takes the answers of a connection. An error ends the connection.
type answerTaker interface {
	// headers takes the head of an answer, or trailers. end means that nothing follows.
	headers(id uint32, h *http2.MetaHeadersFrame, end bool) error
	// data takes bytes of a body, cut anywhere. The slice is valid during the call.
	data(id uint32, p []byte, end bool) error
	// reset takes the end of a stream that the server has reset.
	reset(id uint32, code http2.ErrCode) error
}

// An h2conn is a client's HTTP/2 connection. Its bytes come in pieces that may be cut anywhere:
//
//	length type flags stream  payload   length type flags stream  payload …
//	└── 9 bytes of header ─┘
//
// It passes the payload of DATA on as it comes, and copies other frames until they are whole. One
// goroutine at a time may use it.
type h2conn struct {
	conn
	flow flow
	to   answerTaker

	out     bytes.Buffer // frames to send, until flush
	fields  bytes.Buffer // of the request that is being encoded
	encoder *hpack.Encoder
	framer  *http2.Framer // writes to out; reads whole frames from source
	source  bytes.Reader
	nextID  uint32
	unpaid  int // bytes of all streams that were not given back

	// The frame that comes.
	held  []byte // header and payload so far; with the frames before it that it continues
	start int    // the begin of the frame in held
	id    uint32 // stream of DATA
	left  int    // payload of DATA to come
	last  bool   // DATA ends its stream
}

const (
	frameHeader  = 9
	mostHeld     = 1 << 20 // bytes of a frame other than DATA, or of one header block
	mostHeadSize = 64 << 10
)

// dialH2 connects to e and begins the connection. The connection is still blocking. The server's
// settings and answers have not been read.
func dialH2(d measure.Dialer, e Endpoint, f flow) (*h2conn, error) {
	if e.TLS == nil {
		return nil, errors.New("HTTP/2 needs TLS")
	}
	e.TLS = offerH2(e.TLS)
	c, err := open(d, e)
	if err != nil {
		return nil, err
	}
	h := newH2Conn(c, f)
	if err = requireH2(c); err == nil {
		err = h.begin()
	}
	if err != nil {
		c.sock.Close()
		return nil, err
	}
	return h, nil
}

// offerH2 returns config for a client that speaks nothing but HTTP/2.
func offerH2(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.NextProtos = []string{"h2"}
	return config
}

// requireH2 reports a server that has chosen another protocol.
func requireH2(c conn) error {
	if got := c.rw.(*tls.Conn).ConnectionState().NegotiatedProtocol; got != "h2" {
		return fmt.Errorf("the server chose the protocol %q, not h2", got)
	}
	return nil
}

// newH2Conn returns a connection that has sent nothing.
func newH2Conn(c conn, f flow) *h2conn {
	h := &h2conn{conn: c, flow: f, nextID: 1}
	h.encoder = hpack.NewEncoder(&h.fields)
	h.framer = http2.NewFramer(&h.out, &h.source)
	h.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	h.framer.MaxHeaderListSize = mostHeadSize
	h.framer.SetMaxReadFrameSize(mostHeld)
	return h
}

// begin sends the preface.
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

// ask adds a GET to what flush sends, and returns its stream.
func (h *h2conn) ask(e Endpoint, uri, mediaType string, gzip bool) (id uint32, err error) {
	h.fields.Reset()
	field := func(name, value string) {
		err = errors.Join(err, h.encoder.WriteField(hpack.HeaderField{Name: name, Value: value}))
	}
	field(":method", "GET")
	field(":scheme", "https")
	field(":authority", e.Addr.String())
	field(":path", uri)
	field("user-agent", WatcherAgent)
	field("accept", mediaType)
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

// flush sends what has been added.
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
	for len(p) > 0 {
		if h.left > 0 {
			n := min(h.left, len(p))
			h.left -= n
			if err := h.to.data(h.id, p[:n], h.last && h.left == 0); err != nil {
				return err
			}
			p = p[n:]
			continue
		}
		n, whole, err := h.hold(p)
		if err == nil && whole {
			err = h.frame()
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return h.flush()
}

// hold takes bytes of the header of a frame, or of its payload unless that is plain DATA, and
// returns their number. whole means that a frame, or a block of headers, is whole.
func (h *h2conn) hold(p []byte) (n int, whole bool, err error) {
	have := len(h.held) - h.start
	want := frameHeader
	if have >= frameHeader {
		if want += h.length(); h.start+want > mostHeld {
			return 0, false, fmt.Errorf("a frame or a head of more than %d bytes", mostHeld)
		}
	}
	n = min(want-have, len(p))
	h.held = append(h.held, p[:n]...)
	if have+n < want {
		return n, false, nil
	}
	head := h.held[h.start:]
	kind, flags := http2.FrameType(head[3]), http2.Flags(head[4])
	switch {
	case want == frameHeader && kind == http2.FrameData && !flags.Has(http2.FlagDataPadded) && h.start == 0:
		h.id = uint32(head[5]&0x7f)<<24 | uint32(head[6])<<16 | uint32(head[7])<<8 | uint32(head[8])
		h.left, h.last = h.length(), flags.Has(http2.FlagDataEndStream)
		if h.left > 0 {
			h.held = h.held[:0]
			return n, false, nil
		}
	case want == frameHeader && h.length() > 0:
		return n, false, nil
	case (kind == http2.FrameHeaders || kind == http2.FrameContinuation) && !flags.Has(http2.FlagHeadersEndHeaders):
		h.start = len(h.held)
		return n, false, nil
	}
	return n, true, nil
}

// length returns the length of the present frame's payload.
func (h *h2conn) length() int {
	head := h.held[h.start:]
	return int(head[0])<<16 | int(head[1])<<8 | int(head[2])
}

// frame takes the frame in held.
func (h *h2conn) frame() error {
	h.source.Reset(h.held)
	f, err := h.framer.ReadFrame()
	h.held, h.start = h.held[:0], 0
	if err != nil {
		return err
	}
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		return h.to.headers(f.StreamID, f, f.StreamEnded())
	case *http2.DataFrame: // empty or padded
		return h.to.data(f.StreamID, f.Data(), f.StreamEnded())
	case *http2.RSTStreamFrame:
		return h.to.reset(f.StreamID, f.ErrCode)
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
