package downstream

import (
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// sink writes to one client's socket and never waits for it. It keeps the part of one batch that
// the socket did not take: shared slices in plaintext, sealed records under TLS. It implements
// [fanout.Sink] and has no goroutine.
type sink struct {
	// Immutable once begun.
	raw    syscall.RawConn
	tls    *tls.Conn   // nil in plaintext
	gather *gatherConn // what tls writes to; nil in plaintext
	poller *Poller     // nil if it cannot poll the connection
	last   string      // follows the events of a complete response
	guard  *exchange.Guard
	SinkEvents

	read    atomic.Pointer[func()]      // called once when readable; nil after that or End
	drained atomic.Pointer[func(error)] // Drain's done, while a rest waits for room
	room    atomic.Bool                 // set when the socket has room again
	missed  atomic.Bool                 // there may be more to read than read has seen

	// Owned by the caller of Write, and by a drain. The two never overlap.
	rest [][]byte // not yet written
	keep [][]byte // memory for rest
	err  error
	try  func(fd uintptr)
}

// SinkEvents are a sink's calls to its watch. Shards and the poller call Gone and Evict, which must
// not wait.
type SinkEvents struct {
	Gone  func()                                    // client left or sink panicked: ends the watch
	Drop  func()                                    // Ended panicked: closes the connection
	Keep  func(int64) bool                          // the watch keeps so many bytes; reports whether it may
	Evict func(fanout.State)                        // the watch is being evicted
	Ended func(reason fanout.Reason, complete bool) // called once, on its own goroutine
}

// NewSink returns the sink of a watch on conn, as the listener accepted it. Begin must be called
// first. last follows the events of a watch that ends properly; "" for nothing.
func NewSink(conn net.Conn, p *Poller, last string, guard *exchange.Guard, events SinkEvents) *sink {
	s := &sink{poller: p, last: last, guard: guard, SinkEvents: events}
	if t, ok := conn.(*tls.Conn); ok {
		s.tls = t
		s.gather = t.NetConn().(*gatherConn) // see proxy.Server.Listen
	}
	raw, err := TCPConn(conn).SyscallConn()
	if err != nil {
		panic("SyscallConn: " + err.Error()) // only for a nil connection
	}
	s.raw = raw
	s.try = s.writeTo
	return s
}

// headTimeout is how long a client may take to accept a response head.
const headTimeout = 10 * time.Second

// Begin writes the response head. After it, no call blocks. When there may be something to read,
// the sink calls read once, on a goroutine of its own.
func (s *sink) Begin(head []byte, read func()) error {
	if err := s.writeHead(head); err != nil {
		return err
	}
	s.read.Store(&read)
	if s.poller.add(s.raw, s, pollIn|pollOut) != nil { // no memory, or not Linux
		s.poller = nil
		s.readable()
	}
	return nil
}

// ReadAgain makes the sink call read once more when there may be something to read. It is called by
// the reader itself, when Read has nothing left.
func (s *sink) ReadAgain(read func()) {
	s.read.Store(&read)
	if s.missed.Load() { // more has come behind the reader's last Read
		s.readable()
	}
}

// Read reads what the client has sent. If nothing is left, it returns [os.ErrDeadlineExceeded]. Where
// the poller cannot poll, it waits. One goroutine uses it at a time, after Begin.
func (s *sink) Read(p []byte) (int, error) {
	wait := s.poller == nil
	if s.tls == nil {
		return readSocket(s.raw, p, wait)
	}
	s.gather.ready.Store(!wait)
	return s.tls.Read(p)
}

func (s *sink) writeHead(head []byte) error {
	if s.tls == nil {
		blocked, err := s.Write([][]byte{head})
		if err == nil && blocked {
			err = errors.New("client does not read")
		}
		return err
	}
	_ = s.tls.SetWriteDeadline(time.Now().Add(headTimeout))
	if _, err := s.tls.Write(head); err != nil {
		return err
	}
	_ = s.tls.SetWriteDeadline(time.Time{})
	s.gather.hold()
	return nil
}

// readable implements pollable.
func (s *sink) readable() {
	s.missed.Store(true)
	if read := s.read.Swap(nil); read != nil {
		go func() {
			defer s.guard.Caught("watch's reader", s.Gone)
			s.missed.Store(false)
			(*read)()
		}()
	}
}

// Write implements fanout.Sink.
func (s *sink) Write(batch [][]byte) (blocked bool, err error) {
	defer s.guard.Caught("watch's write", func() { blocked, err = false, exchange.ErrPanicked })
	if s.tls != nil {
		if err := s.seal(batch); err != nil {
			return false, err
		}
		return s.writeRest()
	}
	s.rest = batch
	blocked, err = s.writeRest()
	if !blocked || err != nil {
		s.rest = nil
		return false, err
	}
	s.keep = append(s.keep[:0], s.rest...)
	s.rest = s.keep
	return true, nil
}

// writeRest writes as much as the socket takes without waiting.
func (s *sink) writeRest() (blocked bool, err error) {
	// Control, because Write would make Go's runtime prepare for a wait.
	if err := s.raw.Control(s.try); err != nil {
		return false, err
	}
	return s.hasRest(), s.err
}

// writeTo is writeRest's attempt on the socket.
func (s *sink) writeTo(fd uintptr) {
	if s.gather != nil {
		s.err = s.gather.writeTo(fd)
		return
	}
	s.rest, s.err = writev(fd, s.rest)
}

func (s *sink) hasRest() bool {
	if s.gather != nil {
		return s.gather.hasRest()
	}
	return len(s.rest) > 0
}

// seal encrypts the batch in as few records as possible.
func (s *sink) seal(batch [][]byte) error {
	if len(batch) == 1 {
		return s.gather.seal(s.tls, batch[0])
	}
	buf := buffers.Get().(*[]byte)
	defer giveBack(buf)
	for _, b := range batch {
		*buf = append(grown(*buf, len(b)), b...)
	}
	return s.gather.seal(s.tls, *buf)
}

// Drain implements fanout.Sink.
func (s *sink) Drain(done func(error)) {
	if s.poller == nil {
		go func() {
			defer s.guard.Caught("watch's drain", func() { done(exchange.ErrPanicked) })
			done(s.wait())
		}()
		return
	}
	defer s.guard.Caught("watch's drain", func() { done(exchange.ErrPanicked) })
	s.drain(&done)
}

// drain writes what the socket takes. If a rest remains, it leaves done to writable. No event is
// missed: writable sets room before it reads drained, and drain reads room after it has set
// drained.
func (s *sink) drain(done *func(error)) {
	for {
		s.room.Store(false)
		blocked, err := s.writeRest()
		if !blocked || err != nil {
			clear(s.keep)
			s.keep, s.rest = nil, nil
			(*done)(err)
			return
		}
		s.drained.Store(done)
		if !s.room.Load() || !s.drained.CompareAndSwap(done, nil) {
			return
		}
	}
}

// writable implements pollable.
func (s *sink) writable() {
	defer s.guard.Caught("watch's drain", s.Gone) // all clients share the poller's goroutine
	s.room.Store(true)
	if done := s.drained.Swap(nil); done != nil {
		s.drain(done)
	}
}

// wait writes the rest as the client takes it, and blocks until that is done.
func (s *sink) wait() error {
	err := s.raw.Write(func(fd uintptr) bool {
		s.writeTo(fd)
		return s.err != nil || !s.hasRest()
	})
	clear(s.keep)
	s.keep, s.rest = nil, nil
	if err == nil {
		err = s.err
	}
	return err
}

// Kept implements fanout.Keeper.
func (s *sink) Kept(bytes int64) (ok bool) {
	defer s.guard.Caught("watch's account", func() { ok = false })
	return s.Keep(bytes)
}

// Evicted implements fanout.Evictee.
func (s *sink) Evicted(st fanout.State) {
	defer s.guard.Caught("watch's eviction", nil) // the watch ends in any case
	s.Evict(st)
}

// End implements fanout.Sink.
func (s *sink) End(reason fanout.Reason, complete bool) {
	if complete && s.last != "" {
		blocked, err := s.Write([][]byte{[]byte(s.last)})
		complete = !blocked && err == nil
	}
	if s.gather != nil {
		s.gather.release(complete)
	}
	s.read.Store(nil)
	go func() {
		defer s.guard.Caught("watch's end", s.Drop)
		if s.poller != nil {
			s.poller.remove(s.raw, s)
		}
		s.Ended(reason, complete)
	}()
}

// advance drops the first n bytes of bufs. It may change the outer slice.
func advance(bufs [][]byte, n int) [][]byte {
	for len(bufs) > 0 && n >= len(bufs[0]) {
		n -= len(bufs[0])
		bufs = bufs[1:]
	}
	if n > 0 {
		bufs[0] = bufs[0][n:]
	}
	return bufs
}
