package exchange

import (
	"errors"
	"io"
	"net"
	"time"
)

// Exchange is one request and its response. One goroutine uses it at a time, until the handler
// returns. The zero value is an empty request; see the protocols for where they come from.
type Exchange struct {
	// The request's head, immutable but for the few fields that a handler adds for kube-apiserver.
	// The strings own their memory. One that is kept for long keeps the whole head, so it is cloned.
	Method        string
	Target        string // as it was sent: a path and a query, or a URL with these; see [CutTarget]
	Protocol      Protocol
	Header        Header // all fields as they were sent, but for an Expect that the protocol has met
	ContentLength int64  // of the request's body: 0 for none, -1 if only its end will tell
	Close         bool   // the client wants no other request on its connection
	Body          Body   // nil for none; what the handler leaves of it is read over

	Conn     Conn
	Received time.Time // when the head had been read

	// Response is what the handler answers.
	Response Response

	// Slot is what the request holds until its response has ended; nil is nothing.
	Slot Slot
	// Until is closed when the response has been written, or runs without the handler; nil is
	// nothing.
	Until io.Closer
}

// Protocol is a version of HTTP. Later versions are greater.
type Protocol int

const (
	HTTP10 Protocol = 10
	HTTP11 Protocol = 11
)

// Slot is a place within some bound. Release gives it up, and may be called more than once.
type Slot interface{ Release() }

// Body is a request's body while it comes. Read is called by one goroutine at a time, at latest
// until the response has ended: then the protocol releases the body. The other methods may be called
// from any goroutine.
type Body interface {
	// Read fails with an error that is [os.ErrDeadlineExceeded] if the client sends nothing for too
	// long, with [io.ErrUnexpectedEOF] if it breaks off, and with [ErrBodyReleased]. io.EOF says that
	// the body is whole.
	io.Reader
	// Release makes a Read that waits fail, and all later ones. It reads a little of what is left,
	// and reports whether that was all. It may be called more than once.
	Release() (whole bool)
}

// ErrBodyReleased fails a Read of a body that has been released.
var ErrBodyReleased = errors.New("request body released: the response is complete")

// Reset makes x an empty request with an empty response, and keeps its memory.
func (x *Exchange) Reset() {
	clear(x.Header)
	clear(x.Response.Header)
	*x = Exchange{Header: x.Header[:0], Response: Response{Header: x.Response.Header[:0]}}
}

// RemoteIP returns the address that the client comes from, 0.0.0.0 if it is not known.
func (x *Exchange) RemoteIP() net.IP {
	if addr, ok := x.Conn.RemoteAddr().(*net.TCPAddr); ok {
		return addr.IP
	}
	return net.IPv4zero
}
