package proxytest

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// HTTP2Wire is a client's side of an HTTP/2 connection that may send any frame. Nothing is sent
// before Flush. One goroutine may use it.
type HTTP2Wire struct {
	*http2.Framer
	conn    net.Conn
	out     bytes.Buffer
	block   bytes.Buffer // what encoder writes
	encoder *hpack.Encoder
}

// DialHTTP2 opens a connection over TLS that offers HTTP/2 alone, and sends the preface with
// settings. patience bounds the whole life of the connection.
func DialHTTP2(ctx context.Context, address string, patience time.Duration,
	settings ...http2.Setting) (*HTTP2Wire, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	return NewHTTP2Wire(conn, settings...)
}

// NewHTTP2Wire sends the preface with settings. It closes conn if that fails.
func NewHTTP2Wire(conn net.Conn, settings ...http2.Setting) (*HTTP2Wire, error) {
	w := &HTTP2Wire{conn: conn}
	w.Framer = http2.NewFramer(&w.out, conn)
	w.AllowIllegalWrites = true
	w.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	w.encoder = hpack.NewEncoder(&w.block)
	w.out.WriteString(http2.ClientPreface)
	if err := errors.Join(w.WriteSettings(settings...), w.Flush()); err != nil {
		conn.Close()
		return nil, err
	}
	return w, nil
}

// Close ends the connection.
func (w *HTTP2Wire) Close() { w.conn.Close() }

// Flush sends what has been written.
func (w *HTTP2Wire) Flush() error {
	_, err := w.conn.Write(w.out.Bytes())
	w.out.Reset()
	return err
}

// Encode returns a block of fields, given as names and values.
func (w *HTTP2Wire) Encode(fields ...string) []byte {
	w.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		// The block is in memory.
		_ = w.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return bytes.Clone(w.block.Bytes())
}

// RequestFields returns the fields of a request, and more behind them.
func RequestFields(method, path string, more ...string) []string {
	return append([]string{":method", method, ":scheme", "https", ":authority", "localhost", ":path", path}, more...)
}

// Ask writes HEADERS with a block of fields, and CONTINUATION frames where the block is long. ended
// means that no body follows.
func (w *HTTP2Wire) Ask(stream uint32, ended bool, fields ...string) error {
	return w.AskBlock(stream, ended, w.Encode(fields...))
}

// AskBlock is Ask with a block that is encoded already.
func (w *HTTP2Wire) AskBlock(stream uint32, ended bool, block []byte) error {
	const most = 16 << 10 // of a frame, which every server takes
	first := block[:min(len(block), most)]
	block = block[len(first):]
	err := w.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: first, EndStream: ended,
		EndHeaders: len(block) == 0})
	for len(block) > 0 {
		next := block[:min(len(block), most)]
		block = block[len(next):]
		err = errors.Join(err, w.WriteContinuation(stream, len(block) == 0, next))
	}
	return err
}

// outcomeWait is how long an outcome that is wanted has to last.
const outcomeWait = 500 * time.Millisecond

// Outcome reads until the connection has ended, or the request of stream sentinel has been answered,
// the outcome is one of those that are wanted, and nothing else has come for a moment. It returns how
// each other stream was answered, in their order, and the connection's state:
//
//	400 open                    an answer; the connection serves another request
//	reset PROTOCOL_ERROR open   the server has reset the stream
//	GOAWAY PROTOCOL_ERROR       the server has ended the connection, and said why
//	closed                      it has not said why
//
// What asks for nothing is left out: informational answers, and the reset behind an answer that
// needs no more of the body.
func (w *HTTP2Wire) Outcome(sentinel uint32, wanted ...string) (string, error) {
	streams := make(map[uint32]string)
	end := func(word string) string {
		var words []string
		for _, id := range slices.Sorted(maps.Keys(streams)) {
			words = append(words, streams[id])
		}
		return strings.Join(append(words, word), " ")
	}
	for answered := false; ; {
		f, err := w.ReadFrame()
		var network net.Error
		switch {
		case errors.As(err, &network) && network.Timeout() && answered:
			return end("open"), nil
		case errors.As(err, &network) && network.Timeout():
			return "", fmt.Errorf("no answer and no end after %q", end(""))
		case err != nil:
			return end("closed"), nil
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			switch status := f.PseudoValue("status"); {
			case f.StreamID == sentinel:
				answered = true
			case status != "" && status[0] != '1':
				streams[f.StreamID] = status
			}
		case *http2.RSTStreamFrame:
			if f.ErrCode != http2.ErrCodeNo {
				streams[f.StreamID] = "reset " + f.ErrCode.String()
			}
		case *http2.GoAwayFrame:
			if f.ErrCode != http2.ErrCodeNo {
				clear(streams) // what was answered before is a matter of time
				return end("GOAWAY " + f.ErrCode.String()), nil
			}
		}
		w.acknowledge(f)
		_ = w.Flush() // a server that has gone away may have said why
		if answered {
			wait := steady.Patience
			if slices.Contains(wanted, end("open")) {
				wait = outcomeWait
			}
			_ = w.conn.SetReadDeadline(time.Now().Add(wait))
		}
	}
}

// acknowledge writes the answer to a PING or SETTINGS.
func (w *HTTP2Wire) acknowledge(f http2.Frame) {
	switch f := f.(type) {
	case *http2.PingFrame:
		if !f.IsAck() {
			_ = w.WritePing(true, f.Data)
		}
	case *http2.SettingsFrame:
		if !f.IsAck() {
			_ = w.WriteSettingsAck()
		}
	}
}

// AwaitHead sends what has been written, and reads up to the head of the answer on a stream.
func (w *HTTP2Wire) AwaitHead(stream uint32) error {
	for {
		if err := w.Flush(); err != nil {
			return err
		}
		f, err := w.ReadFrame()
		if err != nil {
			return err
		}
		if head, ok := f.(*http2.MetaHeadersFrame); ok && head.StreamID == stream {
			return nil
		}
		w.acknowledge(f)
	}
}
