package bubble

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
	"github.com/watchfan/watchfan/proxy/wire/websocket"
)

// Request is a request of a client. The zero value of each field but Target is a plain one.
type Request struct {
	Method string // "" is GET
	Target string
	Header []string // pairs of names and values; Host and User-Agent have defaults
	Body   string
	Upload *io.PipeReader       // in place of Body, a body that the test writes piece by piece
	Length int64                // of Upload; -1 if not known
	From   string               // the client's address; "" is 127.0.0.1
	Token  string               // sent to the secure port, as a bearer token
	TLS    *tls.ConnectionState // of the secure port; nil without Token is the insecure port
	HTTP2  bool
	Age    time.Duration // how long the connection may still be used; 0 is no limit
	// Dismissed is closed when the client is told to use another connection; nil is never.
	Dismissed <-chan struct{}
}

// Client is one request and its response, in place of a connection.
type Client struct {
	t    testing.TB
	x    exchange.Exchange
	left atomic.Bool // the client has left

	head chan struct{}  // closed when resp is set
	resp *http.Response // its Body is stream
	sent stream         // by the client, once the protocol has been changed
	stream
}

// Send sends a request, and returns when the head of the response has come.
func (p *Proxy) Send(r Request) *Client {
	c := p.Begin(r)
	<-c.head
	return c
}

// Begin sends a request and does not wait for its response.
func (p *Proxy) Begin(r Request) *Client {
	c := &Client{t: p.T, head: make(chan struct{})}
	c.stream.init()
	c.sent.init()
	conn := &conn{client: c, ip: net.ParseIP(cmp.Or(r.From, "127.0.0.1")), state: r.TLS, age: r.Age, dismissed: r.Dismissed}
	if r.Token != "" && r.TLS == nil {
		conn.state = &tls.ConnectionState{HandshakeComplete: true}
	}
	c.x = exchange.Exchange{Method: cmp.Or(r.Method, http.MethodGet), Target: r.Target, Protocol: exchange.HTTP11,
		Conn: conn, Received: time.Now(), ContentLength: int64(len(r.Body))}
	if r.HTTP2 {
		c.x.Protocol, c.x.Conn = exchange.HTTP20, streamConn{conn}
	}
	switch {
	case r.Upload != nil:
		c.x.Body, c.x.ContentLength = &body{Reader: r.Upload}, r.Length
	case r.Body != "":
		c.x.Body = &body{Reader: strings.NewReader(r.Body)}
	}
	for i := 0; i < len(r.Header); i += 2 {
		c.x.Header.Add(r.Header[i], r.Header[i+1])
	}
	if r.Token != "" {
		c.x.Header.Add("Authorization", "Bearer "+r.Token)
	}
	for name, value := range map[string]string{"Host": "localhost", "User-Agent": proxytest.ClientAgent} {
		if !c.x.Header.Has(name) {
			c.x.Header.Add(name, value)
		}
	}
	p.T.Cleanup(c.Leave)
	go c.serve(p.Server.Handle)
	return c
}

// Read reads the whole response.
func (c *Client) Read() (*http.Response, string) {
	c.t.Helper()
	<-c.head
	body, err := io.ReadAll(&c.stream)
	if err != nil {
		c.t.Fatalf("read the answer to %s %s: %v", c.x.Method, c.x.Target, err)
	}
	return c.resp, string(body)
}

// Response returns the response, when its head has come. It has the status 0 if the server has given up the request
// without an answer.
func (c *Client) Response() *http.Response {
	<-c.head
	return c.resp
}

// Answered reports whether the head of the response has come.
func (c *Client) Answered() bool {
	select {
	case <-c.head:
		return true
	default:
		return false
	}
}

// Watch returns the events of the response, which must be 200.
func (c *Client) Watch() *proxytest.Watcher {
	c.t.Helper()
	<-c.head
	if c.resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(&c.stream)
		c.t.Fatalf("%s %s: got status %d: %s", c.x.Method, c.x.Target, c.resp.StatusCode, body)
	}
	return proxytest.NewWatcher(c.t, c.resp, c.Leave)
}

// CopyTo writes the response to w piece by piece, until its end, or that of ctx.
func (c *Client) CopyTo(ctx context.Context, w http.ResponseWriter) {
	defer context.AfterFunc(ctx, c.Leave)()
	resp := c.Response()
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	for piece := make([]byte, 32<<10); ; {
		w.(http.Flusher).Flush()
		n, err := resp.Body.Read(piece)
		_, _ = w.Write(piece[:n])
		if err == io.EOF {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

// Leave makes the client leave. It may be called more than once.
func (c *Client) Leave() {
	if !c.left.Swap(true) {
		c.stream.leave()
		c.sent.leave()
	}
}

// Write sends bytes of another protocol. They may come before the protocol is changed.
func (c *Client) Write(p []byte) (int, error) { return c.sent.Write(p) }

// CloseWrite says that the client sends no more of the other protocol.
func (c *Client) CloseWrite() { c.sent.end(nil) }

// serve does for the request what a protocol does: see package exchange.
func (c *Client) serve(handle func(*exchange.Exchange)) {
	x := &c.x
	handle(x)
	x.Continue()
	written := func() {
		if x.Until != nil {
			_ = x.Until.Close()
		}
	}
	release := func() {
		if x.Body != nil {
			x.Body.Release()
		}
		if x.Slot != nil {
			x.Slot.Release()
		}
	}
	switch resp := &x.Response; {
	case resp.Stream != nil:
		written()
		c.begin(resp)
		c.stream.add(chunkPayload(resp.First))
		c.stream.messages = resp.Messages
		c.stream.carry(resp.Stream, release)
	case resp.Detached != nil:
		written()
		resp.Detached(&responder{c})
		release()
		if !c.Answered() { // a protocol closes the connection, or resets the stream
			c.beginAs(0, nil)
			c.stream.end(io.ErrUnexpectedEOF)
		}
	default:
		c.write(resp)
		written()
		release()
	}
}

// chunkPayload returns what a chunk carries, nil for none.
func chunkPayload(chunk string) []byte {
	if chunk == "" {
		return nil
	}
	first, second, _, _ := framing.NextPayload([][]byte{[]byte(chunk)})
	return append(first, second...)
}

// begin shows the client the head of a response.
func (c *Client) begin(r *exchange.Response) { c.beginAs(r.Code(), r.Header) }

func (c *Client) beginAs(code int, header exchange.Header) {
	c.resp = &http.Response{StatusCode: code, Header: make(http.Header), Body: &c.stream, ContentLength: -1}
	for _, f := range header {
		c.resp.Header.Add(f.Name, f.Value)
	}
	close(c.head)
}

// write sends a response with a Body or a Reader.
func (c *Client) write(r *exchange.Response) {
	c.begin(r)
	if r.Reader == nil {
		for _, b := range r.Body {
			c.stream.add(b)
		}
		c.stream.end(nil)
		return
	}
	defer r.Reader.Close()
	n, err := io.Copy(&c.stream, r.Reader)
	switch {
	case err != nil:
		err = io.ErrUnexpectedEOF // all that a protocol shows
	case r.Length >= 0 && n != r.Length && c.x.Method != http.MethodHead:
		err = fmt.Errorf("a body of %d bytes that is said to have %d", n, r.Length)
	}
	c.stream.end(err)
}

// responder implements [exchange.Responder].
type responder struct{ *Client }

func (r *responder) OnGone(gone func())              { r.stream.onLeave(gone) }
func (r *responder) Respond(resp *exchange.Response) { r.write(resp) }
func (r *responder) Upgrade(resp *exchange.Response) (exchange.Upgraded, error) {
	if r.x.Protocol == exchange.HTTP20 {
		return nil, errors.ErrUnsupported
	}
	r.stream.forget()
	r.begin(resp)
	return upgraded{r.Client}, nil
}

// upgraded is the connection of a client as the server has it, when the protocol has been changed.
type upgraded struct{ *Client }

func (u upgraded) Read(p []byte) (int, error)  { return u.sent.Read(p) }
func (u upgraded) Write(p []byte) (int, error) { return u.stream.Write(p) }

func (u upgraded) CloseWrite() error {
	u.stream.end(nil)
	return nil
}

func (u upgraded) Close() error {
	u.stream.end(nil)
	u.sent.leave()
	return nil
}

// conn is the connection of one request. The kernel says as much about it as about a closed one.
type conn struct {
	proxytest.Conn
	client *Client
	ip     net.IP
	state  *tls.ConnectionState
	age    time.Duration

	dismissed <-chan struct{}
}

func (c *conn) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: c.ip, Port: 1} }
func (c *conn) Secure() bool                     { return c.state != nil }
func (c *conn) TLS() *tls.ConnectionState        { return c.state }
func (*conn) TCP() *net.TCPConn                  { return new(net.TCPConn) }
func (c *conn) Left() bool                       { return c.client.left.Load() }
func (c *conn) Break()                           { c.client.stream.end(io.ErrUnexpectedEOF) }
func (c *conn) Dismissed() <-chan struct{}       { return c.dismissed }
func (c *conn) Remaining() (time.Duration, bool) { return c.age, c.age > 0 }

// streamConn is the connection of a request over HTTP/2.
type streamConn struct{ *conn }

func (streamConn) StreamID() uint32        { return 1 }
func (streamConn) Window() exchange.Window { return exchange.OpenWindow }

// body is a request's body, which has come or is still coming.
type body struct {
	io.Reader
	released, whole atomic.Bool
}

func (b *body) Read(p []byte) (int, error) {
	if b.released.Load() {
		return 0, exchange.ErrBodyReleased
	}
	n, err := b.Reader.Read(p)
	switch err {
	case io.EOF:
		b.whole.Store(true)
	case io.ErrClosedPipe:
		err = exchange.ErrBodyReleased
	}
	return n, err
}
func (*body) Hold() bool    { return true }
func (*body) Own()          {}
func (*body) Due(time.Time) {}

func (b *body) Release() bool {
	b.released.Store(true)
	if c, ok := b.Reader.(io.Closer); ok {
		_ = c.Close()
	}
	return b.whole.Load()
}

// stream is a response's body on its way to a client, and a [fanout.Sink]. It takes everything at
// once, unless the client stalls.
type stream struct {
	mu      sync.Mutex
	changed *sync.Cond
	bytes   bytes.Buffer
	over    bool
	err     error // with over
	gone    []func()
	left    bool

	stalled bool
	rest    []byte      // not taken yet
	drained func(error) // Drain's; nil for none

	from     exchange.Stream    // of a watch
	ended    func()             // called when from has ended
	messages *exchange.Messages // of a WebSocket; nil for another watch
}

func (s *stream) init() { s.changed = sync.NewCond(&s.mu) }

// Stall makes the client take nothing more until Unstall.
func (s *stream) Stall() { s.set(true) }

// Unstall makes the client take what has waited, and go on.
func (s *stream) Unstall() { s.set(false) }

func (s *stream) set(stalled bool) {
	s.mu.Lock()
	s.stalled = stalled
	var done func(error)
	if !stalled {
		s.bytes.Write(s.rest)
		s.rest, done, s.drained = nil, s.drained, nil
	}
	s.changed.Broadcast()
	s.mu.Unlock()
	if done != nil {
		done(nil)
	}
}

func (s *stream) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.bytes.Len() == 0 {
		switch {
		case s.left:
			return 0, os.ErrClosed
		case s.over && s.err == nil:
			return 0, io.EOF
		case s.over:
			return 0, s.err
		}
		s.changed.Wait()
	}
	return s.bytes.Read(p)
}

// Close implements io.Closer of a response's body.
func (s *stream) Close() error {
	s.leave()
	return nil
}

func (s *stream) add(p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes.Write(p)
	s.changed.Broadcast()
}

// end ends the body, with nil for a proper end.
func (s *stream) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.over, s.err = true, err
	}
	s.changed.Broadcast()
}

func (s *stream) leave() {
	s.mu.Lock()
	gone := s.gone
	s.gone, s.left = nil, true
	s.changed.Broadcast()
	s.mu.Unlock()
	for _, f := range gone {
		f()
	}
}

// forget makes the client's leaving call nothing.
func (s *stream) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = nil
}

// onLeave makes the client's leaving call f, at once if it has left.
func (s *stream) onLeave(f func()) {
	s.mu.Lock()
	left := s.left
	if !left {
		s.gone = append(s.gone, f)
	}
	s.mu.Unlock()
	if left {
		f()
	}
}

// carry makes the events of from the rest of the body, and calls ended at their end.
func (s *stream) carry(from exchange.Stream, ended func()) {
	s.from, s.ended = from, ended
	from.Begin((*sink)(s))
	s.onLeave(from.Gone)
}

// sink is the stream as a shard sees it.
type sink stream

func (k *sink) Write(batch [][]byte) (blocked bool, err error) {
	s := (*stream)(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left {
		return false, os.ErrClosed
	}
	to := io.Writer(&s.bytes)
	if s.stalled {
		to = writerFunc(func(p []byte) { s.rest = append(s.rest, p...) })
	}
	if s.messages != nil {
		var framed websocket.Batch
		if err := framed.Frame(*s.messages, batch); err != nil {
			return false, err
		}
		for _, b := range framed.Slices {
			_, _ = to.Write(b)
		}
		batch = nil
	}
	for len(batch) > 0 {
		first, second, rest, ok := framing.NextPayload(batch)
		if !ok {
			return false, errors.New("the shard has written no whole chunks")
		}
		_, _ = to.Write(first)
		_, _ = to.Write(second)
		batch = rest
	}
	s.changed.Broadcast()
	return s.stalled, nil
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

func (k *sink) Drain(done func(error)) {
	s := (*stream)(k)
	s.mu.Lock()
	if s.stalled {
		s.drained = done
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	done(nil)
}

func (k *sink) Kept(bytes int64) bool   { return k.from.Keep(bytes) }
func (k *sink) Evicted(st fanout.State) { k.from.Evict(st) }

func (k *sink) End(reason fanout.Reason, complete bool) {
	s := (*stream)(k)
	go func() {
		err := io.ErrUnexpectedEOF
		if complete {
			err = nil
		}
		if complete && s.messages != nil {
			s.add([]byte(websocket.CloseNormal))
		}
		s.end(err)
		s.from.End(reason, complete)
		s.ended()
	}()
}

// Write implements io.Writer for a body that is passed through.
func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.stalled && !s.left {
		s.changed.Wait()
	}
	if s.left {
		return 0, os.ErrClosed
	}
	s.changed.Broadcast()
	return s.bytes.Write(p)
}
