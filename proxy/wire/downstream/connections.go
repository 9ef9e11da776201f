package downstream

import (
	"crypto/tls"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/base/account"
)

// Connections holds every client connection, of every protocol. Shutdown waits for all of them and
// leaves none behind. It closes connections while it holds mu, so no close may wait for a client.
type Connections struct {
	maxAge time.Duration // Options.MaxConnectionAge
	ledger *account.Ledger

	Empty chan struct{} // closed once closing is set and open is empty; never sent on

	mu      sync.Mutex
	open    map[net.Conn]*Conn   // keyed by the accepted connection
	from    map[netip.Prefix]int // how many there are of each address
	closing bool                 // a kept-alive connection serves no new request
	empty   bool                 // Empty is closed
}

// connState is the state of a connection.
type connState int

const (
	silent connState = iota // its first request has not come yet
	busy                    // a request is being answered
	idle                    // between two requests
)

// Conn is a client's connection. It implements [exchange.Conn].
type Conn struct {
	all      *Connections
	accepted net.Conn             // as the listener accepted it
	old      fanout.MonotonicTime // when it reaches its maximum age; 0 for never
	state    connState            // guarded by all.mu
	away     bool                 // dismissed; guarded by all.mu
	awayc    chan struct{}        // closed when away is set; nil until Dismissed is called; guarded by all.mu
	end      func()               // from Shared; nil for other connections; guarded by all.mu
	entry    *account.Entry       // what it holds between requests
	payer    atomic.Pointer[account.Source]
}

// atRest is what a connection takes without a request: its TLS, and buffers for the next head.
const atRest = 40 << 10

// NewConnections returns an empty set of connections. maxAge is the maximum age of a connection,
// give or take a tenth; 0 is no limit. What connections hold counts in ledger.
func NewConnections(maxAge time.Duration, ledger *account.Ledger) *Connections {
	return &Connections{
		maxAge: maxAge, ledger: ledger,
		open: make(map[net.Conn]*Conn), from: make(map[netip.Prefix]int), Empty: make(chan struct{}),
	}
}

// Opened records a connection that the listener has accepted. It closes c during shutdown, and if its
// address has no room for it; see Rest.
func (cs *Connections) Opened(c net.Conn) { cs.wait(c, silent) }

// Resting records that a response has been written on c and that c can carry another request.
// During shutdown it closes c.
func (cs *Connections) Resting(c net.Conn) { cs.wait(c, idle) }

func (cs *Connections) wait(c net.Conn, state connState) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.setLocked(c, state)
	if cs.closing {
		closeNow(c)
	}
}

// Serving records that a request of c is being answered.
func (cs *Connections) Serving(c net.Conn) *Conn {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.setLocked(c, busy)
}

// Shared records that c carries several requests at a time, until it is closed. BeginClosing calls
// end instead of closing c. end must not wait, and must make c close when its requests have ended.
func (cs *Connections) Shared(c net.Conn, end func()) *Conn {
	cs.mu.Lock()
	known := cs.setLocked(c, busy)
	known.end = end
	closing := cs.closing
	cs.mu.Unlock()
	if closing {
		end()
	}
	return known
}

// setLocked records the state of a connection. For a new connection it picks the maximum age:
// maxAge, give or take a tenth at random. Connections that come together then do not leave
// together.
func (cs *Connections) setLocked(c net.Conn, state connState) *Conn {
	known := cs.open[c]
	if known == nil {
		known = &Conn{all: cs, accepted: c}
		if cs.maxAge > 0 {
			known.old = fanout.MonotonicOf(time.Now().Add(cs.maxAge - cs.maxAge/10 + rand.N(cs.maxAge/5+1)))
		}
		cs.open[c] = known
		address := account.AddressOf(c.RemoteAddr())
		cs.from[address]++
		known.entry = cs.ledger.Open(account.StrangerAt(address), account.Connections, known.Break)
	}
	known.state = state
	known.Rest(state != busy)
	return known
}

// Closed records that c has been closed. It may be called more than once.
func (cs *Connections) Closed(c net.Conn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	known, ok := cs.open[c]
	if !ok {
		return
	}
	delete(cs.open, c)
	known.entry.Close()
	address := account.AddressOf(c.RemoteAddr())
	if cs.from[address]--; cs.from[address] == 0 {
		delete(cs.from, address)
	}
	cs.checkEmptyLocked()
}

func (cs *Connections) checkEmptyLocked() {
	if cs.closing && len(cs.open) == 0 && !cs.empty {
		cs.empty = true
		close(cs.Empty)
	}
}

// Count returns the number of connections.
func (cs *Connections) Count() int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return len(cs.open)
}

// From returns the number of connections of one address.
func (cs *Connections) From(address netip.Prefix) int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.from[address]
}

// BeginClosing closes the connections that are between two requests. The others end with their
// current request, or with their first.
func (cs *Connections) BeginClosing() {
	cs.mu.Lock()
	var ends []func() // of shared connections
	for _, known := range cs.open {
		if known.end != nil && !cs.closing {
			ends = append(ends, known.end)
		}
	}
	cs.closing = true
	cs.closeLocked(idle)
	cs.checkEmptyLocked()
	cs.mu.Unlock()
	for _, end := range ends {
		end()
	}
}

// Dismiss tells the clients of up to most connections, drawn at random, to use others from now on. It
// closes none: the next answer of each says so, HTTP/2 sends GOAWAY, and what is under way goes on.
// Each connection is told once. It returns how many it has told.
func (cs *Connections) Dismiss(most int) (told int) {
	cs.mu.Lock()
	var ends []func() // of shared connections
	for _, known := range cs.open {
		if told == most {
			break
		}
		if known.away {
			continue
		}
		told++
		known.away = true
		if known.awayc != nil {
			close(known.awayc)
		}
		if known.end != nil {
			ends = append(ends, known.end)
		}
	}
	cs.mu.Unlock()
	for _, end := range ends {
		end()
	}
	return told
}

// CloseSilent closes the connections whose first request has not come yet.
func (cs *Connections) CloseSilent() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.closeLocked(silent)
}

func (cs *Connections) closeLocked(state connState) {
	for c, known := range cs.open {
		if known.state == state {
			closeNow(c)
		}
	}
}

// CloseAll closes the remaining connections and returns their number.
func (cs *Connections) CloseAll() int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.open {
		closeNow(c)
	}
	return len(cs.open)
}

// KeepAlive records that c waits for another request, and reports whether c may carry one.
func (cs *Connections) KeepAlive(c net.Conn) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if known := cs.open[c]; cs.closing || known != nil && known.overLocked() {
		return false
	}
	cs.setLocked(c, idle)
	return true
}

// Rest says whether c carries no request. Then it counts for its payer. It is closed if a stranger has no
// room for it, or later if its payer holds most when memory is short.
func (c *Conn) Rest(rests bool) {
	switch {
	case !rests:
		c.entry.Set(0)
	case !c.entry.Set(atRest):
		c.Break()
	}
}

// aged reports whether the connection has reached its maximum age.
func (c *Conn) aged() bool { return c.old != 0 && fanout.MonotonicNow() >= c.old }

// overLocked reports whether the connection carries no further request.
func (c *Conn) overLocked() bool { return c.away || c.aged() }

// Last reports whether the connection carries no request after the present one.
func (c *Conn) Last() bool {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	return c.all.closing || c.overLocked()
}

// The other methods are as exchange.Conn describes them.

func (c *Conn) Payer() account.Source {
	if payer := c.payer.Load(); payer != nil {
		return *payer
	}
	return account.StrangerAt(account.AddressOf(c.RemoteAddr()))
}

func (c *Conn) KnownAs(payer account.Source) {
	c.payer.Store(&payer)
	c.entry.Move(payer)
}

func (c *Conn) Remaining() (d time.Duration, ok bool) {
	return max(time.Until(c.old.Time()), 1), c.old != 0
}

func (c *Conn) Dismissed() <-chan struct{} {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if c.awayc == nil {
		c.awayc = make(chan struct{})
		if c.away {
			close(c.awayc)
		}
	}
	return c.awayc
}

func (c *Conn) RemoteAddr() net.Addr { return c.accepted.RemoteAddr() }
func (c *Conn) Left() bool           { return HasLeft(c.TCP()) }
func (c *Conn) Break()               { closeNow(c.accepted) }
func (c *Conn) TCP() *net.TCPConn    { return TCPConn(c.accepted) }

// withTLS is implemented by connections with TLS.
type withTLS interface{ ConnectionState() tls.ConnectionState }

func (c *Conn) Secure() bool {
	_, ok := c.accepted.(withTLS)
	return ok
}

func (c *Conn) TLS() *tls.ConnectionState {
	t, ok := c.accepted.(withTLS)
	if !ok {
		return nil
	}
	state := t.ConnectionState()
	return &state
}

func (c *Conn) Arriving() bool {
	a := arrivalOf(c.accepted)
	return a != nil && !a.over.Load()
}

func (c *Conn) EndArrival()         { arrivalOf(c.accepted).End() }
func (c *Conn) Turn() (give func()) { return arrivalOf(c.accepted).again() }
