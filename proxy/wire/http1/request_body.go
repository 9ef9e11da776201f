package http1

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// requestBody is a request's body while it comes. It implements [exchange.Body]. It may still be read,
// to be forwarded, when the response has begun and even when it has ended. fasthttp reuses the stream
// after the response. Release must be called between the two.
type requestBody struct {
	conn   net.Conn
	client *downstream.Conn
	ledger *account.Ledger
	length int // chunkedLength for a chunked body

	atEnd     atomic.Bool // the body has been read to its end
	releasing atomic.Bool

	entry atomic.Pointer[account.Entry] // of Hold; nil for none

	mu     sync.Mutex
	due    time.Time // by when the whole body must have come; zero for never
	stream io.Reader // fasthttp's; nil once released
	err    error     // the error that stream ended with
	total  int       // bytes read from stream
}

// mostAhead is how many bytes of a body fasthttp may hold before they are read: a read buffer, and 8 KiB
// that it reads ahead of the handler.
const mostAhead = exchange.MaxHeaderBytes + 8<<10

func (b *requestBody) Hold() bool {
	most := int64(mostAhead)
	if b.length >= 0 {
		most = min(most, int64(b.length))
	}
	entry := b.ledger.Open(b.client.Payer(), account.Bodies, b.client.Break)
	if !entry.Set(most) {
		entry.Close()
		return false
	}
	b.entry.Store(entry)
	return true
}

func (b *requestBody) Own() {
	if entry := b.entry.Load(); entry != nil {
		entry.Close()
	}
}

func (b *requestBody) Due(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.due = at
}

func (b *requestBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	if b.stream == nil {
		return 0, exchange.ErrBodyReleased
	}
	_ = b.conn.SetReadDeadline(downstream.Stalled(b.due))
	if b.releasing.Load() { // Release's deadline may have been overwritten by this one
		return 0, exchange.ErrBodyReleased
	}
	n, err := b.stream.Read(p)
	b.total += n
	if err == io.EOF && !b.wholeLocked() {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		b.atEnd.Store(err == io.EOF)
		if err != io.EOF && b.releasing.Load() {
			err = exchange.ErrBodyReleased
		}
		b.err = err
	}
	return n, err
}

// chunkedLength is fasthttp's length of a chunked body.
const chunkedLength = -1

// wholeLocked reports whether a stream that has returned io.EOF has returned the whole body. That of a
// chunked body also returns io.EOF when the client's connection ends between two chunks.
func (b *requestBody) wholeLocked() bool {
	if b.length == chunkedLength {
		return !keptOf(b.conn).broke
	}
	return b.total == b.length
}

// Release ends a read in progress, reads a little of the rest, and gives the stream back to
// fasthttp. It reports whether the body was whole. Only then can the connection carry another
// request.
func (b *requestBody) Release() (whole bool) {
	if !b.atEnd.Load() {
		b.releasing.Store(true)
		_ = b.conn.SetReadDeadline(longAgo)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stream != nil && b.err == nil && discard(b.conn, b.stream) {
		b.atEnd.Store(true)
	}
	b.stream = nil
	b.Own()
	return b.atEnd.Load()
}

// discard reads the rest of a body, if that is short and comes soon, and reports whether it read
// all of it. Closing a connection with unread bytes resets it, and the client may lose the
// response.
func discard(c net.Conn, stream io.Reader) (all bool) {
	_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	n, err := io.CopyN(io.Discard, stream, 256<<10)
	return err == io.EOF && n < 256<<10
}
