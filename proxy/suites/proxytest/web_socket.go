package proxytest

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// WebSocket is a client that sees each byte of its server. One goroutine may read it while another
// writes.
type WebSocket struct {
	net.Conn
	Head string // the response's head, as it came
	r    *bufio.Reader
}

// handshake is the header of a good handshake.
var handshake = []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Origin: https://pages.example"}

// AskForWebSocket makes a request a good handshake, from a page of the server itself.
func AskForWebSocket(req *http.Request) {
	for _, line := range handshake {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
	}
	req.Header.Set("Origin", req.URL.Scheme+"://"+req.URL.Host)
}

// BearerProtocol returns the subprotocol with which a WebSocket brings a token.
func BearerProtocol(token string) string {
	return "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token))
}

// OpenWebSocket sends a handshake on conn and reads the response's head. lines replace those of
// handshake with the same name; a line without a value removes them. first is sent right behind the
// request.
func OpenWebSocket(conn net.Conn, uri string, first []byte, lines ...string) (*WebSocket, error) {
	name := func(line string) string {
		name, _, _ := strings.Cut(line, ":")
		return strings.ToLower(name)
	}
	given := make(map[string]bool)
	for _, line := range lines {
		given[name(line)] = true
	}
	request := "GET " + uri + " HTTP/1.1\r\n"
	if !given["host"] {
		request += "Host: localhost\r\n"
	}
	for _, line := range handshake {
		if !given[name(line)] {
			request += line + "\r\n"
		}
	}
	for _, line := range lines {
		if !strings.HasSuffix(line, ":") {
			request += line + "\r\n"
		}
	}
	if _, err := conn.Write(append([]byte(request+"\r\n"), first...)); err != nil {
		return nil, err
	}
	w := &WebSocket{Conn: conn, r: bufio.NewReader(conn)}
	for !strings.HasSuffix(w.Head, "\r\n\r\n") {
		line, err := w.r.ReadString('\n')
		if w.Head += line; err != nil {
			return w, fmt.Errorf("read the head, so far %q: %w", w.Head, err)
		}
	}
	return w, nil
}

// Rest returns all that comes until the connection ends.
func (w *WebSocket) Rest() ([]byte, error) { return io.ReadAll(w.r) }

// Next returns the next frame as it came.
func (w *WebSocket) Next() (Frame, error) { return readFrame(w.r) }

// readFrame returns the next frame of a server as it came.
func readFrame(r io.Reader) (Frame, error) {
	frame := make([]byte, 2)
	if _, err := io.ReadFull(r, frame); err != nil {
		return nil, err
	}
	more := map[byte]int{126: 2, 127: 8}[frame[1]]
	frame = append(frame, make([]byte, more)...)
	if _, err := io.ReadFull(r, frame[2:]); err != nil {
		return frame, err
	}
	length := uint64(frame[1])
	switch more {
	case 2:
		length = uint64(binary.BigEndian.Uint16(frame[2:]))
	case 8:
		length = binary.BigEndian.Uint64(frame[2:])
	}
	if length > 1<<30 {
		return frame, fmt.Errorf("a frame of %d bytes", length)
	}
	head := len(frame)
	frame = append(frame, make([]byte, length)...)
	_, err := io.ReadFull(r, frame[head:])
	return frame, err
}

// messageReader reads the messages of a watch as the body of the same watch over HTTP.
type messageReader struct {
	io.Closer
	r        *bufio.Reader
	protobuf bool
	rest     []byte
}

// NewMessageReader returns the body that a watch over HTTP would have. Without a CLOSE frame it ends
// with [io.ErrUnexpectedEOF].
func NewMessageReader(body io.ReadCloser, protobuf bool) io.ReadCloser {
	return &messageReader{Closer: body, r: bufio.NewReader(body), protobuf: protobuf}
}

func (m *messageReader) Read(p []byte) (int, error) {
	for len(m.rest) == 0 {
		frame, err := readFrame(m.r)
		switch {
		case err == io.EOF:
			return 0, io.ErrUnexpectedEOF
		case err != nil:
			return 0, err
		case string(frame) == CloseNormal:
			return 0, io.EOF
		case !m.protobuf && frame[0] == TextFrame && frame[len(frame)-1] == '\n':
		case m.protobuf && frame[0] == BinaryFrame:
			m.rest = binary.BigEndian.AppendUint32(nil, uint32(len(frame.Payload())))
		default:
			return 0, fmt.Errorf("a frame of a watch is %.100q", frame)
		}
		m.rest = append(m.rest, frame.Payload()...)
	}
	n := copy(p, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

// Send sends a masked frame of at most 65,535 bytes. first is its first byte.
func (w *WebSocket) Send(first byte, payload string) error {
	_, err := w.Write(ClientFrame(first, payload))
	return err
}

// ClientFrame returns a masked frame. first is its first byte.
func ClientFrame(first byte, payload string) []byte {
	frame := []byte{first, 0x80 | byte(len(payload))}
	if len(payload) > 125 {
		frame = binary.BigEndian.AppendUint16([]byte{first, 0x80 | 126}, uint16(len(payload)))
	}
	key := [4]byte{0x37, 0xfa, 0x21, 0x3d}
	frame = append(frame, key[:]...)
	for i := range len(payload) {
		frame = append(frame, payload[i]^key[i%4])
	}
	return frame
}

// Frame is a server's frame as it came.
type Frame []byte

// The frames that end a connection, and first bytes of others.
const (
	CloseNormal = "\x88\x02\x03\xe8"
	CloseWrong  = "\x88\x02\x03\xea"

	TextFrame, BinaryFrame, CloseFrame, PingFrame, PongFrame = 0x81, 0x82, 0x88, 0x89, 0x8a
)

// Payload returns the frame's payload.
func (f Frame) Payload() []byte { return f[2+map[byte]int{126: 2, 127: 8}[f[1]]:] }
