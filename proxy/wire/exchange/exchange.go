package exchange

import (
	"cmp"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Exchange is one request and its response. One goroutine uses it at a time, until the handler
// returns. The zero value is an empty request. The protocols create exchanges.
type Exchange struct {
	// The request's head. It is immutable, except for a few fields that a handler adds for
	// kube-apiserver. The strings own their memory. A string that is kept for long would keep the
	// whole head, and must be cloned.
	Method        string
	Target        string // as sent: a path and a query, or a URL with these; see [CutTarget]
	Asked         string // Target as sent, if a handler has changed it; else ""
	Protocol      Protocol
	Header        Header // all fields as sent, without an Expect that the protocol has met
	ContentLength int64  // of the request's body: 0 for none, -1 if not known
	Close         bool   // the client sends no further request on its connection
	Body          Body   // nil for none; the protocol discards what the handler has not read

	Conn     Conn
	Received time.Time // when the head had been read
	// Due is when an ordinary request must have been answered. The zero time is no limit, as for a watch
	// or a log. See WriteBy.
	Due time.Time

	// Response is the handler's response.
	Response Response

	// Passed says that kube-apiserver answers the request, and Sent when it was sent on, if its body was whole then.
	// GivenUp says that it was then given up: the client has left or holds too much, or its time is over. A handler sets
	// all.
	Passed  bool
	Sent    time.Time
	GivenUp bool
	// Slot is held until the response has ended; nil for none.
	Slot Slot
	// Until is closed when the response has been written, or when it runs on without the handler;
	// nil for none.
	Until io.Closer
	// Recall is closed when a watch that passes through can be served here. The watch then ends
	// behind a bookmark, and its client resumes. nil for never.
	Recall <-chan struct{}
	// Follower follows the answer to a request that passes through; nil for none.
	Follower Follower
}

// Follower follows the answer to a request that passes through. What it does must not wait, and
// changes nothing for the client. Its methods are called one at a time.
type Follower interface {
	// Began is called once the head of an answer with code 200, or 101 to an upgrade, has come. Only then the
	// other methods are called. recall is closed when the client of a watch that can resume shall come back: the watch
	// then ends where its client misses nothing. nil is never.
	Began(http.Header) (recall <-chan struct{})
	// Write gets the next bytes of the body, which are valid until it returns.
	Write([]byte)
	// End is called last. whole says that the body has come to its proper end.
	End(whole bool)
}

// Protocol is a version of HTTP. Later versions are greater.
type Protocol int

const (
	HTTP10 Protocol = 10
	HTTP11 Protocol = 11
	HTTP20 Protocol = 20
)

// Slot is a place within a limit. Release gives it up, and may be called more than once.
type Slot interface{ Release() }

// Body is a request's body while it comes. One goroutine at a time calls Read, no longer than until
// the response has ended; then the protocol releases the body. The other methods may be called from
// any goroutine. Hold and Own say for whom the bytes count that the protocol holds before they are read
// (package account).
type Body interface {
	// Read fails with an error that is [os.ErrDeadlineExceeded] if the client sends nothing for too
	// long or the body is late, with [io.ErrUnexpectedEOF] if it breaks off, and with
	// [ErrBodyReleased] after Release. io.EOF means that the body is whole.
	io.Reader
	// Hold counts what the protocol holds of the body for the connection's payer, until Own is called.
	// It reports false if that may not be held. In HTTP/2 bytes count as they come, with or without it.
	Hold() bool
	// Own says that the handler knows the client, and counts from now on what the protocol holds of
	// the body: at most [MostBodyHeld] bytes, which may now come before they are read. It may be
	// called more than once.
	Own()
	// Due sets the time by which the whole body must have come. Without it, only a client that sends
	// nothing for too long is late.
	Due(time.Time)
	// Release makes a waiting Read and all later ones fail. It reads a little of the rest, and
	// reports whether the whole body has been read. It may be called more than once.
	Release() (whole bool)
}

// MostBodyHeld is how many bytes of a body a protocol holds at most before they are read.
const MostBodyHeld = 256 << 10

// ErrBodyReleased is Read's error after Release.
var ErrBodyReleased = errors.New("request body released: the response is complete")

// Reset makes x an empty request with an empty response. It keeps x's memory.
func (x *Exchange) Reset() {
	clear(x.Header)
	clear(x.Response.Header)
	*x = Exchange{Header: x.Header[:0], Response: Response{Header: x.Response.Header[:0]}}
}

var exchanges = sync.Pool{New: func() any { return new(Exchange) }}

// Take returns an empty exchange. Give gives it back, when its handler has returned.
func Take() *Exchange { return exchanges.Get().(*Exchange) }

func (x *Exchange) Give() {
	x.Reset()
	exchanges.Put(x)
}

// Written closes Until, if there is one.
func (x *Exchange) Written() {
	if until := x.Until; until != nil {
		x.Until = nil
		_ = until.Close()
	}
}

// Continue calls the response's Later, if there is one.
func (x *Exchange) Continue() {
	if later := x.Response.Later; later != nil {
		x.Response.Later = nil
		later(x)
	}
}

const (
	// leastWrite is the least time for writing a response.
	leastWrite = 5 * time.Second
	// leastPassed is the same for a response that passes through. kube-apiserver limits its own part,
	// and its --request-timeout may be longer than ours.
	leastPassed = 60 * time.Second
)

// WriteBy returns when a response that begins now must have been written. The zero time is no limit.
func (x *Exchange) WriteBy() time.Time {
	if x.Due.IsZero() {
		return x.Due
	}
	least := leastWrite
	if x.Response.Reader != nil {
		least = leastPassed
	}
	at := time.Now().Add(least)
	if x.Due.After(at) {
		return x.Due
	}
	return at
}

// URI returns the target as the client sent it.
func (x *Exchange) URI() string { return cmp.Or(x.Asked, x.Target) }

// RemoteIP returns the client's address, 0.0.0.0 if it is not known.
func (x *Exchange) RemoteIP() net.IP {
	if addr, ok := x.Conn.RemoteAddr().(*net.TCPAddr); ok {
		return addr.IP
	}
	return net.IPv4zero
}
