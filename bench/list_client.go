//go:build linux

package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// A form is one way to ask for a list.
type form struct {
	format   string // json or protobuf
	encoding string // identity or gzip
	version  string // resourceVersion: "0" accepts the state of a cache, "" asks for the latest
}

// forms are all forms that are measured.
var forms = func() (all []form) {
	for _, version := range []string{"0", ""} {
		for _, format := range []string{"json", "protobuf"} {
			for _, encoding := range []string{"identity", "gzip"} {
				all = append(all, form{format, encoding, version})
			}
		}
	}
	return all
}()

func (f form) String() string {
	version := f.version
	if version == "" {
		version = "unset"
	}
	return fmt.Sprintf("format=%s/encoding=%s/rv=%s", f.format, f.encoding, version)
}

func (f form) mediaType() string {
	if f.format == "protobuf" {
		return "application/vnd.kubernetes.protobuf"
	}
	return "application/json"
}

// request returns the head of a GET.
func (f form) request(e endpoint, path string) string {
	if f.version != "" {
		path += "?resourceVersion=" + f.version
	}
	return requestHead(e, path, f.mediaType(), f.encoding == "gzip")
}

// A lister makes lists one after the other over one connection. It uses little CPU: it makes large
// reads, and does not decompress or decode. One goroutine at a time may use it.
type lister struct {
	form    form
	request string
	sock    *measure.Sock
	wire    *wire
	conn    io.ReadWriter // wire, or the TLS connection over it
	br      *bufio.Reader // of conn
	buf     []byte
}

// newLister connects to e. It will list path in the form f.
func newLister(e endpoint, f form, path string) (*lister, error) {
	const readSize = 256 << 10
	s, err := measure.Dialer{}.Dial(e.addr, connectTimeout)
	if err != nil {
		return nil, err
	}
	l := &lister{form: f, request: f.request(e, path), sock: s, wire: &wire{Sock: s}, buf: make([]byte, readSize)}
	l.conn = l.wire
	if e.tls != nil {
		l.wire.ahead = bufio.NewReaderSize(s, readSize) // crypto/tls reads about one record of 16 KiB at a time
		c := tls.Client(l.wire, e.tls)
		if err := c.Handshake(); err != nil {
			s.Close()
			return nil, err
		}
		l.conn = c
	}
	l.br = bufio.NewReader(l.conn)
	return l, nil
}

// list makes one list and writes its body to w. It checks that the answer is complete and has the
// form of the request. It returns the time from before the request to the body's last byte.
func (l *lister) list(w io.Writer) (time.Duration, error) {
	start := time.Now()
	if _, err := io.WriteString(l.conn, l.request); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(l.br, nil)
	if err != nil {
		return 0, err
	}
	encoding := resp.Header.Get("Content-Encoding")
	if encoding == "" {
		encoding = "identity"
	}
	mediaType, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	switch {
	case resp.StatusCode != http.StatusOK:
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return 0, fmt.Errorf("list answered %s: %s", resp.Status, body)
	case mediaType != l.form.mediaType() || encoding != l.form.encoding:
		return 0, fmt.Errorf("list answered with %s, %s: want %s, %s",
			mediaType, encoding, l.form.mediaType(), l.form.encoding)
	case resp.Close:
		return 0, fmt.Errorf("list answered with a connection that it closes")
	}
	_, err = io.CopyBuffer(onlyWriter{w}, resp.Body, l.buf)
	return time.Since(start), err
}

func (l *lister) close() { l.sock.Close() }

// onlyWriter hides io.Discard's ReadFrom, which uses a smaller buffer.
type onlyWriter struct{ io.Writer }

// A wire counts the bytes that it receives, with TLS and HTTP framing.
type wire struct {
	*measure.Sock
	ahead    *bufio.Reader // on the sock; nil reads the sock directly
	received uint64
}

func (w *wire) Read(p []byte) (n int, err error) {
	if w.ahead != nil {
		n, err = w.ahead.Read(p)
	} else {
		n, err = w.Sock.Read(p)
	}
	w.received += uint64(n)
	return n, err
}
