package proxy

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// stream serves a subscription over a connection that is ours until it ends, and reports whether the response is complete: the watch's
// one goroutine, which until then only waits for the client to leave.
func (c *cachedReads) stream(h *hijacked, r *cachedRead, w *watcher, head []byte) (complete bool) {
	sub, sink := w.sub, newSink(h.Conn(), h.stopReading)
	sink.watcher = w
	if err := sink.begin(head); err != nil {
		sub.Cancel()
		return false
	}
	c.watchers.add(w)
	defer c.watchers.remove(w)
	c.flusher.Start(sub, sink)
	release := c.auth.watchGrant(r.id, r.request, func() { sub.End(fanout.Ending{Reason: fanout.Revoked}) })
	h.WaitRead(func() { sub.End(fanout.Ending{Reason: fanout.Gone}) })
	<-sink.donec
	release()
	if sink.evicted != nil {
		c.logEvicted(w, sink.evicted)
	}
	return sink.complete
}

// watchHead is the response head of a watch, as kube-apiserver's
// (k8s.io/apiserver/pkg/endpoints/handlers/watch.go, HandleHTTP). With gzip, the body's beginning comes with it.
func watchHead(auditID, contentType string, warnings []string, gzip bool) []byte {
	var encoding, vary, begin string
	if gzip {
		encoding, vary, begin = "\r\nContent-Encoding: gzip", "\r\nVary: Accept-Encoding", framing.GzipStart
	}
	head := []byte("HTTP/1.1 200 OK\r\nAudit-Id: " + auditID +
		"\r\nCache-Control: no-cache, private" + encoding + "\r\nContent-Type: " + contentType + "\r\nDate: ")
	head = time.Now().UTC().AppendFormat(head, http.TimeFormat)
	for _, w := range warnings {
		head = append(head, "\r\nWarning: "+w...)
	}
	return append(head, "\r\nTransfer-Encoding: chunked"+vary+"\r\n\r\n"+begin...)
}

// responseWarnings returns the Warning headers of the lane's responses.
func (l *lane) responseWarnings() []string {
	if w := l.warnings.Load(); w != nil {
		return *w
	}
	return nil
}

func (l *lane) writeWarnings(ctx *fasthttp.RequestCtx) {
	for _, w := range l.responseWarnings() {
		ctx.Response.Header.Add("Warning", w)
	}
}

// sink writes to one client's socket without ever waiting for it, and keeps what did not go: of one batch, shared slices
// in plaintext, sealed records under TLS. It implements [fanout.Sink].
type sink struct {
	// Immutable.
	raw     syscall.RawConn
	tls     *tls.Conn   // nil in plaintext
	gather  *gatherConn // what tls writes to; nil in plaintext
	stopped func()      // tells the reader that the response has ended

	donec    chan struct{} // closed by End
	complete bool          // set before donec is closed
	evicted  *evidence     // why it was evicted, if it was; set before donec is closed
	watcher  *watcher      // immutable

	// Owned by whoever calls Write or Drain, which never overlap.
	rest [][]byte // not yet written
	keep [][]byte // memory for rest
	err  error
	try  func(fd uintptr) bool
}

func newSink(conn net.Conn, stopped func()) *sink {
	s := &sink{stopped: stopped, donec: make(chan struct{})}
	if t, ok := conn.(*tls.Conn); ok {
		s.tls = t
		s.gather = t.NetConn().(*gatherConn) // see Server.Listen
		conn = s.gather.TCPConn
	}
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		panic("SyscallConn: " + err.Error()) // only for a nil connection
	}
	s.raw = raw
	s.try = func(fd uintptr) bool {
		s.rest, s.err = writev(fd, s.rest)
		return true
	}
	return s
}

// headTimeout is how long a client may take to accept a response head.
const headTimeout = 10 * time.Second

// begin writes the response head; from here on nothing blocks.
func (s *sink) begin(head []byte) error {
	conn := net.Conn(s.tls)
	if s.tls == nil {
		blocked, err := s.Write([][]byte{head})
		if err == nil && blocked {
			err = errors.New("client does not read")
		}
		return err
	}
	_ = conn.SetWriteDeadline(time.Now().Add(headTimeout))
	if _, err := conn.Write(head); err != nil {
		return err
	}
	_ = conn.SetWriteDeadline(time.Time{})
	s.gather.hold()
	return nil
}

// Write implements fanout.Sink.
func (s *sink) Write(batch [][]byte) (blocked bool, err error) {
	if s.tls != nil {
		if err := s.seal(batch); err != nil {
			return false, err
		}
		return s.gather.flush()
	}
	s.rest = batch
	if err := s.raw.Write(s.try); err != nil {
		return false, err
	}
	if s.err != nil || len(s.rest) == 0 {
		s.rest = nil
		return false, s.err
	}
	s.keep = append(s.keep[:0], s.rest...)
	s.rest = s.keep
	return true, nil
}

// seal encrypts the batch in as few records as possible.
func (s *sink) seal(batch [][]byte) error {
	if len(batch) == 1 {
		_, err := s.tls.Write(batch[0])
		return err
	}
	buf := plaintexts.Get().(*[]byte)
	defer plaintexts.Put(buf)
	*buf = (*buf)[:0]
	for _, b := range batch {
		*buf = append(*buf, b...)
	}
	_, err := s.tls.Write(*buf)
	if cap(*buf) > maxPooled {
		*buf = nil
	}
	return err
}

// plaintexts are buffers in which a batch is put together to be sealed.
var plaintexts = sync.Pool{New: func() any { return new([]byte) }}

const maxPooled = 512 << 10

// Drain implements fanout.Sink.
func (s *sink) Drain() error {
	if s.tls != nil {
		return s.gather.drain(s.raw)
	}
	err := s.raw.Write(func(fd uintptr) bool {
		s.rest, s.err = writev(fd, s.rest)
		return s.err != nil || len(s.rest) == 0
	})
	clear(s.keep)
	s.keep, s.rest = nil, nil
	if err == nil {
		err = s.err
	}
	return err
}

// Evicted implements fanout.Evictee.
func (s *sink) Evicted(st fanout.State) { s.evicted = s.watcher.evidence(st, false) }

// End implements fanout.Sink.
func (s *sink) End(reason fanout.Reason, complete bool) {
	if reason != fanout.Evicted {
		s.evicted = nil
	}
	if complete {
		blocked, err := s.Write([][]byte{[]byte(framing.LastChunk)})
		complete = !blocked && err == nil
	}
	if s.gather != nil {
		s.gather.release(complete)
	}
	s.complete = complete
	s.stopped() // before donec, after which the connection's reader is another
	close(s.donec)
}

// gatherConn is the connection under TLS. While it holds, what TLS seals is gathered and written without waiting, so that
// a client that does not read blocks nobody, and the records of one batch leave in one write.
type gatherConn struct {
	*net.TCPConn

	mu      sync.Mutex // TLS answers some messages of the client from its reading side
	holding bool
	sealed  []byte // not yet written from here
	raw     syscall.RawConn
}

// Write implements net.Conn for TLS.
func (g *gatherConn) Write(p []byte) (int, error) {
	g.mu.Lock()
	if g.holding {
		g.sealed = append(g.sealed, p...)
		g.mu.Unlock()
		return len(p), nil
	}
	g.mu.Unlock()
	return g.TCPConn.Write(p)
}

func (g *gatherConn) hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holding = true
}

// release drops what is left. Unless the connection goes on, it holds on, so that TLS's farewell to a client that
// does not read is not waited for when the connection is closed.
func (g *gatherConn) release(goesOn bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holding, g.sealed = !goesOn, nil
}

// flush writes what goes without waiting.
func (g *gatherConn) flush() (blocked bool, err error) {
	if g.raw == nil {
		if g.raw, err = g.TCPConn.SyscallConn(); err != nil {
			return false, err
		}
	}
	var done bool
	if werr := g.raw.Write(func(fd uintptr) bool {
		done, err = g.writeTo(fd)
		return true
	}); werr != nil {
		return false, werr
	}
	return !done && err == nil, err
}

// drain waits until all is written.
func (g *gatherConn) drain(raw syscall.RawConn) (err error) {
	if werr := raw.Write(func(fd uintptr) bool {
		var done bool
		done, err = g.writeTo(fd)
		return done || err != nil
	}); werr != nil {
		return werr
	}
	return err
}

// writeTo writes what the socket takes and reports whether that was all.
func (g *gatherConn) writeTo(fd uintptr) (done bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	rest, err := writev(fd, [][]byte{g.sealed})
	if len(rest) == 0 {
		if g.sealed = g.sealed[:0]; cap(g.sealed) > 4<<10 {
			g.sealed = nil
		}
		return true, err
	}
	g.sealed = rest[0]
	return false, err
}

// gatherListener wraps accepted connections, for TLS to be put on top.
type gatherListener struct{ net.Listener }

func (l gatherListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	t, ok := c.(*net.TCPConn)
	if !ok {
		c.Close()
		return nil, errors.New("accepted a connection that is not TCP")
	}
	return &gatherConn{TCPConn: t}, nil
}

// advance drops the first n bytes of bufs, whose outer slice it may change.
func advance(bufs [][]byte, n int) [][]byte {
	for len(bufs) > 0 && n >= len(bufs[0]) {
		n -= len(bufs[0])
		bufs = bufs[1:]
	}
	if n > 0 {
		bufs[0] = bufs[0][n:]
	}
	return bufs
}
