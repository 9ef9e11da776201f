//go:build linux

package load

import (
	"bufio"
	"bytes"
	"cmp"
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

// A Form is one way to ask for a list.
type Form struct {
	Format   string // json or protobuf
	Encoding string // identity or gzip
	Version  string // resourceVersion: "0" accepts the state of a cache, "" asks for the latest
	Lean     bool   // without metadata.managedFields
	Streamed bool   // as the initial events of a watch, in JSON alone (KEP-3157)
}

// A Protocol is a version of HTTP.
type Protocol string

const (
	HTTP11 Protocol = "h1"
	HTTP20 Protocol = "h2" // over TLS alone
)

func ParseProtocol(s string) (Protocol, error) {
	if p := Protocol(s); p == HTTP11 || p == HTTP20 {
		return p, nil
	}
	return "", fmt.Errorf("protocol %q: want %s or %s", s, HTTP11, HTTP20)
}

// Forms returns all forms that are measured, with or without lean ones.
func Forms(lean bool) (all []Form) {
	for _, version := range []string{"0", ""} {
		for _, format := range []string{"json", "protobuf"} {
			for _, encoding := range []string{"identity", "gzip"} {
				f := Form{Format: format, Encoding: encoding, Version: version}
				if all = append(all, f); lean {
					f.Lean = true
					all = append(all, f)
				}
			}
		}
	}
	return all
}

// mediaType returns the type of the answer.
func (f Form) mediaType() string {
	if f.Format == "protobuf" {
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
func (f Form) accept() string { return accept(f.mediaType(), f.Lean) }

// target returns the request's target: the pods that a query selects, as of [FieldQuery]; "" is all.
func (f Form) target(query string) string {
	if f.Version != "" {
		query = "&resourceVersion=" + f.Version + query
	}
	if f.Streamed {
		query = "&watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan" + query
	}
	if query == "" {
		return PodsPath
	}
	return PodsPath + "?" + query[1:]
}

// A Lister makes lists one after the other over one connection. It uses little CPU: it makes large
// reads, and does not decompress or decode. One goroutine at a time may use it.
type Lister struct {
	conn
	wire     *wire
	buf      []byte
	endpoint Endpoint
	form     Form
	request  string
	br       *bufio.Reader
}

// NewLister connects to e. It will list the pods that a query selects in the form f.
func NewLister(e Endpoint, f Form, query string) (*Lister, error) {
	l := &Lister{endpoint: e, form: f, wire: new(wire), buf: make([]byte, listReadSize),
		request: RequestHead(e, f.target(query), f.accept(), f.Encoding == "gzip")}
	return l, l.connect()
}

const listReadSize = 256 << 10

func (l *Lister) connect() error {
	s, err := measure.Dialer{}.Dial(l.endpoint.Addr, connectTimeout)
	if err != nil {
		return err
	}
	l.sock, l.wire = s, &wire{Sock: s, received: l.wire.received}
	l.rw = l.wire
	if l.endpoint.TLS != nil {
		l.wire.ahead = bufio.NewReaderSize(s, listReadSize) // crypto/tls reads about one record of 16 KiB at a time
		secured := tls.Client(l.wire, l.endpoint.TLS)
		if err := secured.Handshake(); err != nil {
			s.Close()
			return err
		}
		l.rw = secured
	}
	l.br = bufio.NewReader(l.rw)
	return nil
}

func (l *Lister) Close() { l.sock.Close() }

// List makes one list and writes its body to w. It checks that the answer is complete and has the
// form of the request. It returns the time from before the request to the body's last byte.
func (l *Lister) List(w io.Writer) (time.Duration, error) {
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
	mediaType, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	encoding := cmp.Or(resp.Header.Get("Content-Encoding"), "identity")
	if mediaType != l.form.mediaType() || encoding != l.form.Encoding {
		return 0, fmt.Errorf("list answered with %s, %s: want %s, %s",
			mediaType, encoding, l.form.mediaType(), l.form.Encoding)
	}
	if resp.Close {
		return 0, fmt.Errorf("list answered with a connection that it closes")
	}
	if l.form.Streamed {
		if err = copyInitialEvents(w, resp.Body); err != nil {
			return 0, err
		}
		took := time.Since(start)
		l.Close()
		return took, l.connect()
	}
	_, err = io.CopyBuffer(onlyWriter{w}, resp.Body, l.buf)
	return time.Since(start), err
}

// copyInitialEvents writes the events of a watch in JSON to w, up to the bookmark that ends the initial ones.
func copyInitialEvents(w io.Writer, body io.Reader) error {
	for lines := bufio.NewReader(body); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("before the bookmark that ends the initial events: %w", err)
		}
		if bytes.Contains(line, endMark) {
			return nil
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
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
	Wire    uint64 // bytes
	Latency measure.Distribution
}

// ListFor lets each lister make at least one list and begin none after d. It returns at the end of
// the last list.
func ListFor(ctx context.Context, listers []*Lister, d time.Duration) (sum lists, err error) {
	var mu sync.Mutex // guards sum and err
	var wg sync.WaitGroup
	start := time.Now()
	for _, l := range listers {
		wg.Go(func() {
			var latency measure.Histogram
			received := l.wire.received
			var failed error
			for first := true; failed == nil && (first || time.Since(start) < d); first = false {
				var took time.Duration
				if took, failed = l.List(io.Discard); failed == nil {
					latency.Record(took)
					failed = ctx.Err()
				}
			}
			mu.Lock()
			defer mu.Unlock()
			sum.Wire += l.wire.received - received
			sum.Latency.Add(&latency)
			if err == nil {
				err = failed
			}
		})
	}
	wg.Wait()
	return sum, err
}
