package upstream

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/third_party/forked/golang/netutil"

	"github.com/watchfan/watchfan/proxy/wire/downstream"
)

const (
	// mostDirect is how many brief requests a transport sends at a time over connections of HTTP/1.1.
	mostDirect = 64
	// directIdle is how long such a connection is kept open, see strangersIdle, and directAge how long it
	// is used: where several kube-apiservers share an address, those that have come back get clients.
	directIdle, directAge = strangersIdle, 5 * time.Minute
	// silence is how long a connection brings nothing before the server is asked whether it answers at
	// all, and patience how long it has for that: as long as client-go gives a handshake.
	silence, patience = 5 * time.Second, 10 * time.Second
	// directPause is how long requests do without, after no connection could be made.
	directPause = 5 * time.Second
	// mostResponseHead bounds the head of a response; net/http's bound.
	mostResponseHead = 10 << 20
	// settled is the length in bytes up to which a body is read with its head. kube-apiserver, which is
	// net/http's server, gives answers up to this length a Content-Length over HTTP/2, but not over
	// HTTP/1.1. So clients see the same over both.
	settled = 4 << 10
)

type briefKey struct{}

// Brief marks the context of an ordinary request that is soon answered: its body is short and has come,
// and so will its response, at once. It may be sent over HTTP/1.1; see type direct.
func Brief(ctx context.Context) context.Context { return context.WithValue(ctx, briefKey{}, true) }

// direct sends brief requests over HTTP/1.1: one at a time on a connection, which the request's goroutine
// writes and reads itself. Over HTTP/2 four goroutines have part in a request, which costs twice as much
// as the request itself. All other requests, those beyond mostDirect, and those for which no connection
// can be made go over the transport below, with whose settings direct dials.
//
// A request that has been sent is sent again only if it is a GET of whose answer nothing has come, as
// when the server closes an idle connection at the same moment. A connection is used again only if a
// response has ended properly, and the server has not closed it.
type direct struct {
	below             http.RoundTripper // client-go's
	silence, patience time.Duration     // see the constants

	mu     sync.Mutex
	idle   []*directConn // the one that was used last at the end
	open   int           // connections, idle or not
	paused time.Time     // until when none is made
	expiry *time.Timer   // ends idle connections; nil while there are none

	asking sync.Mutex // held while the server is asked whether it answers
	asked  time.Time
	alive  error // the answer
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (d *direct) WrappedRoundTripper() http.RoundTripper { return d.below }

// RoundTrip implements http.RoundTripper.
func (d *direct) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Context().Value(briefKey{}) == nil {
		return d.below.RoundTrip(req)
	}
	c := d.take(req)
	if c == nil {
		return d.below.RoundTrip(req)
	}
	stop := context.AfterFunc(req.Context(), func() { _ = c.Conn.Close() })
	resp, answered, err := c.roundTrip(req)
	if err == nil {
		(&directBody{resp.Body, c, resp, stop}).settle()
		return resp, nil
	}
	stop()
	d.end(c)
	switch {
	case req.Context().Err() != nil:
		return nil, req.Context().Err()
	case req.Method == http.MethodGet && !answered && !errors.Is(err, errStopped):
		return d.below.RoundTrip(req)
	}
	return nil, err
}

// take returns a connection for a request; nil if it must do without.
func (d *direct) take(req *http.Request) *directConn {
	for {
		c, may := d.next()
		switch {
		case !may:
			return nil
		case c == nil:
			return d.dialFor(req)
		case c.socket.Quiet():
			return c
		}
		d.end(c)
	}
}

// next takes the connection that was used last. If there is none, one may perhaps be made.
func (d *direct) next() (c *directConn, may bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.idle); n > 0 {
		c, d.idle[n-1] = d.idle[n-1], nil
		d.idle = d.idle[:n-1]
		return c, true
	}
	if d.open >= mostDirect || time.Now().Before(d.paused) {
		return nil, false
	}
	d.open++
	return nil, true
}

func (d *direct) dialFor(req *http.Request) *directConn {
	c, err := d.dial(req.Context(), req.URL)
	if err == nil {
		return c
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open--
	if req.Context().Err() == nil {
		d.paused = time.Now().Add(directPause)
	}
	return nil
}

var errNotDirect = errors.New("the server is reached in another way")

// dial makes a connection to the server of a URL, as the transport below would.
func (d *direct) dial(ctx context.Context, to *url.URL) (*directConn, error) {
	d.refresh(to)
	t := httpTransport(d.below)
	if t == nil || to.Scheme != "https" || t.TLSClientConfig == nil || t.DialContext == nil || t.Proxy == nil {
		return nil, errNotDirect
	}
	if through, err := t.Proxy(&http.Request{URL: to}); err != nil || through != nil {
		return nil, errNotDirect
	}
	c := &directConn{from: d, made: time.Now(), to: to}
	var err error
	ctx = context.WithValue(ctx, socketKey{}, &c.socket)
	if c.Conn, err = t.DialContext(ctx, "tcp", netutil.CanonicalAddr(to)); err != nil {
		return nil, err
	}
	cfg := t.TLSClientConfig.Clone()
	cfg.NextProtos, cfg.ServerName = []string{"http/1.1"}, cmp.Or(cfg.ServerName, to.Hostname())
	c.tls = tls.Client(c, cfg)
	ctx, cancel := context.WithTimeout(ctx, t.TLSHandshakeTimeout)
	defer cancel()
	err = errNotDirect
	if c.socket != nil {
		err = c.tls.HandshakeContext(ctx)
	}
	if err != nil {
		_ = c.Conn.Close()
		return nil, err
	}
	c.plain.R = c.tls
	c.reader, c.writer = bufio.NewReader(&c.plain), bufio.NewWriter(c.tls)
	return c, nil
}

// refresh has client-go read the file of authorities again, if it is time. It does so only when it is
// given a request, and this one ends before anything is sent.
func (d *direct) refresh(to *url.URL) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	req := &http.Request{Method: http.MethodGet, URL: to, Header: make(http.Header)}
	if resp, err := d.below.RoundTrip(req.WithContext(ended)); err == nil {
		_ = resp.Body.Close()
	}
}

// httpTransport returns the transport below all wrappers; nil if there is none.
func httpTransport(rt http.RoundTripper) *http.Transport {
	for {
		switch t := rt.(type) {
		case *http.Transport:
			return t
		case utilnet.RoundTripperWrapper:
			rt = t.WrappedRoundTripper()
		default:
			return nil
		}
	}
}

func (d *direct) put(c *directConn) {
	if time.Since(c.made) > directAge || c.reader.Buffered() > 0 {
		d.end(c)
		return
	}
	c.rests = time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.idle = append(d.idle, c)
	if d.expiry == nil {
		d.expiry = time.AfterFunc(directIdle, func() { d.expire(time.Now().Add(-directIdle)) })
	}
}

// expire ends the connections that have been idle since a time or longer.
func (d *direct) expire(since time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for n < len(d.idle) && !d.idle[n].rests.After(since) {
		_ = d.idle[n].tls.Close()
		n++
	}
	d.open -= n
	d.idle = append([]*directConn(nil), d.idle[n:]...)
	switch {
	case len(d.idle) > 0:
		d.expiry.Reset(time.Until(d.idle[0].rests.Add(directIdle)))
	case d.expiry != nil:
		d.expiry.Stop()
		d.expiry = nil
	}
}

// CloseIdleConnections ends the idle connections, and those of the transport below.
func (d *direct) CloseIdleConnections() {
	d.expire(time.Now())
	utilnet.CloseIdleConnectionsFor(d.below)
}

func (d *direct) end(c *directConn) {
	_ = c.Conn.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open--
}

// errStopped says that the server answers nobody.
var errStopped = errors.New("the server brings nothing, and makes no connection")

// answers returns an error if the server at to does not answer anybody, although its host does: it
// makes no TLS handshake. One that refuses a connection is ending, and still answers what has come: had it
// ended, so had its connections. Connections that bring nothing share the answer.
func (d *direct) answers(to *url.URL) error {
	d.asking.Lock()
	defer d.asking.Unlock()
	if time.Since(d.asked) < d.silence {
		return d.alive
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.patience)
	defer cancel()
	c, err := d.dial(ctx, to)
	if err == nil {
		_ = c.Conn.Close()
	}
	d.asked, d.alive = time.Now(), nil
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		d.alive = fmt.Errorf("%w: %w", errStopped, err)
	}
	return d.alive
}

// socketConn is a TCP connection whose system calls do not concern Go's scheduler: see downstream.Socket,
// which has Read and Write.
type socketConn struct {
	*net.TCPConn
	downstream.Socket
}

// socketKey is the key of the **socketConn of a direct connection, which client-go may wrap.
type socketKey struct{}

// quick returns c, which is a TCP connection, with fewer costs of reading and writing.
func quick(ctx context.Context, c net.Conn) (net.Conn, error) {
	tcp := c.(*net.TCPConn)
	socket, err := downstream.NewSocket(tcp)
	if err != nil {
		_ = tcp.Close()
		return nil, err
	}
	s := &socketConn{tcp, socket}
	if to, ok := ctx.Value(socketKey{}).(**socketConn); ok {
		*to = s
	}
	return s, nil
}

// directConn is a connection of HTTP/1.1 that carries one request at a time.
type directConn struct {
	net.Conn // as dialled, below TLS
	from     *direct
	to       *url.URL
	socket   *socketConn // below Conn
	tls      *tls.Conn
	plain    io.LimitedReader // of tls
	reader   *bufio.Reader    // of plain
	writer   *bufio.Writer
	made     time.Time
	rests    time.Time // since when it is idle
	until    time.Time // the deadline for reading
}

// Read is the TLS connection's. While the server sends nothing, it looks now and then whether the server
// answers others.
func (c *directConn) Read(p []byte) (int, error) {
	if c.reader == nil { // it is within its handshake, which has a time limit of its own
		return c.Conn.Read(p)
	}
	for {
		if now := time.Now(); c.until.Sub(now) < c.from.silence/2 {
			c.until = now.Add(c.from.silence)
			_ = c.Conn.SetReadDeadline(c.until)
		}
		n, err := c.Conn.Read(p)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if err := c.from.answers(c.to); err != nil {
			return 0, err
		}
	}
}

// roundTrip sends a request and reads the head of its response. answered says that something of that
// has come.
func (c *directConn) roundTrip(req *http.Request) (resp *http.Response, answered bool, err error) {
	if err = req.Write(c.writer); err == nil {
		err = c.writer.Flush()
	}
	if err != nil {
		return nil, false, err
	}
	c.plain.N = mostResponseHead
	if _, err = c.reader.Peek(1); err != nil {
		return nil, false, err
	}
	for err == nil && (resp == nil || resp.StatusCode < http.StatusOK) { // informational ones are not passed on
		resp, err = http.ReadResponse(c.reader, req)
	}
	c.plain.N = 1<<63 - 1
	return resp, true, err
}

// directBody is the body of a response. At its end, the connection carries another request.
type directBody struct {
	io.ReadCloser
	conn *directConn // nil once the body has ended
	resp *http.Response
	stop func() bool // of what ends the connection with the request
}

// Whole is a response's body that has been read.
type Whole struct {
	bytes.Reader
	Bytes []byte
}

func (*Whole) Close() error { return nil }

var settling = sync.Pool{New: func() any { return new([settled + 1]byte) }}

// settle makes b the response's body. If that has at most settled bytes, it reads it, and gives the
// response its length.
func (b *directBody) settle() {
	b.resp.Body = b
	if b.resp.ContentLength > settled {
		return
	}
	buf := settling.Get().(*[settled + 1]byte)
	defer settling.Put(buf)
	n, err := 0, error(nil)
	for n < len(buf) && err == nil {
		var more int
		more, err = b.Read(buf[n:])
		n += more
	}
	if n == 0 && err == io.EOF {
		b.resp.Body, b.resp.ContentLength = http.NoBody, 0
		return
	}
	read := &Whole{Bytes: bytes.Clone(buf[:n])}
	read.Reset(read.Bytes)
	switch {
	case n == len(buf): // longer; perhaps by this byte alone
		b.ReadCloser = ReadCloser(io.MultiReader(read, b.ReadCloser), b.ReadCloser)
	case err == io.EOF:
		b.resp.Body, b.resp.ContentLength = read, int64(n)
	default:
		b.ReadCloser = io.NopCloser(io.MultiReader(read, broken{err}))
	}
}

// broken is the rest of a body that the server has broken off.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// ReadCloser reads from one place and closes another, as for a body of which a part has been read.
func ReadCloser(r io.Reader, c io.Closer) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{r, c}
}

func (b *directBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && b.conn != nil {
		b.finish(err == io.EOF)
		if err != io.EOF && b.resp.Request.Context().Err() != nil {
			err = context.Canceled
		}
	}
	return n, err
}

// Close ends the connection if the body has not ended.
func (b *directBody) Close() error {
	if b.conn != nil {
		b.finish(false)
	}
	return nil
}

// finish gives the connection back. whole says that it can carry another request.
func (b *directBody) finish(whole bool) {
	c := b.conn
	b.conn = nil
	if going := b.stop(); whole && going && !b.resp.Close {
		c.from.put(c)
	} else {
		c.from.end(c)
	}
}
