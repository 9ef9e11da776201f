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
	version  string // resourceVersion: "0" is whatever a cache holds, "" is the latest there is
}

// forms are all that are measured.
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

// request is the head of a GET.
func (f form) request(e endpoint, path string) string {
	if f.version != "" {
		path += "?resourceVersion=" + f.version
	}
	return requestHead(e, path, f.mediaType(), f.encoding == "gzip")
}

// A lister makes lists one after the other over one connection. It takes as little as it can: large
// reads, no decompression, no decoding. One goroutine at a time.
type lister struct {
	form    form
	request string
	sock    *measure.Sock
	wire    *wire
	conn    io.ReadWriter // wire, or the TLS connection over it
	br      *bufio.Reader // of conn
	buf     []byte
}

// newLister connects to e, to list path in the form f.
func newLister(e endpoint, f form, path string) (*lister, error) {
	const readSize = 256 << 10
	s, err := measure.Dialer{}.Dial(e.addr, connectTimeout)
	if err != nil {
		return nil, err
	}
	l := &lister{form: f, request: f.request(e, path), sock: s, wire: &wire{Sock: s}, buf: make([]byte, readSize)}
	l.conn = l.wire
	if e.tls != nil {
		l.wire.ahead = bufio.NewReaderSize(s, readSize) // crypto/tls itself reads little more than one record of 16 KiB
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

// list makes one list, writes its body to w, and checks that the answer is complete and of the form
// that was asked for. It returns the time from before the request to the body's last byte.
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
		return 0, fmt.Errorf("list answered with %s, %s: want %s, %s", mediaType, encoding, l.form.mediaType(), l.form.encoding)
	case resp.Close:
		return 0, fmt.Errorf("list answered with a connection that it closes")
	}
	_, err = io.CopyBuffer(onlyWriter{w}, resp.Body, l.buf)
	return time.Since(start), err
}

func (l *lister) close() { l.sock.Close() }

// onlyWriter hides io.Discard's ReadFrom, which has a smaller buffer.
type onlyWriter struct{ io.Writer }

// A wire counts what it receives: TLS and HTTP framing included.
type wire struct {
	*measure.Sock
	ahead    *bufio.Reader // of the sock; nil reads it directly
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
