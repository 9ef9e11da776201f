package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// arrivals has connections that have just been accepted take turns at the processors: a few at a time, in the order in which their bytes
// came. Go runs goroutines first come, first served; so thousands of TLS handshakes and first requests at once, after a restart elsewhere,
// would stand in front of the shards, and watches that are long there would get their events seconds late.
//
// A connection has a turn from when bytes have come until it waits for others, so that a client that is slow, or sends nothing, keeps
// nobody waiting. Its first request ends its arrival; from then on its reads take no turn. Nobody is turned away for coming in a crowd:
// who has made a handshake is sooner served than refused.
//
// The zero value is not usable. All methods may be called from any goroutine.
type arrivals struct {
	most int // turns at a time

	mu      sync.Mutex
	holders []turn
	queue   []*waiting
	expiry  *time.Timer // runs while somebody waits
}

// turn is that of one connection.
type turn struct {
	of    *arrival
	since time.Time
}

// waiting is a connection in the queue.
type waiting struct {
	of *arrival
	c  chan struct{} // closed when it has its turn
}

// turnLimit is after how long a turn is over at the latest: a request may wait for something that does not end it. A handshake takes half a
// millisecond.
const turnLimit = 50 * time.Millisecond

func newArrivals(most int) *arrivals { return &arrivals{most: most} }

// take waits for a turn.
func (as *arrivals) take(a *arrival) {
	as.mu.Lock()
	if len(as.holders) < as.most && len(as.queue) == 0 {
		as.holders = append(as.holders, turn{a, time.Now()})
		as.mu.Unlock()
		return
	}
	w := &waiting{a, make(chan struct{})}
	as.queue = append(as.queue, w)
	if len(as.queue) == 1 {
		as.watchLocked()
	}
	as.mu.Unlock()
	<-w.c
}

// give ends a's turn, if it has one.
func (as *arrivals) give(a *arrival) {
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

// admitLocked gives free turns to those who have waited longest.
func (as *arrivals) admitLocked() {
	for len(as.queue) > 0 && len(as.holders) < as.most {
		w := as.queue[0]
		as.queue[0] = nil
		as.queue = as.queue[1:]
		as.holders = append(as.holders, turn{w.of, time.Now()})
		close(w.c)
	}
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
	if len(as.queue) > 0 {
		as.watchLocked()
	}
}

// arrival is a connection's, until its first request is being answered.
type arrival struct {
	all  *arrivals
	over atomic.Bool
}

// read reads from conn, and waits for a turn when something has come.
func (a *arrival) read(conn *net.TCPConn, p []byte) (int, error) {
	if a == nil || a.over.Load() {
		return conn.Read(p)
	}
	a.all.give(a)
	n, err := conn.Read(p)
	if n > 0 {
		a.all.take(a)
	}
	return n, err
}

// end ends the arrival. It may be called more than once, and on nil.
func (a *arrival) end() {
	if a != nil && a.over.CompareAndSwap(false, true) {
		a.all.give(a)
	}
}

// arrivingConn is a plaintext connection as the listener accepted it. A gatherConn is one under TLS.
type arrivingConn struct {
	*net.TCPConn
	arrival arrival
}

// Read implements net.Conn.
func (c *arrivingConn) Read(p []byte) (int, error) { return c.arrival.read(c.TCPConn, p) }

// Close implements net.Conn.
func (c *arrivingConn) Close() error {
	c.arrival.end()
	return c.TCPConn.Close()
}

// arrivalOf returns that of a connection as the listener accepted it; nil if it has none.
func arrivalOf(c net.Conn) *arrival {
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

type arrivalKey struct{}

// withArrival returns a context in which waits end a's arrival; see waits.
func withArrival(ctx context.Context, a *arrival) context.Context {
	if a == nil || a.over.Load() {
		return ctx
	}
	return context.WithValue(ctx, arrivalKey{}, a)
}

// waits says that the request of ctx is about to wait for something else than the processors.
func waits(ctx context.Context) {
	if a, ok := ctx.Value(arrivalKey{}).(*arrival); ok {
		a.end()
	}
}
