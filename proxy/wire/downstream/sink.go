package downstream

import (
	"errors"
	"net"
	"sync/atomic"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// sink writes a watch to one client's socket. It keeps at most one batch that the socket did not take.
// It implements [fanout.Sink] and has no goroutine. Write and a drain never overlap.
type sink struct {
	outlet
	last  string // follows the events of a complete response
	watch Watch

	read   atomic.Pointer[func()] // called once when readable; nil after that or End
	missed atomic.Bool            // there may be more to read than read has seen
	keep   [][]byte               // memory for rest
}

// Watch is the watch of a sink, which calls its methods as exchange.Stream says. End runs on a
// goroutine of its own.
type Watch interface {
	exchange.Stream
	// Drop closes the connection, because End has panicked.
	Drop()
}

// NewSink returns the sink of a watch on conn, as the listener accepted it. Begin must be called
// first. last follows the events of a watch that ends properly; "" for nothing.
func NewSink(conn net.Conn, p *Poller, last string, guard *exchange.Guard, watch Watch) *sink {
	s := &sink{last: last, watch: watch}
	s.open(conn, p, guard)
	return s
}

// Begin writes the response head. When there may be something to read, the sink calls read once, on a
// goroutine of its own.
func (s *sink) Begin(head []byte, read func()) error {
	if s.gather != nil {
		s.gather.hold()
	}
	blocked, err := s.Write([][]byte{head})
	if err == nil && blocked {
		err = errors.New("client does not read")
	}
	if err != nil {
		return err
	}
	s.read.Store(&read)
	if s.poll(s, pollIn|pollOut); s.poller == nil {
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

// readable implements pollable.
func (s *sink) readable() {
	s.missed.Store(true)
	if read := s.read.Swap(nil); read != nil {
		go func() {
			defer s.guard.Caught("watch's reader", s.watch.Gone)
			s.missed.Store(false)
			(*read)()
		}()
	}
}

func (s *sink) Write(batch [][]byte) (blocked bool, err error) {
	defer s.guard.Caught("watch's write", func() { blocked, err = false, exchange.ErrPanicked })
	if s.tls != nil {
		if err := s.seal(batch); err != nil {
			return false, err
		}
		return s.write()
	}
	s.rest = batch
	blocked, err = s.write()
	if !blocked || err != nil {
		s.rest = nil
		return false, err
	}
	s.keep = append(s.keep[:0], s.rest...)
	s.rest = s.keep
	return true, nil
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

func (s *sink) Drain(done func(error)) {
	var again func()
	again = func() { s.drain(&again, done) }
	again()
}

// drain writes what the socket takes. If a rest remains, again goes on.
func (s *sink) drain(again *func(), done func(error)) {
	defer s.guard.Caught("watch's drain", func() { done(exchange.ErrPanicked) })
	if blocked, err := s.flush(again); !blocked {
		clear(s.keep)
		s.keep, s.rest = nil, nil
		done(err)
	}
}

func (s *sink) Kept(bytes int64) (ok bool) {
	defer s.guard.Caught("watch's account", func() { ok = false })
	return s.watch.Keep(bytes)
}

func (s *sink) Evicted(st fanout.State) {
	defer s.guard.Caught("watch's eviction", nil) // the watch ends in any case
	s.watch.Evict(st)
}

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
		defer s.guard.Caught("watch's end", s.watch.Drop)
		if s.poller != nil {
			s.poller.remove(s.raw, s)
		}
		s.watch.End(reason, complete)
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
