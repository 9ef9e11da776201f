package downstream

import (
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// arrivals gives new connections turns at the processors: a few at a time, in the order in which
// their bytes came. After a restart elsewhere, thousands of TLS handshakes and first requests come
// at once. Without turns they would run before the shards, and open watches would get their events
// seconds late.
//
// A turn begins when bytes have come. It ends when the connection waits for more bytes: a client
// that is slow or silent delays no other. A connection's first request ends its arrival; later reads
// take no turn. A watch that has waited together with others, for the same proof or the same list,
// takes a turn again, from a queue of its own. In one queue with the arrivals, 5,000 informers with
// idle clients took 11 to 13 s until all were live, and 450 MiB, instead of 8 s and 240 MiB.
//
// No connection is refused because many come at once: a refusal costs a handshake, after which the
// request itself is cheap. Connections within a handshake go first. No connection waits for a turn
// longer than hurry: clients give up (client-go after 10 s, k8s.io/client-go/transport/cache.go) and
// join the queue again at its end, and the proxy could end up serving only dead connections. For the
// same reason a client that has left gives its turn back.
//
// All methods may be called from any goroutine.
type arrivals struct {
	most     func() int // limit of concurrent turns; may be called with mu held
	together *arrivals  // turns of those that have waited together
	metrics  *Metrics

	mu      sync.Mutex
	holders []turn
	begun   []*turn     // of connections within a handshake that wait
	fresh   []*turn     // of all others that wait
	expiry  *time.Timer // runs while a connection waits
}

// turn is one connection's turn, or its place in a queue.
type turn struct {
	of    *Arrival
	since time.Time
	begun chan struct{} // of a place: closed when the turn begins
}

// turnLimit is the longest duration of a turn. A request may wait for something that does not end
// its turn. A handshake takes half a millisecond.
const turnLimit = 50 * time.Millisecond

// hurry is the longest wait for a turn. After it, a connection gets a turn even if none is free.
const hurry = 3 * time.Second

// handshakeTurns is the number of past turns up to which a connection counts as within a handshake.
// TLS 1.2 takes three, with the request. A client that sends its head byte by byte soon queues with
// the new connections.
const handshakeTurns = 3

func NewArrivals(most func() int, m *Metrics) *arrivals {
	return &arrivals{most: most, metrics: m, together: &arrivals{most: most, metrics: m}}
}

// ShareOf returns a limit of concurrent turns for arrivals. The limit is half of the processors, at
// least one; open watches keep the rest. It is all processors while watches are sent nothing, as
// after a restart.
func ShareOf(processors int, quiet func() bool) func() int {
	return func() int {
		if quiet() {
			return processors
		}
		return max(1, processors/2)
	}
}

// take waits for a turn, and returns the duration of the wait.
func (as *arrivals) take(a *Arrival) time.Duration {
	as.mu.Lock()
	if len(as.holders) < as.most() && len(as.begun)+len(as.fresh) == 0 {
		as.holders = append(as.holders, turn{of: a, since: time.Now()})
		as.mu.Unlock()
		return 0
	}
	w := &turn{of: a, since: time.Now(), begun: make(chan struct{})}
	if a.turns > 0 && a.turns <= handshakeTurns {
		as.begun = append(as.begun, w)
	} else {
		as.fresh = append(as.fresh, w)
	}
	if len(as.begun)+len(as.fresh) == 1 {
		as.watchLocked()
	}
	as.mu.Unlock()
	<-w.begun
	return time.Since(w.since)
}

// give ends a's turn, if it has one.
func (as *arrivals) give(a *Arrival) {
	as.mu.Lock()
	defer as.mu.Unlock()
	if i := slices.IndexFunc(as.holders, func(t turn) bool { return t.of == a }); i >= 0 {
		as.holders = slices.Delete(as.holders, i, i+1)
		as.admitLocked()
	}
}

// admitLocked gives free turns to the connections that have waited longest, first to those within a
// handshake. A connection that has waited for hurry gets a turn in any case.
func (as *arrivals) admitLocked() {
	for queue := as.nextLocked(); queue != nil; queue = as.nextLocked() {
		w := (*queue)[0]
		(*queue)[0] = nil
		*queue = (*queue)[1:]
		as.holders = append(as.holders, turn{of: w.of, since: time.Now()})
		close(w.begun)
	}
}

// nextLocked returns the queue whose first connection gets a turn now; nil for none.
func (as *arrivals) nextLocked() *[]*turn {
	free := len(as.holders) < as.most()
	for _, queue := range []*[]*turn{&as.begun, &as.fresh} {
		if len(*queue) > 0 && (free || time.Since((*queue)[0].since) >= hurry) {
			return queue
		}
	}
	return nil
}

// watchLocked starts the timer that ends overlong turns while a connection waits.
func (as *arrivals) watchLocked() {
	if as.expiry == nil {
		as.expiry = time.AfterFunc(turnLimit, as.expire)
		return
	}
	as.expiry.Reset(turnLimit)
}

func (as *arrivals) expire() {
	as.mu.Lock()
	defer as.mu.Unlock()
	as.holders = slices.DeleteFunc(as.holders, func(t turn) bool { return time.Since(t.since) >= turnLimit })
	as.admitLocked()
	if len(as.begun)+len(as.fresh) > 0 {
		as.watchLocked()
	}
}

// Arrival is the state of a new connection until its first request is being answered.
type Arrival struct {
	all   *arrivals
	turns int // turns so far; owned by the reading goroutine
	over  atomic.Bool
}

// longQueue is the wait after which a system call is made to check that the client is still there.
const longQueue = time.Second

// read reads from conn. When bytes have come, it waits for a turn.
func (a *Arrival) read(conn *net.TCPConn, p []byte) (int, error) {
	socket, err := NewSocket(conn)
	if err != nil {
		return 0, err
	}
	if a.all == nil || a.over.Load() {
		return socket.Read(p)
	}
	a.all.give(a)
	n, err := socket.Read(p)
	if n == 0 {
		return n, err
	}
	waited := a.all.take(a)
	a.turns++
	if waited > longQueue && HasLeft(conn) {
		a.all.metrics.abandoned.Inc()
		a.End()
		return 0, net.ErrClosed
	}
	return n, err
}

// End ends the arrival. It may be called more than once, and on nil.
func (a *Arrival) End() {
	if a != nil && a.all != nil && a.over.CompareAndSwap(false, true) {
		a.all.give(a)
	}
}

// again waits for a turn with those that have waited together, and returns how to give it back. It may
// be called after End, and on nil.
func (a *Arrival) again() (give func()) {
	if a == nil {
		return func() {}
	}
	back := &Arrival{all: a.all.together}
	back.all.take(back)
	return back.End
}

// arrivingConn is a plaintext connection as the listener accepted it. With TLS, it is within a
// gatherConn.
type arrivingConn struct {
	*net.TCPConn
	arrival Arrival
}

func (c *arrivingConn) Read(p []byte) (int, error) { return c.arrival.read(c.TCPConn, p) }

func (c *arrivingConn) Close() error {
	c.arrival.End()
	return c.TCPConn.Close()
}

// arrivingOf returns a connection as the listener accepted it, without its TLS; nil for one that no
// [ClientListener] has accepted.
func arrivingOf(c net.Conn) *arrivingConn {
	if _, g := secured(c); g != nil {
		return &g.arrivingConn
	}
	a, _ := c.(*arrivingConn)
	return a
}

// arrivalOf returns the arrival of a connection; nil for none.
func arrivalOf(c net.Conn) *Arrival {
	if a := arrivingOf(c); a != nil {
		return &a.arrival
	}
	return nil
}

// Socket reads and writes a TCP connection with the least work: its system calls do not concern the
// scheduler. Deadlines are the connection's. One goroutine at a time may read, and one write.
type Socket struct{ raw syscall.RawConn }

// NewSocket returns the socket of a connection.
func NewSocket(c *net.TCPConn) (Socket, error) {
	raw, err := c.SyscallConn()
	return Socket{raw}, err
}

func (s Socket) Read(p []byte) (int, error) { return readSocket(s.raw, p, true) }

func (s Socket) Write(p []byte) (int, error) { return writeSocket(s.raw, p) }

// Quiet reports whether nothing has come that was not read, and the peer has not closed the connection or
// its sending side.
func (s Socket) Quiet() bool {
	quiet := false
	err := s.raw.Control(func(fd uintptr) { quiet = nothingCame(fd) })
	return err == nil && quiet
}
