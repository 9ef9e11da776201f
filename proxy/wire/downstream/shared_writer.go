package downstream

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

// SharedWriter writes to a TLS connection that carries several streams. It seals what is due for
// all of them in as few records as possible, and never waits for the client. Its owner must keep
// its methods from running at the same time.
//
// It copies what is due into one record, and seals the record when it is full. So the bytes are
// still in the processor's cache when they are sealed.
type SharedWriter struct {
	// Immutable.
	raw    syscall.RawConn
	tls    *tls.Conn
	gather *gatherConn
	poller *Poller // nil if it cannot poll the connection
	room   func()

	waiting  atomic.Bool // room is to be called
	writable atomic.Bool // set when the socket has room again

	record *[recordBytes]byte // of which length bytes are due and not yet sealed; nil for none
	length int
	due    int   // bytes since the last Flush
	failed error // of sealing
	err    error // of the last attempt on the socket
	try    func(fd uintptr)
}

// NewSharedWriter returns a writer on conn, as the listener accepted it. The TLS handshake must be
// over. room is called on a goroutine of its own when the socket has room again after a Flush that
// was blocked. The owner must call Close before it closes conn.
func NewSharedWriter(conn net.Conn, p *Poller, room func()) (*SharedWriter, error) {
	t, ok := conn.(*tls.Conn)
	if !ok {
		return nil, errors.New("connection without TLS")
	}
	gather, ok := t.NetConn().(*gatherConn)
	if !ok {
		return nil, errors.New("connection of another listener")
	}
	raw, err := gather.TCPConn.SyscallConn()
	if err != nil {
		return nil, err
	}
	w := &SharedWriter{raw: raw, tls: t, gather: gather, poller: p, room: room}
	w.try = func(fd uintptr) { w.err = w.gather.writeTo(fd) }
	gather.hold()
	if p.add(raw, sharedClient{w}, pollOut) != nil { // no memory, or not Linux
		w.poller = nil
	}
	return w, nil
}

// Add appends bytes to those that are due. They are copied. The next Flush returns an error of it.
func (w *SharedWriter) Add(p []byte) {
	w.due += len(p)
	for len(p) > 0 && w.failed == nil {
		if w.record == nil {
			w.record = records.Get().(*[recordBytes]byte)
		}
		n := copy(w.record[w.length:], p)
		p = p[n:]
		if w.length += n; w.length == recordBytes {
			w.seal()
		}
	}
}

// seal seals the record.
func (w *SharedWriter) seal() {
	w.failed = w.gather.seal(w.tls, w.record[:w.length])
	w.drop()
}

// drop gives the record back.
func (w *SharedWriter) drop() {
	records.Put(w.record)
	w.record, w.length = nil, 0
}

// recordBytes is how much a TLS record holds (RFC 8446, section 5.1).
const recordBytes = 16 << 10

// records holds memory for one record each. An idle client has none.
var records = sync.Pool{New: func() any { return new([recordBytes]byte) }}

// Due returns the number of bytes that have been added since the last Flush.
func (w *SharedWriter) Due() int { return w.due }

// Flush seals what is due, and writes as much as the socket takes without waiting. blocked reports
// that there is a rest. Then room will be called, and the owner must call Flush again. Until then
// it should add nothing.
func (w *SharedWriter) Flush() (blocked bool, err error) {
	w.due = 0
	if w.record != nil {
		w.seal()
	}
	if w.failed != nil {
		return false, w.failed
	}
	for {
		w.writable.Store(false)
		if err := w.raw.Control(w.try); err != nil {
			return false, err
		}
		if w.err != nil || !w.gather.hasRest() {
			return false, w.err
		}
		if w.poller == nil {
			go w.wait()
			return true, nil
		}
		// Nothing is missed: the poller sets writable before it reads waiting.
		w.waiting.Store(true)
		if !w.writable.Load() || !w.waiting.CompareAndSwap(true, false) {
			return true, nil
		}
	}
}

// wait writes the rest as the client takes it, and blocks until that is done. It takes the poller's
// part. The owner's next Flush meets an error again.
func (w *SharedWriter) wait() {
	_ = w.raw.Write(func(fd uintptr) bool { // fails if the connection is closed
		return w.gather.writeTo(fd) != nil || !w.gather.hasRest()
	})
	w.room()
}

// Finish writes what the client still takes, without waiting, and makes a close of the connection
// tell the client that nothing is missing. It is called at most once, after the last Flush.
func (w *SharedWriter) Finish() {
	blocked, err := w.Flush()
	w.gather.release(!blocked && err == nil)
}

// Close stops the calls of room, except for one in progress. It may be called more than once.
func (w *SharedWriter) Close() {
	w.waiting.Store(false)
	if w.poller != nil {
		w.poller.remove(w.raw, sharedClient{w})
	}
	if w.record != nil {
		w.drop()
	}
}

// sharedClient is a SharedWriter as the poller knows it.
type sharedClient struct{ *SharedWriter }

// readable implements pollable. The connection's reader has a goroutine.
func (sharedClient) readable() {}

// writable implements pollable.
func (c sharedClient) writable() {
	w := c.SharedWriter
	w.writable.Store(true)
	if w.waiting.CompareAndSwap(true, false) {
		go w.room()
	}
}
