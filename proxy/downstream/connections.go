package downstream

import (
	"crypto/tls"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/watchfan/watchfan/fanout"
)

// Connections knows every client connection, whatever protocol it speaks. So shutdown can wait for
// all of them and leave none behind.
type Connections struct {
	maxAge time.Duration // Options.MaxConnectionAge

	emptyOnce sync.Once
	Empty     chan struct{} // closed once closing is set and open is empty; never sent on

	mu      sync.Mutex
	open    map[net.Conn]*Conn // keyed by the accepted connection
	closing bool               // no new request is served on a kept-alive connection
}

// connState is what happens on a connection.
type connState int

const (
	silent connState = iota // it has yet to bring its first request
	busy                    // a request is being answered
	idle                    // it is between two requests
)

// Conn is a client's connection. It implements [exchange.Conn].
type Conn struct {
	all      *Connections
	accepted net.Conn             // as the listener accepted it
	old      fanout.MonotonicTime // when it is as old as one may get; 0 for never
	state    connState            // guarded by all.mu
}

// NewConnections returns no connections yet. None gets older than maxAge; 0 is no limit.
func NewConnections(maxAge time.Duration) *Connections {
	return &Connections{maxAge: maxAge, open: make(map[net.Conn]*Conn), Empty: make(chan struct{})}
}

// Opened notes a connection that the listener has accepted.
func (cs *Connections) Opened(c net.Conn) { cs.wait(c, silent) }

// Resting notes that a response has been written on c, which can carry another request. The
// connection is closed if we are stopping.
func (cs *Connections) Resting(c net.Conn) { cs.wait(c, idle) }

func (cs *Connections) wait(c net.Conn, state connState) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.setLocked(c, state)
	if cs.closing {
		_ = c.Close()
	}
}

// Serving notes that a request of c is being answered.
func (cs *Connections) Serving(c net.Conn) *Conn {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.setLocked(c, busy)
}

// setLocked notes what is happening on a connection. For a new one it decides how old it may get:
// up to a tenth more or less than maxAge. So connections that come together do not leave together.
func (cs *Connections) setLocked(c net.Conn, state connState) *Conn {
	known := cs.open[c]
	if known == nil {
		known = &Conn{all: cs, accepted: c}
		if cs.maxAge > 0 {
			known.old = fanout.MonotonicOf(time.Now().Add(cs.maxAge - cs.maxAge/10 + rand.N(cs.maxAge/5+1)))
		}
		cs.open[c] = known
	}
	known.state = state
	return known
}

// Closed notes that c has been closed. It may be called more than once.
func (cs *Connections) Closed(c net.Conn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if _, ok := cs.open[c]; ok {
		delete(cs.open, c)
		cs.checkEmptyLocked()
	}
}

func (cs *Connections) checkEmptyLocked() {
	if cs.closing && len(cs.open) == 0 {
		cs.emptyOnce.Do(func() { close(cs.Empty) })
	}
}

// Count is how many connections there are.
func (cs *Connections) Count() int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return len(cs.open)
}

// BeginClosing closes the connections between two requests; the others end with their current one,
// or their first.
func (cs *Connections) BeginClosing() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.closing {
		return
	}
	cs.closing = true
	cs.closeLocked(idle)
	cs.checkEmptyLocked()
}

// CloseSilent closes the connections that have yet to bring their first request.
func (cs *Connections) CloseSilent() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.closeLocked(silent)
}

func (cs *Connections) closeLocked(state connState) {
	for c, known := range cs.open {
		if known.state == state {
			_ = c.Close()
		}
	}
}

// CloseAll closes what is left and reports how many connections that were.
func (cs *Connections) CloseAll() int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.open {
		_ = c.Close()
	}
	return len(cs.open)
}

// KeepAlive notes that c waits for another request, and reports whether it may carry one.
func (cs *Connections) KeepAlive(c net.Conn) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if known := cs.open[c]; cs.closing || known != nil && known.aged() {
		return false
	}
	cs.setLocked(c, idle)
	return true
}

// aged reports whether the connection is as old as one may get.
func (c *Conn) aged() bool { return c.old != 0 && fanout.MonotonicNow() >= c.old }

// Last reports whether the connection is to carry no request after the present one.
func (c *Conn) Last() bool {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	return c.all.closing || c.aged()
}

// Remaining is for how long a watch on the connection may last; ok is false if that is not limited.
func (c *Conn) Remaining() (d time.Duration, ok bool) {
	return max(time.Until(c.old.Time()), 1), c.old != 0
}

// RemoteAddr returns the address that the client comes from.
func (c *Conn) RemoteAddr() net.Addr { return c.accepted.RemoteAddr() }

// Left reports whether the client has left, as far as can be told without reading.
func (c *Conn) Left() bool { return HasLeft(c.TCP()) }

// TCP returns the TCP connection below.
func (c *Conn) TCP() *net.TCPConn { return TCPConn(c.accepted) }

// withTLS is what a connection with TLS can be asked.
type withTLS interface{ ConnectionState() tls.ConnectionState }

// Secure reports whether the connection has TLS.
func (c *Conn) Secure() bool {
	_, ok := c.accepted.(withTLS)
	return ok
}

// TLS returns what is known of the connection's TLS, nil if it has none.
func (c *Conn) TLS() *tls.ConnectionState {
	t, ok := c.accepted.(withTLS)
	if !ok {
		return nil
	}
	state := t.ConnectionState()
	return &state
}

// Arriving reports whether the connection's arrival goes on.
func (c *Conn) Arriving() bool {
	a := arrivalOf(c.accepted)
	return a != nil && !a.over.Load()
}

// EndArrival ends it.
func (c *Conn) EndArrival() { arrivalOf(c.accepted).End() }
