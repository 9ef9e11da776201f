package websocket

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	xnet "golang.org/x/net/websocket"
)

// FuzzReceiver compares the answers to a client's bytes with those of golang.org/x/net/websocket,
// which kube-apiserver uses, in kube-apiserver's way (k8s.io/streaming/pkg/httpstream/wsstream,
// IgnoreReceives).
func FuzzReceiver(f *testing.F) {
	for step := range uint8(3) {
		for _, frames := range [][]byte{
			clientFrame(0x89, "hi"), clientFrame(0x89, ""), clientFrame(0x8a, "x"), clientFrame(0x81, "\xff"), clientFrame(0xc1, "x"),
			slices.Concat(clientFrame(0x89, "a"), clientFrame(0x89, "b")),
			slices.Concat(clientFrame(0x01, "x"), clientFrame(0x80, "y")),
			slices.Concat(clientFrame(0x82, strings.Repeat("p", 300)), clientFrame(0x89, "x")),
			slices.Concat(clientFrame(0x89, ""), clientFrame(0x88, ""), clientFrame(0x89, "")),
			maskedFrame(0x88, 2, nil), maskedFrame(0x83, maxMessage+1, nil), maskedFrame(0x89, 1<<63-1, nil),
		} {
			f.Add(frames, 10*step)
		}
	}
	f.Add(append(clientFrame(0x81, "text"), clientFrame(0x88, "\x03\xe8")...), uint8(3))
	f.Add([]byte("\x81\x01x"), uint8(2))
	f.Add([]byte("\x88\x00"), uint8(0))
	f.Add(maskedFrame(0x82, maxMessage+1, []byte("x")), uint8(9))
	f.Add(maskedFrame(0x89, 200, bytes.Repeat([]byte("p"), 200)), uint8(50))
	f.Add(append(maskedFrame(0x83, 1<<63|5, []byte("five!")), clientFrame(0xc9, "")...), uint8(4))
	f.Fuzz(func(t *testing.T, sent []byte, step uint8) {
		var r Receiver
		var got []byte
		over := false
		for part := range slices.Chunk(sent, int(step)+1) {
			before := len(got)
			if got, over = r.Receive(got, part); over {
				break
			}
			if len(got)-before > len(part)+maxControl+maxHeader || len(r.ping) > maxControl {
				t.Fatalf("%d bytes answer %d, %d are kept", len(got)-before, len(part), len(r.ping))
			}
		}
		want := reference(sent)
		if !over && r.inside && r.header.opcode() == opPing { // x/net answers half a ping
			want = want[:min(len(want), len(got))]
		} else if !over {
			got = append(got, CloseNormal...) // at the client's end
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("got % x, %v, want % x", got, over, want)
		}
	})
}

// reference returns what golang.org/x/net/websocket answers to a client that sends these bytes and
// leaves.
func reference(sent []byte) []byte {
	c := &scriptedConn{in: bytes.NewReader(sent)}
	req := &http.Request{Method: http.MethodGet, Host: "h", URL: &url.URL{Path: "/"}, Header: http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"},
		"Sec-Websocket-Key": {"x"}, "Sec-Websocket-Version": {"13"}, "Origin": {"http://h"}}}
	xnet.Handler(func(ws *xnet.Conn) {
		var data []byte
		for xnet.Message.Receive(ws, &data) == nil {
		}
		_ = ws.Close()
	}).ServeHTTP(c, req)
	_, answers, _ := bytes.Cut(c.out.Bytes(), []byte("\r\n\r\n"))
	return answers
}

// scriptedConn is the connection of a client that has sent all that it will. It implements
// [http.ResponseWriter] for a handler that takes the connection over.
type scriptedConn struct {
	net.Conn
	in  *bytes.Reader
	out bytes.Buffer
}

func (c *scriptedConn) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c *scriptedConn) Write(p []byte) (int, error) { return c.out.Write(p) }
func (c *scriptedConn) Close() error                { return nil }
func (c *scriptedConn) SetDeadline(time.Time) error { return errors.ErrUnsupported }
func (c *scriptedConn) Header() http.Header         { return nil }
func (c *scriptedConn) WriteHeader(int)             {}
func (c *scriptedConn) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return c, bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c)), nil
}
