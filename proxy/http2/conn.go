package http2

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"time"

	wire "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/downstream"
	"github.com/watchfan/watchfan/proxy/request"
)

const (
	// maxFrame is the largest frame that is read, and the smallest value that RFC 9113 allows. A
	// client that sends half a frame costs no more.
	maxFrame = 16 << 10
	// streamWindow is how many bytes of a request's body may come before they are read; the same as
	// kube-apiserver's.
	streamWindow = 256 << 10
	// connWindow bounds the unread bodies of all requests of a connection. kube-apiserver's is 26
	// MB.
	connWindow = 4 << 20
	// defaultWindow is every window before SETTINGS (RFC 9113, section 6.9.2).
	defaultWindow = 65535
	// maxWindow is the largest window.
	maxWindow = 1<<31 - 1
	// maxReplies is how many answers to a client that does not read may wait: acknowledgements and
	// resets. maxControl is the same in bytes, of all frames other than DATA.
	maxReplies = 100
	maxControl = 256 << 10
	// lastFramesTimeout is how long a client may take to answer the first GOAWAY, or to close the
	// connection after the last.
	lastFramesTimeout = time.Second
	// keptClosed is how many closed streams are remembered. Frames for them may still be under way.
	keptClosed = 32
)

// conn is one client's connection. Any goroutine may lock it, queue frames and send them. Nothing
// that holds the lock waits for the client. See the package's documentation for the goroutines.
type conn struct {
	// Immutable.
	server  *Server
	tls     *tls.Conn // as the listener accepted it
	shared  *downstream.Conn
	carrier *fanout.Carrier

	arrival sync.Once      // closes arrived
	arrived chan struct{}  // closed when the arrival has ended; see downstream.Arrival
	working sync.WaitGroup // goroutines, and streams that something works for; grows only before failed is set

	// Owned by the reading goroutine.
	reader *reader
	framer *wire.Framer // its writing side is guarded by mu, and appends to control
	heads  headDecoder
	calm   calm

	mu     sync.Mutex // guards the rest and all streams; taken before a shard's
	queued []func()   // called after the lock has been given back
	out    *downstream.SharedWriter
	failed error // why the connection is broken; nil while it is not
	full   bool  // the socket has a rest; roomAgain goes on
	going  bool  // goOn runs

	control bytes.Buffer // frames other than DATA, which go before all DATA
	replies int          // in control
	encoder *hpack.Encoder
	encoded bytes.Buffer // what encoder has written
	header  [frameHeaderLen]byte

	streams map[uint32]*stream       // open on the wire
	zombies int                      // reset streams whose handler runs
	waiters int                      // goroutines that wait to send
	ready   []*stream                // have something to send that their windows allow, in the order of turns
	closed  [keptClosed]closedStream // the last streams that were closed, in a ring

	lastClosed int    // next in closed
	lastID     uint32 // the highest stream of the client so far
	servedID   uint32 // the highest one that was not ignored

	window     int64 // what the client's connection window allows to send
	initial    int64 // window of a new stream
	frameSize  int   // the client's MAX_FRAME_SIZE
	credit     int   // bytes of DATA since the reader last counted them; see type calm
	unread     int64 // of connWindow, taken by bodies that were not read yet
	unreturned int64 // read since the last WINDOW_UPDATE

	ending   ending
	idleFrom fanout.MonotonicTime // since when no stream is open
	timed    bool                 // the reader has a deadline
}

// ending is how far the end of a connection has come.
type ending int

const (
	lasting  ending = iota
	warned          // GOAWAY says that the client should open no streams; those that come are served
	refusing        // the second GOAWAY names the last stream; the connection closes when all have ended
	ended
)

// newConn returns the connection of t. It sends the server's SETTINGS.
func newConn(s *Server, t *tls.Conn) (*conn, error) {
	c := &conn{
		server:    s,
		tls:       t,
		arrived:   make(chan struct{}),
		streams:   make(map[uint32]*stream),
		window:    defaultWindow,
		initial:   defaultWindow,
		frameSize: maxFrame,
		idleFrom:  fanout.MonotonicNow(),
	}
	c.reader = &reader{conn: c}
	c.framer = wire.NewFramer(&c.control, c.reader)
	c.framer.SetMaxReadFrameSize(maxFrame)
	c.framer.SetReuseFrames()
	c.heads.init()
	c.calm.init(s.maxStreams)
	c.encoder = hpack.NewEncoder(&c.encoded)
	c.carrier = fanout.NewCarrier(c.flush)
	var err error
	if c.out, err = downstream.NewSharedWriter(t, s.poller, c.roomAgain); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.unlock()
	_ = c.framer.WriteSettings(
		wire.Setting{ID: wire.SettingMaxConcurrentStreams, Val: uint32(s.maxStreams)},
		wire.Setting{ID: wire.SettingInitialWindowSize, Val: streamWindow},
		wire.Setting{ID: wire.SettingMaxHeaderListSize, Val: maxHeaderList},
	)
	_ = c.framer.WriteWindowUpdate(0, connWindow-defaultWindow)
	c.sendLocked()
	return c, nil
}

// serve reads the connection until it ends, and waits until nothing works for it.
func (c *conn) serve() {
	c.shared = c.server.conns.Shared(c.tls, c.goAway)
	c.end(c.readCaught())
	c.working.Wait()
	c.mu.Lock()
	c.out.Close()
	c.unlock()
}

// readCaught is read, and ends the connection after a panic.
func (c *conn) readCaught() (err error) {
	defer request.Caught(c.server.log, "HTTP/2 connection", func() { err = wire.ConnectionError(wire.ErrCodeInternal) })
	return c.read()
}

// unlock gives the lock back, and calls what was queued.
func (c *conn) unlock() {
	queued := c.queued
	c.queued = nil
	c.mu.Unlock()
	for _, call := range queued {
		call()
	}
}

// end ends the connection because of err, which the reader has met.
func (c *conn) end(err error) {
	code, broken := codeOf(err)
	c.mu.Lock()
	if c.failed == nil && (broken || err == errSilent && c.ending < refusing) {
		_ = c.framer.WriteGoAway(c.servedID, code, nil)
	}
	c.sendLocked()
	c.failLocked(net.ErrClosed)
	c.out.Finish()
	c.unlock()
	if broken {
		brokenConnections.Inc()
	}
	if broken || err == errSilent {
		c.linger()
	}
}

// linger lets the client read the last frames and close the connection. A connection that is closed with bytes unread is
// reset, and its client may lose what was sent before.
func (c *conn) linger() {
	_ = c.tls.CloseWrite()
	tcp := c.shared.TCP()
	_ = tcp.SetReadDeadline(time.Now().Add(lastFramesTimeout))
	_, _ = io.CopyN(io.Discard, tcp, maxControl)
}

// failLocked ends all streams. No frame is sent afterwards.
func (c *conn) failLocked(err error) {
	if c.failed != nil {
		return
	}
	c.failed, c.ending = err, ended
	for _, st := range c.streams {
		c.dropLocked(st, errLeft)
	}
	c.ready = nil
	c.stopReading()
}

// abort ends the connection at once.
func (c *conn) abort() {
	c.mu.Lock()
	defer c.unlock()
	c.failLocked(request.ErrPanicked)
}

// stopReading makes the reader return.
func (c *conn) stopReading() { _ = c.tls.SetReadDeadline(time.Now()) }

// goAway makes the client open no further streams here. What is open goes on. It is called when the
// proxy stops. RFC 9113, section 6.8: streams that the client has opened before it sees the first
// GOAWAY are served.
func (c *conn) goAway() {
	c.mu.Lock()
	defer c.unlock()
	c.goAwayLocked()
	c.sendLocked()
}

// goAwayLocked queues the first GOAWAY.
func (c *conn) goAwayLocked() {
	if c.ending != lasting {
		return
	}
	c.ending = warned
	_ = c.framer.WriteGoAway(maxWindow, wire.ErrCodeNo, nil)
	_ = c.framer.WritePing(false, goAwayPing)
	time.AfterFunc(lastFramesTimeout, c.refuseNew)
}

// goAwayPing is answered when the client has seen the first GOAWAY.
var goAwayPing = [8]byte{'g', 'o', 'i', 'n', 'g'}

// refuseNew sends the second GOAWAY. Later streams are ignored. The client sends their requests
// again on another connection.
func (c *conn) refuseNew() {
	defer request.Caught(c.server.log, "HTTP/2 connection's write", c.abort)
	c.mu.Lock()
	defer c.unlock()
	if c.ending != warned {
		return
	}
	c.ending = refusing
	_ = c.framer.WriteGoAway(c.servedID, wire.ErrCodeNo, nil)
	c.sendLocked()
}

// checkEndedLocked ends a connection that refuses new streams and has none left, once the client
// has been sent everything.
func (c *conn) checkEndedLocked() {
	if c.ending == refusing && len(c.streams) == 0 && !c.full {
		c.ending = ended
		c.stopReading()
	}
}

// roomAgain goes on when the socket has room.
func (c *conn) roomAgain() {
	defer request.Caught(c.server.log, "HTTP/2 connection's write", c.abort)
	c.mu.Lock()
	defer c.unlock()
	if c.failed != nil {
		return
	}
	c.flushLocked() // the rest
	c.sendLocked()
	if !c.full {
		c.wakeAllLocked()
	}
}

// wakeAllLocked wakes the goroutines that wait for room in the socket or in the client's window.
func (c *conn) wakeAllLocked() {
	if c.waiters == 0 {
		return
	}
	for _, st := range c.streams {
		st.wake()
	}
}

// restLocked goes on after the last stream has been closed.
func (c *conn) restLocked() {
	if c.failed != nil {
		return
	}
	c.idleFrom = fanout.MonotonicNow()
	if c.shared.Last() {
		c.goAwayLocked()
	}
	if !c.timed {
		c.timed = true
		_ = c.tls.SetReadDeadline(time.Now().Add(downstream.IdleTimeout))
	}
}

// flush is the carrier's.
func (c *conn) flush() {
	defer request.Caught(c.server.log, "HTTP/2 connection's write", c.abort)
	c.mu.Lock()
	defer c.unlock()
	c.sendLocked()
}
