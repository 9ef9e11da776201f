package downstream

import (
	"crypto/tls"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// outlet writes to one client's socket and never waits for it. It keeps what the socket does not
// take: shared slices in plaintext, sealed records under TLS. Its owner must keep its methods from
// running at the same time, except for writable.
type outlet struct {
	// Immutable once begun.
	raw    syscall.RawConn
	tls    *tls.Conn   // nil in plaintext
	gather *gatherConn // what tls writes to; nil in plaintext
	poller *Poller     // nil if it cannot poll the connection
	guard  *exchange.Guard
	try    func(fd uintptr)

	again atomic.Pointer[func()] // of flush, while a rest waits for room
	room  atomic.Bool            // set when the socket has room again

	rest [][]byte // not yet written, in plaintext
	err  error    // of try
}

// open makes o write to conn, as the listener accepted it.
func (o *outlet) open(conn net.Conn, p *Poller, guard *exchange.Guard) {
	raw, err := TCPConn(conn).SyscallConn()
	if err != nil {
		panic("SyscallConn: " + err.Error()) // only for a nil connection
	}
	o.raw, o.poller, o.guard = raw, p, guard
	o.tls, o.gather = secured(conn)
	o.try = func(fd uintptr) { o.err = o.writeTo(fd) }
}

// poll makes the poller call client about events.
func (o *outlet) poll(client pollable, events uint32) {
	if o.poller.add(o.raw, client, events) != nil { // no memory, or not Linux
		o.poller = nil
	}
}

// control calls f with a socket, unless it is closed.
func control(raw syscall.RawConn, f func(fd uintptr) error) (err error) {
	if closed := raw.Control(func(fd uintptr) { err = f(fd) }); closed != nil {
		return closed
	}
	return err
}

// write writes as much of the rest as the socket takes, and reports whether some is left.
func (o *outlet) write() (blocked bool, err error) {
	// Control, because Write would make Go's runtime prepare for a wait.
	if err := o.raw.Control(o.try); err != nil {
		return false, err
	}
	return o.hasRest(), o.err
}

// writeTo is one attempt on the socket.
func (o *outlet) writeTo(fd uintptr) (err error) {
	if o.gather != nil {
		return o.gather.writeTo(fd)
	}
	o.rest, err = writev(fd, o.rest)
	return err
}

func (o *outlet) hasRest() bool {
	if o.gather != nil {
		return o.gather.hasRest()
	}
	return len(o.rest) > 0
}

// flush is write. If some is left, again is called once when there is room: by the poller, for which
// it must not wait, or on a goroutine of its own. No room is missed: writable sets room before it
// reads again, and flush reads room after it has set again.
func (o *outlet) flush(again *func()) (blocked bool, err error) {
	for {
		o.room.Store(false)
		blocked, err = o.write()
		switch {
		case !blocked || err != nil:
			return false, err
		case o.poller == nil:
			go o.await(*again)
			return true, nil
		}
		o.again.Store(again)
		if !o.room.Load() || !o.again.CompareAndSwap(again, nil) {
			return true, nil
		}
	}
}

// await takes the poller's part. It writes the rest as the client takes it, and waits for that. The
// owner's next write meets an error again. A SharedWriter may Finish meanwhile, so it leaves err alone.
func (o *outlet) await(again func()) {
	defer o.guard.Caught("wait for room", again)
	_ = o.raw.Write(func(fd uintptr) bool { // fails if the connection is closed
		return o.writeTo(fd) != nil || !o.hasRest()
	})
	again()
}

// writable implements pollable.
func (o *outlet) writable() {
	o.room.Store(true)
	if again := o.again.Swap(nil); again != nil {
		(*again)()
	}
}
