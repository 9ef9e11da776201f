package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watchfan/watchfan/fanout"
)

// arrivals has connections that have just been accepted take turns at the processors: a few at a time, in the order in which their bytes
// came. Go runs goroutines first come, first served; so thousands of TLS handshakes and first requests at once, after a restart elsewhere,
// would stand in front of the shards, and watches that are long there would get their events seconds late.
//
// A connection has a turn from when bytes have come until it waits for others, so that a client that is slow, or sends nothing, keeps
// nobody waiting. Its first request ends its arrival; from then on its reads take no turn.
//
// Nobody is answered 429 for coming in a crowd: that would take a handshake, and who has made one is sooner served than refused. So
// those within a handshake go first, and are served within a moment. Those who have not wait for at most arrivalPatience. A longer queue
// is one that clients give up in (client-go's after 10 s, k8s.io/client-go/transport/cache.go), to join it again at its end. Handshakes with those who have left
// would be all that we did; so who has left takes no turn, and the queue is as long as what clients wait for.
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
	of    *arrival
	since time.Time
}

// waiting is a connection in a queue.
type waiting struct {
	of    *arrival
	since time.Time
	c     chan struct{} // closed when it has its turn, or will have none
	late  bool          // it will have none; set before c is closed
}

// turnLimit is after how long a turn is over at the latest: a request may wait for something that does not end it. A handshake takes half a
// millisecond.
const turnLimit = 50 * time.Millisecond

// arrivalPatience is for how long a connection may wait for its first turn. Its first request's head must have come after headerTimeout.
const arrivalPatience = headerTimeout - 2*time.Second

// handshakeTurns is after how many turns the next is still one's by right: TLS 1.2 takes three, with the request. Who sends its head byte by byte
// is to keep nobody waiting.
const handshakeTurns = 3

// errCrowded ends a connection that has waited too long.
var errCrowded = errors.New("too many others came at the same time")

func newArrivals(most func() int) *arrivals { return &arrivals{most: most} }

// quietFor is for how long no watch has been sent a change where nobody is kept waiting by a crowd.
const quietFor = time.Second

// shareOf leaves half of the processors to watches that are there, whoever comes; and none where they are sent nothing, as after a restart.
func shareOf(processors int, lastChange func() fanout.Instant) func() int {
	return func() int {
		if fanout.Now()-lastChange() > fanout.Instant(quietFor) {
			return processors
		}
		return max(1, processors/2)
	}
}

// take waits for a turn, and reports for how long. It returns errCrowded if there is none for a.
func (as *arrivals) take(a *arrival) (time.Duration, error) {
	as.mu.Lock()
	if len(as.holders) < as.most() && len(as.begun)+len(as.fresh) == 0 {
		as.holders = append(as.holders, turn{a, time.Now()})
		as.mu.Unlock()
		return 0, nil
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
	if w.late {
		return 0, errCrowded
	}
	return time.Since(w.since), nil
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

// admitLocked gives free turns to those who have waited longest, of those that have begun first.
func (as *arrivals) admitLocked() {
	for len(as.holders) < as.most() {
		queue := &as.begun
		if len(as.begun) == 0 {
			queue = &as.fresh
		}
		if len(*queue) == 0 {
			return
		}
		w := (*queue)[0]
		(*queue)[0] = nil
		*queue = (*queue)[1:]
		if w.late = queue == &as.fresh && time.Since(w.since) > arrivalPatience; !w.late {
			as.holders = append(as.holders, turn{w.of, time.Now()})
		}
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
	if len(as.begun)+len(as.fresh) > 0 {
		as.watchLocked()
	}
}

// arrival is a connection's, until its first request is being answered.
type arrival struct {
	all   *arrivals
	turns int // how many it has had; owned by whoever reads
	over  atomic.Bool
}

// longQueue is a wait after which it is worth a system call to know whether a client is still there.
const longQueue = time.Second

// read reads from conn, and waits for a turn when something has come.
func (a *arrival) read(conn *net.TCPConn, p []byte) (int, error) {
	if a == nil || a.over.Load() {
		return conn.Read(p)
	}
	a.all.give(a)
	n, err := conn.Read(p)
	if n == 0 {
		return n, err
	}
	waited, crowded := a.all.take(a)
	a.turns++
	switch {
	case crowded != nil:
		abandonedLate.Inc()
		return 0, crowded
	case waited > longQueue && hasLeft(conn):
		abandonedLeft.Inc()
		a.end()
		return 0, net.ErrClosed
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
