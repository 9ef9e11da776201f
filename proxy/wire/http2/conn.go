package http2

import (
	"bytes"
	"crypto/tls"
	"sync"

	wire "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const (
	// maxFrame is the largest frame that is read, and the smallest value that RFC 9113 allows. A
	// client that sends half a frame costs no more.
	maxFrame = 16 << 10
	// streamWindow is how many bytes of a request's body may come before they are read; the same as
	// kube-apiserver's.
	streamWindow = exchange.MostBodyHeld
	// connWindow bounds the unread bodies of all requests of a connection, from the first body with an
	// owner on; see [exchange.Body].
	connWindow = 4 << 20
	// strangersWindow is that window before. Strangers have no more, whatever the number of their
	// streams. One body has as much on its stream.
	strangersWindow = streamWindow
	// defaultWindow is every window before SETTINGS and WINDOW_UPDATE (RFC 9113, section 6.9.2).
	defaultWindow = 65535
	// maxWindow is the largest window.
	maxWindow = 1<<31 - 1
	// maxReplies is how many answers to a client that does not read may wait: acknowledgements and
	// resets. maxControl is the same in bytes, of all frames other than DATA.
	maxReplies = 100
	maxControl = 256 << 10
)

// conn is one client's connection. Any goroutine may lock it, queue frames and send them. Nothing
// that holds the lock waits for the client. See the package's documentation for the goroutines.
type conn struct {
	*downstream.Conn // immutable once there are streams

	// Immutable.
	server  *Server
	tls     *tls.Conn // as the listener accepted it
	carrier *fanout.Carrier

	arrival sync.Once      // closes arrived
	arrived chan struct{}  // closed when the arrival has ended; see downstream.Arrival
	working sync.WaitGroup // goroutines, and streams that something works for; grows only before failed is set

	// Owned by the reading goroutine.
	reader *reader
	framer *wire.Framer // its writing side is guarded by mu, and appends to control
	heads  headDecoder
	held   *account.Entry // of a long head that is being read; nil for none
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

	streams openStreams
	zombies int       // reset streams whose handler runs
	waiters int       // goroutines that wait to send
	ready   []*stream // have something to send that their windows allow, in the order of turns
	past    pastStreams

	lastID   uint32 // the highest stream of the client so far
	servedID uint32 // the highest one that was not ignored

	window     int64 // what the client's connection window allows to send
	initial    int64 // window of a new stream
	frameSize  int   // the client's MAX_FRAME_SIZE
	sent       int64 // bytes of DATA so far
	credit     int   // bytes of DATA for which the client may send frames; see type calm
	receive    int64 // the client's window for bodies: strangersWindow, later connWindow
	unread     int64 // of receive, taken by bodies that were not read yet
	unreturned int64 // read since the last WINDOW_UPDATE

	ending   ending
	idleFrom fanout.MonotonicTime // since when no stream is open
	headFrom fanout.MonotonicTime // when the header block began that is being read; 0 for none
	timed    bool                 // the reader has a deadline
}

// newConn returns the connection of t. It sends the server's SETTINGS.
func newConn(s *Server, t *tls.Conn) *conn {
	c := &conn{
		server:    s,
		tls:       t,
		arrived:   make(chan struct{}),
		window:    defaultWindow,
		receive:   strangersWindow,
		initial:   defaultWindow,
		frameSize: maxFrame,
		idleFrom:  fanout.MonotonicNow(),
	}
	c.reader = &reader{conn: c}
	c.framer = wire.NewFramer(&c.control, c.reader)
	c.framer.SetMaxReadFrameSize(maxFrame)
	c.framer.SetReuseFrames()
	c.heads.init(c.holdHead)
	c.calm = newCalm(s.maxStreams)
	c.encoder = hpack.NewEncoder(&c.encoded)
	c.carrier = fanout.NewCarrier(c.flush)
	c.out = downstream.NewSharedWriter(t, s.Poller, s.Guard, c.roomAgain)
	c.mu.Lock()
	defer c.unlock()
	_ = c.framer.WriteSettings(
		wire.Setting{ID: wire.SettingMaxConcurrentStreams, Val: uint32(s.maxStreams)},
		wire.Setting{ID: wire.SettingInitialWindowSize, Val: streamWindow},
		wire.Setting{ID: wire.SettingMaxHeaderListSize, Val: maxHeaderList},
	)
	_ = c.framer.WriteWindowUpdate(0, uint32(c.receive-defaultWindow))
	c.sendLocked()
	return c
}

// serve reads the connection until it ends, and waits until nothing works for it.
func (c *conn) serve() {
	c.Conn = c.server.Conns.Shared(c.tls, c.goAway)
	c.Rest(true) // it has no stream yet
	c.end(c.readCaught())
	c.reader.giveBack()
	c.working.Wait()
	c.mu.Lock()
	c.out.Close()
	c.unlock()
}

// readCaught is read, and ends the connection after a panic.
func (c *conn) readCaught() (err error) {
	defer c.server.Guard.Caught("HTTP/2 connection", func() { err = wire.ConnectionError(wire.ErrCodeInternal) })
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

// locked calls f with the lock. A panic in it ends the connection.
func (c *conn) locked(f func()) {
	defer c.server.Guard.Caught("HTTP/2 connection's write", c.abort)
	c.mu.Lock()
	defer c.unlock()
	f()
}

// flush sends what is due. It is the carrier's.
func (c *conn) flush() { c.locked(c.sendLocked) }

// roomAgain goes on when the socket has room.
func (c *conn) roomAgain() {
	c.locked(func() {
		if c.failed == nil {
			c.flushLocked() // the rest
			c.sendLocked()
			c.wakeAllLocked()
		}
	})
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
	c.Rest(true)
	if c.Last() {
		c.goAwayLocked()
	}
	if !c.timed {
		c.setDeadlineLocked(c.idleFrom)
	}
}
