package load

import (
	"crypto/tls"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/watchfan/watchfan/bench/measure"
)

const connectTimeout = 30 * time.Second

// A conn is a client's connection. It belongs to the holder of its reader's mu.
type conn struct {
	sock *measure.Sock
	rw   io.ReadWriter // sock, or the TLS connection over it
}

// open connects to e with d. The connection is still blocking.
func open(d measure.Dialer, e Endpoint) (conn, error) {
	s, err := d.Dial(e.Addr, connectTimeout)
	if err != nil {
		return conn{}, err
	}
	if e.TLS == nil {
		return conn{s, s}, nil
	}
	c := tls.Client(s, e.TLS)
	if err := c.Handshake(); err != nil {
		s.Close()
		return conn{}, err
	}
	return conn{s, c}, nil
}

func (c *conn) connection() *conn { return c }

// A client takes the bytes of its connection.
type client interface {
	connection() *conn
	// take takes the next bytes and counts their events. The slice is valid during the call. An
	// error ends the connection.
	take(p []byte, t *tally) error
}

// A tally counts the events of a reader's clients. The holder of the reader's mu writes it. Any
// goroutine may read it, except for the field now.
type tally struct {
	acks                     *Acks // from which latency counts
	seen                     *Acks // notes when each write came; nil for nothing
	deliveries, early, bytes atomic.Uint64
	latency                  measure.Histogram
	now                      time.Duration // time at which the current bytes were read
}

// deliver counts the event of write seq. An event before what latency counts from has a latency of 0.
func (t *tally) deliver(seq uint64) {
	t.deliveries.Add(1)
	if t.seen != nil {
		t.seen.done(seq)
	}
	late, acked := t.acks.since(seq, t.now)
	if !acked {
		t.early.Add(1)
		late = 0
	}
	t.latency.Record(late)
}

// A reader reads many connections with one goroutine and one epoll.
type reader struct {
	tally
	epoll   int // of epoll(7), level-triggered
	stop    atomic.Bool
	running sync.WaitGroup

	// mu is held while a batch of sockets is read, and while clients are added and removed.
	mu      sync.Mutex
	clients map[int]client // by file descriptor
	buf     []byte

	lost  atomic.Int64          // clients
	first atomic.Pointer[error] // of these losses
}

// newReader returns a reader without clients, which reads until close.
func newReader(a *Acks) (*reader, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	r := &reader{tally: tally{acks: a}, epoll: epoll, clients: make(map[int]client), buf: make([]byte, 256<<10)}
	r.running.Go(r.run)
	return r, nil
}

// close ends the reader, which notices it within 0.1 s. The connections stay open.
func (r *reader) close() {
	r.stop.Store(true)
	r.running.Wait()
}

// lose records a client that ended or got a wrong event. Any goroutine may call it.
func (r *reader) lose(err error) {
	r.lost.Add(1)
	r.first.CompareAndSwap(nil, &err)
}

func (r *reader) run() {
	defer unix.Close(r.epoll)
	var events [256]unix.EpollEvent
	for !r.stop.Load() {
		n, err := unix.EpollWait(r.epoll, events[:], 100)
		if err != nil && err != unix.EINTR {
			r.lose(os.NewSyscallError("epoll_wait", err))
			return
		}
		r.mu.Lock()
		for _, e := range events[:max(n, 0)] {
			if c := r.clients[int(e.Fd)]; c != nil { // nil if removed since epoll reported it
				c.connection().sock.Readable()
				r.readLocked(c)
			}
		}
		r.mu.Unlock()
	}
}

// add takes over a client and the bytes that it has read already.
func (r *reader) add(c client, early []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := c.connection().sock
	if err := s.Nonblocking(); err != nil {
		return err
	}
	if err := unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, s.FD, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(s.FD)}); err != nil {
		return os.NewSyscallError("epoll_ctl", err)
	}
	r.clients[s.FD] = c
	r.takeLocked(c, early)
	r.readLocked(c) // epoll does not report bytes that TLS has decrypted already
	return nil
}

// remove closes a client's connection, unless the client is lost already.
func (r *reader) remove(c client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closeLocked(c)
}

// closeLocked closes a client's connection. It reports whether it was still open.
func (r *reader) closeLocked(c client) bool {
	s := c.connection().sock
	if r.clients[s.FD] != c {
		return false
	}
	delete(r.clients, s.FD)
	s.Close()
	return true
}

// readLocked reads c until nothing is left.
func (r *reader) readLocked(c client) {
	for r.clients[c.connection().sock.FD] == c {
		n, err := c.connection().rw.Read(r.buf)
		if n > 0 {
			r.takeLocked(c, r.buf[:n])
		}
		if errors.Is(err, measure.ErrWouldBlock) {
			return
		}
		if err != nil {
			r.loseLocked(c, err)
		}
	}
}

func (r *reader) takeLocked(c client, p []byte) {
	if len(p) == 0 {
		return
	}
	r.now = r.acks.now()
	r.bytes.Add(uint64(len(p)))
	if err := c.take(p, &r.tally); err != nil {
		r.loseLocked(c, err)
	}
}

func (r *reader) loseLocked(c client, err error) {
	if r.closeLocked(c) {
		r.lose(err)
	}
}
