package proxy

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// stream serves a watch over a connection that is ours until it ends. It does not wait for that: ended is then called on a
// goroutine of its own, with the reason, why the watch was revoked if it was, and whether the response is complete.
func (c *cachedReads) stream(h *hijacked, r *cachedRead, w *watcher, head []byte, ended func(reason fanout.Reason, because string, complete bool)) {
	sub, sink := w.sub, newSink(h.Conn(), c.poller)
	sink.watcher, sink.log = w, w.lane.log
	gone := func() { sub.End(fanout.Ending{Reason: fanout.Gone}) }
	sink.gone, sink.drop = gone, h.Close
	began := false
	defer func() {
		if !began { // the client is gone, or this panics
			sub.Cancel()
			ended(fanout.Gone, "", false)
		}
	}()
	if sink.begin(head, func() { h.WaitRead(gone) }) != nil {
		return
	}
	release := c.auth.watchGrant(r.id, r.request, func() { sub.End(fanout.Ending{Reason: fanout.Revoked}) })
	c.watchers.add(w)
	sink.ended = func(reason fanout.Reason, complete bool) {
		c.watchers.remove(w)
		because := release()
		if sink.evicted != nil {
			c.logEvicted(w, sink.evicted)
		}
		ended(reason, because, complete)
	}
	began = true
	c.flusher.Start(sub, sink)
}

// watchHead is the response head of a watch, as kube-apiserver's
// (k8s.io/apiserver/pkg/endpoints/handlers/watch.go, HandleHTTP). With gzip, the body's beginning comes with it.
func watchHead(auditID, contentType string, warnings []string, gzip, last bool) []byte {
	var encoding, vary, begin, connection string
	if gzip {
		encoding, vary, begin = "\r\nContent-Encoding: gzip", "\r\nVary: Accept-Encoding", framing.GzipStart
	}
	if last {
		connection = "\r\nConnection: close"
	}
	head := []byte("HTTP/1.1 200 OK\r\nAudit-Id: " + auditID +
		"\r\nCache-Control: no-cache, private" + connection + encoding + "\r\nContent-Type: " + contentType + "\r\nDate: ")
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
// in plaintext, sealed records under TLS. It implements [fanout.Sink], and has no goroutine.
type sink struct {
	// Immutable once begun.
	raw    syscall.RawConn
	tls    *tls.Conn   // nil in plaintext
	gather *gatherConn // what tls writes to; nil in plaintext
	poller *poller     // nil if it can't poll the connection
	ended  func(reason fanout.Reason, complete bool)
	gone   func() // ends the watch; nil in tests
	drop   func() // closes the connection, once the watch has ended; nil in tests
	log    *slog.Logger

	watcher *watcher
	evicted *evidence // why it was evicted, if it was; set before ended is called

	read    atomic.Pointer[func()]      // to be called once when there may be something to read; nil when it has been, and after End
	drained atomic.Pointer[func(error)] // Drain's done, while there is a rest and no room
	room    atomic.Bool                 // set when there is room again

	// Owned by whoever calls Write or drains, which never overlap.
	rest [][]byte // not yet written
	keep [][]byte // memory for rest
	err  error
	try  func(fd uintptr)
}

func newSink(conn net.Conn, p *poller) *sink {
	s := &sink{poller: p}
	if t, ok := conn.(*tls.Conn); ok {
		s.tls = t
		s.gather = t.NetConn().(*gatherConn) // see Server.Listen
	}
	raw, err := tcpConn(conn).SyscallConn()
	if err != nil {
		panic("SyscallConn: " + err.Error()) // only for a nil connection
	}
	s.raw = raw
	s.try = s.writeTo
	return s
}

// headTimeout is how long a client may take to accept a response head.
const headTimeout = 10 * time.Second

// begin writes the response head; from here on nothing blocks. When there may be something to read, read is called, on a goroutine of
// its own.
func (s *sink) begin(head []byte, read func()) error {
	if err := s.writeHead(head); err != nil {
		return err
	}
	s.read.Store(&read)
	if s.poller.add(s.raw, s) != nil { // no memory for it, or another system
		s.poller = nil
		s.readable()
	}
	return nil
}

func (s *sink) writeHead(head []byte) error {
	if s.tls == nil {
		blocked, err := s.Write([][]byte{head})
		if err == nil && blocked {
			err = errors.New("client does not read")
		}
		return err
	}
	_ = s.tls.SetWriteDeadline(time.Now().Add(headTimeout))
	if _, err := s.tls.Write(head); err != nil {
		return err
	}
	_ = s.tls.SetWriteDeadline(time.Time{})
	s.gather.hold()
	return nil
}

// readable implements pollable.
func (s *sink) readable() {
	if read := s.read.Swap(nil); read != nil {
		go func() {
			defer caught(s.log, "watch's reader", s.gone)
			(*read)()
		}()
	}
}

// Write implements fanout.Sink.
func (s *sink) Write(batch [][]byte) (blocked bool, err error) {
	defer caught(s.log, "watch's write", func() { blocked, err = false, errPanicked })
	if s.tls != nil {
		if err := s.seal(batch); err != nil {
			return false, err
		}
		return s.writeRest()
	}
	s.rest = batch
	blocked, err = s.writeRest()
	if !blocked || err != nil {
		s.rest = nil
		return false, err
	}
	s.keep = append(s.keep[:0], s.rest...)
	s.rest = s.keep
	return true, nil
}

// writeRest writes what goes without waiting.
func (s *sink) writeRest() (blocked bool, err error) {
	// Control, which does not prepare Go's runtime for a wait that will not be.
	if err := s.raw.Control(s.try); err != nil {
		return false, err
	}
	return s.hasRest(), s.err
}

// writeTo is one attempt of writeRest.
func (s *sink) writeTo(fd uintptr) {
	if s.gather != nil {
		s.err = s.gather.writeTo(fd)
		return
	}
	s.rest, s.err = writev(fd, s.rest)
}

func (s *sink) hasRest() bool {
	if s.gather != nil {
		return s.gather.hasRest()
	}
	return len(s.rest) > 0
}

// seal encrypts the batch in as few records as possible.
func (s *sink) seal(batch [][]byte) error {
	if len(batch) == 1 {
		_, err := s.tls.Write(batch[0])
		return err
	}
	buf := buffers.Get().(*[]byte)
	defer giveBack(buf)
	for _, b := range batch {
		*buf = append(*buf, b...)
	}
	_, err := s.tls.Write(*buf)
	return err
}

// buffers are empty buffers in which a batch is put together to be sealed, and in which what is sealed waits to be written: for as long
// as that takes, so that an idle client has none.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

const maxPooled = 512 << 10

func giveBack(buf *[]byte) {
	if *buf = (*buf)[:0]; cap(*buf) <= maxPooled {
		buffers.Put(buf)
	}
}

// Drain implements fanout.Sink.
func (s *sink) Drain(done func(error)) {
	if s.poller == nil {
		go func() {
			defer caught(s.log, "watch's drain", func() { done(errPanicked) })
			done(s.wait())
		}()
		return
	}
	defer caught(s.log, "watch's drain", func() { done(errPanicked) })
	s.drain(&done)
}

// drain writes what goes, and leaves the rest, and done, to writable. Room that has come since the socket last took too little is
// seen here or there: it is noted before drained is looked at there, and looked at here after drained is stored.
func (s *sink) drain(done *func(error)) {
	for {
		s.room.Store(false)
		blocked, err := s.writeRest()
		if !blocked || err != nil {
			clear(s.keep)
			s.keep, s.rest = nil, nil
			(*done)(err)
			return
		}
		s.drained.Store(done)
		if !s.room.Load() || !s.drained.CompareAndSwap(done, nil) {
			return
		}
	}
}

// writable implements pollable.
func (s *sink) writable() {
	defer caught(s.log, "watch's drain", s.gone) // the poller's goroutine is everybody's
	s.room.Store(true)
	if done := s.drained.Swap(nil); done != nil {
		s.drain(done)
	}
}

// wait writes the rest as the client takes it, and waits for that.
func (s *sink) wait() error {
	err := s.raw.Write(func(fd uintptr) bool {
		s.writeTo(fd)
		return s.err != nil || !s.hasRest()
	})
	clear(s.keep)
	s.keep, s.rest = nil, nil
	if err == nil {
		err = s.err
	}
	return err
}

// Evicted implements fanout.Evictee.
func (s *sink) Evicted(st fanout.State) {
	defer caught(s.log, "watch's eviction", nil) // it is ended, without evidence
	s.evicted = s.watcher.evidence(st, false)
}

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
	s.read.Store(nil)
	go func() {
		defer caught(s.log, "watch's end", s.drop)
		if s.poller != nil {
			s.poller.remove(s.raw, s)
		}
		s.ended(reason, complete)
	}()
}

// gatherConn is the connection under TLS. While it holds, what TLS seals is gathered and written without waiting, so that
// a client that does not read blocks nobody, and the records of one batch leave in one write.
type gatherConn struct {
	*net.TCPConn
	arrival *arrival // nil is none

	mu      sync.Mutex // TLS answers some messages of the client from its reading side
	holding bool
	sealed  *[]byte   // not yet written from here; nil if there is nothing, else one of buffers
	one     [1][]byte // memory for a writev of it
}

// Read implements net.Conn for TLS.
func (g *gatherConn) Read(p []byte) (int, error) { return g.arrival.read(g.TCPConn, p) }

// Close implements net.Conn.
func (g *gatherConn) Close() error {
	g.arrival.end()
	return g.TCPConn.Close()
}

// Write implements net.Conn for TLS.
func (g *gatherConn) Write(p []byte) (int, error) {
	g.mu.Lock()
	if g.holding {
		if g.sealed == nil {
			g.sealed = buffers.Get().(*[]byte)
		}
		*g.sealed = append(*g.sealed, p...)
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

// sealedBytes ends holding, and returns what has been sealed meanwhile, one of buffers; nil is nothing.
func (g *gatherConn) sealedBytes() *[]byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	sealed := g.sealed
	g.holding, g.sealed = false, nil
	return sealed
}

// writeTo writes what the socket takes.
func (g *gatherConn) writeTo(fd uintptr) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sealed == nil {
		return nil
	}
	g.one[0] = *g.sealed
	rest, err := writev(fd, g.one[:])
	if len(rest) > 0 {
		*g.sealed = rest[0]
		return err
	}
	giveBack(g.sealed)
	g.sealed = nil
	return err
}

func (g *gatherConn) hasRest() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sealed != nil
}

// clientListener wraps accepted connections: their arrival takes turns, and with tls they are made for TLS to be put on top.
type clientListener struct {
	net.Listener
	arrivals *arrivals
	tls      bool
}

func (l clientListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	t, ok := c.(*net.TCPConn)
	if !ok {
		c.Close()
		return nil, errors.New("accepted a connection that is not TCP")
	}
	if l.tls {
		return &gatherConn{TCPConn: t, arrival: &arrival{all: l.arrivals}}, nil
	}
	return &arrivingConn{TCPConn: t, arrival: arrival{all: l.arrivals}}, nil
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
