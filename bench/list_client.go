//go:build linux

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// A form is one way to ask for a list.
type form struct {
	format   string // json or protobuf
	encoding string // identity or gzip
	version  string // resourceVersion: "0" accepts the state of a cache, "" asks for the latest
	lean     bool   // without metadata.managedFields
}

// A protocol is a version of HTTP.
type protocol string

const (
	http11 protocol = "h1"
	http20 protocol = "h2" // over TLS alone
)

func parseProtocol(s string) (protocol, error) {
	if p := protocol(s); p == http11 || p == http20 {
		return p, nil
	}
	return "", fmt.Errorf("protocol %q: want %s or %s", s, http11, http20)
}

// forms returns all forms that are measured, with or without lean ones.
func forms(lean bool) (all []form) {
	for _, version := range []string{"0", ""} {
		for _, format := range []string{"json", "protobuf"} {
			for _, encoding := range []string{"identity", "gzip"} {
				f := form{format, encoding, version, false}
				if all = append(all, f); lean {
					f.lean = true
					all = append(all, f)
				}
			}
		}
	}
	return all
}

// axes returns the properties of a case.
func (f form) axes() []axis {
	version, pods := f.version, "whole"
	if version == "" {
		version = "unset"
	}
	if f.lean {
		pods = "lean"
	}
	return axes("format", f.format, "encoding", f.encoding, "rv", version, "pods", pods)
}

// mediaType returns the type of the answer.
func (f form) mediaType() string {
	if f.format == "protobuf" {
		return "application/vnd.kubernetes.protobuf"
	}
	return "application/json"
}

// leanParameter asks for objects without metadata.managedFields (KEP-5958).
const leanParameter = ";drop=metadata.managedFields"

// accept returns the Accept header of a client, lean or not.
func accept(mediaType string, lean bool) string {
	if lean {
		return mediaType + leanParameter
	}
	return mediaType
}

// accept returns the type that is asked for.
func (f form) accept() string { return accept(f.mediaType(), f.lean) }

// target returns the request's target.
func (f form) target(path string) string {
	if f.version == "" {
		return path
	}
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	return path + separator + "resourceVersion=" + f.version
}

// A lister makes lists one after the other over one connection. It uses little CPU: it makes large
// reads, and does not decompress or decode. One goroutine at a time may use it.
type lister struct {
	conn
	wire    *wire
	buf     []byte
	form    form
	request string
	br      *bufio.Reader
}

// newLister connects to e. It will list path in the form f.
func newLister(e endpoint, f form, path string) (*lister, error) {
	const readSize = 256 << 10
	s, err := measure.Dialer{}.Dial(e.addr, connectTimeout)
	if err != nil {
		return nil, err
	}
	l := &lister{conn: conn{sock: s}, wire: &wire{Sock: s}, buf: make([]byte, readSize), form: f,
		request: requestHead(e, f.target(path), f.accept(), f.encoding == "gzip")}
	l.rw = l.wire
	if e.tls != nil {
		l.wire.ahead = bufio.NewReaderSize(s, readSize) // crypto/tls reads about one record of 16 KiB at a time
		secured := tls.Client(l.wire, e.tls)
		if err := secured.Handshake(); err != nil {
			s.Close()
			return nil, err
		}
		l.rw = secured
	}
	l.br = bufio.NewReader(l.rw)
	return l, nil
}

// received returns the number of bytes that have come, with TLS and HTTP.
func (l *lister) received() uint64 { return l.wire.received }

func (l *lister) close() { l.sock.Close() }

// check reports an answer that is not of the form that was asked for.
func (f form) check(status int, contentType, encoding string) error {
	if encoding == "" {
		encoding = "identity"
	}
	mediaType, _, _ := strings.Cut(contentType, ";")
	if mediaType != f.mediaType() || encoding != f.encoding {
		return fmt.Errorf("list answered %d with %s, %s: want %s, %s",
			status, mediaType, encoding, f.mediaType(), f.encoding)
	}
	return nil
}

// list makes one list and writes its body to w. It checks that the answer is complete and has the
// form of the request. It returns the time from before the request to the body's last byte.
func (l *lister) list(w io.Writer) (time.Duration, error) {
	start := time.Now()
	if _, err := io.WriteString(l.rw, l.request); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(l.br, nil)
	if err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return 0, fmt.Errorf("list answered %s: %s", resp.Status, body)
	}
	err = l.form.check(resp.StatusCode, resp.Header.Get("Content-Type"), resp.Header.Get("Content-Encoding"))
	if err != nil {
		return 0, err
	}
	if resp.Close {
		return 0, fmt.Errorf("list answered with a connection that it closes")
	}
	_, err = io.CopyBuffer(onlyWriter{w}, resp.Body, l.buf)
	return time.Since(start), err
}

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

// lists counts the lists that clients have received.
type lists struct {
	count   uint64
	wire    uint64 // bytes
	latency measure.Distribution
}

// listFor lets each lister make at least one list and begin none after d. It returns at the end of
// the last list.
func listFor(ctx context.Context, listers []*lister, d time.Duration) (sum lists, err error) {
	var mu sync.Mutex // guards sum and err
	var wg sync.WaitGroup
	start := time.Now()
	for _, l := range listers {
		wg.Go(func() {
			var latency measure.Histogram
			received := l.received()
			var failed error
			for first := true; failed == nil && (first || time.Since(start) < d); first = false {
				var took time.Duration
				if took, failed = l.list(io.Discard); failed == nil {
					latency.Record(took)
					failed = ctx.Err()
				}
			}
			mu.Lock()
			defer mu.Unlock()
			sum.wire += l.received() - received
			sum.latency.Add(&latency)
			if err == nil {
				err = failed
			}
		})
	}
	wg.Wait()
	sum.count = sum.latency.Count
	return sum, err
}
