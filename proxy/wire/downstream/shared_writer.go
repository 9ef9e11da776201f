package downstream

import (
	"crypto/tls"
	"sync"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// SharedWriter writes to a TLS connection that carries several streams. It seals what is due for
// all of them in as few records as possible, and never waits for the client. Its owner must keep
// its methods from running at the same time.
//
// It copies what is due into one record, and seals the record when it is full. So the bytes are
// still in the processor's cache when they are sealed.
type SharedWriter struct {
	outlet
	room func() // immutable

	record *[recordBytes]byte // of which length bytes are due and not yet sealed; nil for none
	length int
	due    int   // bytes since the last Flush
	failed error // of sealing
}

// NewSharedWriter returns a writer on conn, as the listener accepted it. The TLS handshake must be
// over. room is called on a goroutine of its own when the socket has room again after a Flush that
// was blocked. The owner must call Close before it closes conn.
func NewSharedWriter(conn *tls.Conn, p *Poller, guard *exchange.Guard, room func()) *SharedWriter {
	w := &SharedWriter{room: func() { go room() }}
	w.open(conn, p, guard)
	w.gather.hold()
	w.poll(w, pollOut)
	return w
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

func (w *SharedWriter) seal() {
	w.failed = w.gather.seal(w.tls, w.record[:w.length])
	w.drop()
}

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
	return w.flush(&w.room)
}

// Finish writes what the client still takes, without waiting, and makes a close of the connection
// tell the client that nothing is missing. It is called at most once, after the last Flush.
func (w *SharedWriter) Finish() {
	blocked, err := w.Flush()
	w.gather.release(!blocked && err == nil)
}

// Close stops the calls of room, except for one in progress. It may be called more than once.
func (w *SharedWriter) Close() {
	w.again.Store(nil)
	if w.poller != nil {
		w.poller.remove(w.raw, w)
	}
	if w.record != nil {
		w.drop()
	}
}

// readable implements pollable. The connection's reader has a goroutine.
func (*SharedWriter) readable() {}
