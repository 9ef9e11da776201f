package downstream

import (
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watchfan/watchfan/fanout"
)

// arrivals has new connections take turns at the processors: a few at a time, in the order in which
// their bytes came. Go runs goroutines first come, first served. After a restart elsewhere,
// thousands of TLS handshakes and first requests come at once. Without turns they would stand in
// front of the shards, and open watches would get their events seconds late.
//
// A connection's turn begins when bytes have come and ends when it waits for others. So a client
// that is slow, or sends nothing, keeps nobody waiting. A connection's first request ends its
// arrival; its later reads take no turn.
//
// Nobody is refused for coming in a crowd. A refusal would take a handshake, and after that the
// request itself is cheap. Connections within a handshake go first. Nobody waits for a turn longer
// than hurry, because clients give up (client-go's after 10 s, k8s.io/client-go/transport/cache.go)
// and join the queue again at its end. Otherwise we would only serve connections that are already
// dead. For the same reason a client that has left takes no turn.
//
// The zero value is not usable. All methods may be called from any goroutine.
type arrivals struct {
	most func() int // turns at a time; may be called with mu held

	mu      sync.Mutex
	holders []turn
	begun   []*waiting  // those within a handshake
	fresh   []*waiting  // all others
	expiry  *time.Timer // runs while somebody waits
}

// turn is that of one connection.
type turn struct {
	of    *Arrival
	since time.Time
}

// waiting is a connection in a queue.
type waiting struct {
	of    *Arrival
	since time.Time
	c     chan struct{} // closed when it has its turn
}

// turnLimit is how long a turn lasts at most. A request may wait for something that does not end
// its turn. A handshake takes half a millisecond.
const turnLimit = 50 * time.Millisecond

// hurry is how long a connection waits for a turn at most; then it has one however many others
// have.
const hurry = 3 * time.Second

// handshakeTurns is how many turns a connection may have had to count as within a handshake. TLS
// 1.2 takes three, with the request. A client that sends its head byte by byte soon takes its place
// behind the others.
const handshakeTurns = 3

func NewArrivals(most func() int) *arrivals { return &arrivals{most: most} }

// quietFor is how long no watch has been sent a change before arrivals may have all processors.
const quietFor = time.Second

// ShareOf leaves half of the processors to open watches. While these are sent nothing, as after a
// restart, it leaves none.
func ShareOf(processors int, lastChange func() fanout.MonotonicTime) func() int {
	return func() int {
		if fanout.MonotonicNow()-lastChange() > fanout.MonotonicTime(quietFor) {
			return processors
		}
		return max(1, processors/2)
	}
}

// take waits for a turn, and reports for how long.
func (as *arrivals) take(a *Arrival) time.Duration {
	as.mu.Lock()
	if len(as.holders) < as.most() && len(as.begun)+len(as.fresh) == 0 {
		as.holders = append(as.holders, turn{a, time.Now()})
		as.mu.Unlock()
		return 0
	}
	w := &waiting{of: a, since: time.Now(), c: make(chan struct{})}
	if a.turns > 0 && a.turns <= handshakeTurns {
		as.begun = append(as.begun, w)
	} else {
		as.fresh = append(as.fresh, w)
	}
	if len(as.begun)+len(as.fresh) == 1 {
		as.watchLocked()
	}
	as.mu.Unlock()
	<-w.c
	return time.Since(w.since)
}

// give ends a's turn, if it has one.
func (as *arrivals) give(a *Arrival) {
	as.mu.Lock()
	defer as.mu.Unlock()
	for i, t := range as.holders {
		if t.of == a {
			as.dropLocked(i)
			as.admitLocked()
			return
		}
	}
}

func (as *arrivals) dropLocked(i int) {
	end := len(as.holders) - 1
	as.holders[i] = as.holders[end]
	as.holders[end] = turn{}
	as.holders = as.holders[:end]
}

// admitLocked gives free turns to those who have waited longest, of those within a handshake first;
// and one to everybody who is in a hurry.
func (as *arrivals) admitLocked() {
	for queue := as.nextLocked(); queue != nil; queue = as.nextLocked() {
		w := (*queue)[0]
		(*queue)[0] = nil
		*queue = (*queue)[1:]
		as.holders = append(as.holders, turn{w.of, time.Now()})
		close(w.c)
	}
}

// nextLocked returns the queue whose first has a turn now; nil for none.
func (as *arrivals) nextLocked() *[]*waiting {
	free := len(as.holders) < as.most()
	for _, queue := range []*[]*waiting{&as.begun, &as.fresh} {
		if len(*queue) > 0 && (free || time.Since((*queue)[0].since) >= hurry) {
			return queue
		}
	}
	return nil
}

// watchLocked sees to it that turns which last too long end while somebody waits.
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
	for i := len(as.holders) - 1; i >= 0; i-- {
		if time.Since(as.holders[i].since) >= turnLimit {
			as.dropLocked(i)
		}
	}
	as.admitLocked()
	if len(as.begun)+len(as.fresh) > 0 {
		as.watchLocked()
	}
}

// Arrival is a connection's, until its first request is being answered.
type Arrival struct {
	all   *arrivals
	turns int // how many it has had; owned by whoever reads
	over  atomic.Bool
}

// longQueue is a wait after which it is worth a system call to know whether a client is still
// there.
const longQueue = time.Second

// read reads from conn, and waits for a turn when something has come.
func (a *Arrival) read(conn *net.TCPConn, p []byte) (int, error) {
	if a == nil || a.over.Load() {
		return conn.Read(p)
	}
	a.all.give(a)
	n, err := conn.Read(p)
	if n == 0 {
		return n, err
	}
	waited := a.all.take(a)
	a.turns++
	if waited > longQueue && HasLeft(conn) {
		abandonedConnections.Inc()
		a.End()
		return 0, net.ErrClosed
	}
	return n, err
}

// End ends the arrival. It may be called more than once, and on nil.
func (a *Arrival) End() {
	if a != nil && a.over.CompareAndSwap(false, true) {
		a.all.give(a)
	}
}

// arrivingConn is a plaintext connection as the listener accepted it. A gatherConn is one under
// TLS.
type arrivingConn struct {
	*net.TCPConn
	arrival Arrival
}

// Read implements net.Conn.
func (c *arrivingConn) Read(p []byte) (int, error) { return c.arrival.read(c.TCPConn, p) }

// Close implements net.Conn.
func (c *arrivingConn) Close() error {
	c.arrival.End()
	return c.TCPConn.Close()
}

// arrivalOf returns that of a connection as the listener accepted it; nil if it has none.
func arrivalOf(c net.Conn) *Arrival {
	switch c := c.(type) {
	case *arrivingConn:
		return &c.arrival
	case *tls.Conn:
		if g, ok := c.NetConn().(*gatherConn); ok {
			return g.arrival
		}
	}
	return nil
}
