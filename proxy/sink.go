package proxy

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// sink writes to one client's socket without ever waiting for it. It keeps the part of one batch
// that the socket did not take: shared slices in plaintext, sealed records under TLS. It implements
// [fanout.Sink], and has no goroutine.
type sink struct {
	// Immutable once begun.
	raw    syscall.RawConn
	tls    *tls.Conn   // nil in plaintext
	gather *gatherConn // what tls writes to; nil in plaintext
	poller *poller     // nil if it can't poll the connection
	log    *slog.Logger
	sinkEvents

	read    atomic.Pointer[func()]      // called once, when there may be something to read; then nil, and nil after End
	drained atomic.Pointer[func(error)] // Drain's done, while there is a rest and no room
	room    atomic.Bool                 // set when there is room again

	// Owned by the caller of Write, and by a drain. The two never overlap.
	rest [][]byte // not yet written
	keep [][]byte // memory for rest
	err  error
	try  func(fd uintptr)
}

// sinkEvents is what a sink tells its watch. Shards and the poller call gone and evicted, which
// must not wait.
type sinkEvents struct {
	gone    func()                                    // ends the watch: its client has left, or its sink panics
	drop    func()                                    // closes the connection: the end of the watch panics
	evicted func(fanout.State)                        // the watch is being evicted
	ended   func(reason fanout.Reason, complete bool) // the watch has ended; called once, on a goroutine of its own
}

// newSink returns the sink of a watch on conn, which the listener accepted. Its begin comes first.
func newSink(conn net.Conn, p *poller, log *slog.Logger, events sinkEvents) *sink {
	s := &sink{poller: p, log: log, sinkEvents: events}
	if t, ok := conn.(*tls.Conn); ok {
		s.tls = t
		s.gather = t.NetConn().(*gatherConn) // see Server.Listen
	}
	raw, err := tcpConn(conn).SyscallConn()
	if err != nil {
		panic("SyscallConn: " + err.Error()) // only for a nil connection
	}
	s.raw = raw
	s.try = s.writeTo
	return s
}

// headTimeout is how long a client may take to accept a response head.
const headTimeout = 10 * time.Second

// begin writes the response head. From here on nothing blocks. When there may be something to read,
// the sink calls read, once, on a goroutine of its own.
func (s *sink) begin(head []byte, read func()) error {
	if err := s.writeHead(head); err != nil {
		return err
	}
	s.read.Store(&read)
	if s.poller.add(s.raw, s) != nil { // no memory for it, or another system
		s.poller = nil
		s.readable()
	}
	return nil
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
	if read := s.read.Swap(nil); read != nil {
		go func() {
			defer caught(s.log, "watch's reader", s.gone)
			(*read)()
		}()
	}
}

// Write implements fanout.Sink.
func (s *sink) Write(batch [][]byte) (blocked bool, err error) {
	defer caught(s.log, "watch's write", func() { blocked, err = false, errPanicked })
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

// writeRest writes what goes without waiting.
func (s *sink) writeRest() (blocked bool, err error) {
	// Control and not Write, because Write prepares Go's runtime for a wait.
	if err := s.raw.Control(s.try); err != nil {
		return false, err
	}
	return s.hasRest(), s.err
}

// writeTo is one attempt of writeRest.
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
		_, err := s.tls.Write(batch[0])
		return err
	}
	buf := buffers.Get().(*[]byte)
	defer giveBack(buf)
	for _, b := range batch {
		*buf = append(*buf, b...)
	}
	_, err := s.tls.Write(*buf)
	return err
}

// Drain implements fanout.Sink.
func (s *sink) Drain(done func(error)) {
	if s.poller == nil {
		go func() {
			defer caught(s.log, "watch's drain", func() { done(errPanicked) })
			done(s.wait())
		}()
		return
	}
	defer caught(s.log, "watch's drain", func() { done(errPanicked) })
	s.drain(&done)
}

// drain writes what the socket takes, and leaves the rest, and done, to writable. No room is
// missed: writable sets room before it looks at drained, and drain looks at room after it has set
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
	defer caught(s.log, "watch's drain", s.gone) // the poller's goroutine is everybody's
	s.room.Store(true)
	if done := s.drained.Swap(nil); done != nil {
		s.drain(done)
	}
}

// wait writes the rest as the client takes it, and waits for that.
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

// Evicted implements fanout.Evictee.
func (s *sink) Evicted(st fanout.State) {
	defer caught(s.log, "watch's eviction", nil) // the watch ends all the same
	s.evicted(st)
}

// End implements fanout.Sink.
func (s *sink) End(reason fanout.Reason, complete bool) {
	if complete {
		blocked, err := s.Write([][]byte{[]byte(framing.LastChunk)})
		complete = !blocked && err == nil
	}
	if s.gather != nil {
		s.gather.release(complete)
	}
	s.read.Store(nil)
	go func() {
		defer caught(s.log, "watch's end", s.drop)
		if s.poller != nil {
			s.poller.remove(s.raw, s)
		}
		s.ended(reason, complete)
	}()
}

// advance drops the first n bytes of bufs, whose outer slice it may change.
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
