package exchange

import (
	"cmp"
	"io"
	"net/http"
	"strconv"

	"github.com/watchfan/watchfan/fanout"
)

// Response is a response as data. At most one of Body, Reader, Stream, Detached and Later is set.
type Response struct {
	Status int    // 0 is 200
	Header Header // without Connection and the fields that frame the body

	// Body is the whole body. A long body is sealed for TLS during Turn.
	Body BodySlices
	Turn Turn

	// Reader provides the body, and is closed after it. Length is the number of bytes, -1 if not
	// known; then the head is sent at once. An error of Reader breaks the response off. The
	// response to a HEAD request has a Length, and its Reader provides nothing.
	Reader io.ReadCloser
	Length int64

	// Stream is the source of a body without end. First is the beginning of the body and leaves
	// with the head. It is framed like the sink's events.
	Stream Stream
	First  string

	// Messages, if not nil, is the form of the stream's events on a WebSocket, which the client has
	// asked for. Status is then 101.
	Messages *Messages

	// Detached answers in place of the handler, after the handler has returned.
	Detached func(Responder)

	// Later goes on with the handler's work, which has a long wait ahead, after the handler has
	// returned. It gets the same request, and fills an empty response. Meanwhile the protocol gives
	// up the memory that it has for reading the connection. The request has no body.
	Later func(*Exchange)

	// Bare says that the head is Status and Header alone, and that the connection ends behind the
	// body. A handshake of WebSocket is answered so.
	Bare bool

	// Close says that the connection carries no further request.
	Close bool
}

// Messages is the form of a watch's events on a WebSocket. Each event is one message.
type Messages struct {
	Binary bool // otherwise text
	Prefix int  // bytes at the beginning of an event, its length in a stream; not in its message
}

// Reset empties the response, except for Close: the last response of a connection stays the last.
func (r *Response) Reset() {
	if r.Reader != nil {
		_ = r.Reader.Close()
	}
	clear(r.Header)
	*r = Response{Header: r.Header[:0], Close: r.Close}
}

// Code returns the status code.
func (r *Response) Code() int { return cmp.Or(r.Status, http.StatusOK) }

// HasBody reports whether a body follows the head of a response to method (RFC 9112, section 6.3).
func (r *Response) HasBody(method string) bool {
	code := r.Code()
	return method != http.MethodHead && code >= 200 && code != http.StatusNoContent && code != http.StatusNotModified
}

// BodyLength returns the length of Body or of Reader; -1 if it is not known.
func (r *Response) BodyLength() int64 {
	if r.Reader != nil {
		return r.Length
	}
	return int64(r.Body.Size())
}

// SaysLength returns the Content-Length of the head for a body of some length; "" for none.
func (r *Response) SaysLength(length int64) string {
	if length < 0 || !r.HasBody(http.MethodGet) {
		return ""
	}
	return strconv.FormatInt(length, 10)
}

// BodySlices is a response body of shared slices.
type BodySlices [][]byte

// Size returns the body's length in bytes.
func (b BodySlices) Size() int {
	n := 0
	for _, s := range b {
		n += len(s)
	}
	return n
}

// Turn is one client's turn at work that needs a processor. It is not held during a wait for the
// client.
type Turn interface {
	// Resume waits for the turn. An error means that the response cannot go on.
	Resume() error
	// Give ends the turn.
	Give()
}

// Stream is the source of a response without end. All methods except Begin must not wait. No method
// is called after End.
type Stream interface {
	// Begin hands over the sink of the stream, after the head has been written. It is not called if
	// the head could not be written.
	Begin(fanout.Sink)
	// Gone says that the client has left, or that the sink cannot go on. The stream must end.
	Gone()
	// Keep says how many bytes of memory the stream keeps because its client does not read. It
	// reports false if those are too many; then the stream is evicted.
	Keep(bytes int64) (ok bool)
	// Evict says that the stream is being ended because its client is too far behind.
	Evict(fanout.State)
	// End is called after the last write, or when the head could not be written. complete says
	// whether the client has everything that the stream promised.
	End(reason fanout.Reason, complete bool)
}

// Responder writes a response that may last, for a function of Detached. One goroutine uses it at a
// time.
type Responder interface {
	// OnGone registers gone, which is called when the client leaves before the response is
	// complete: on another goroutine and at most once. OnGone is called once, before anything is
	// written.
	OnGone(gone func())
	// Respond writes a response with a Body or a Reader. If it cannot be written whole, the client
	// sees it broken off. It is called at most once.
	Respond(*Response)
	// Upgrade writes a response that changes the protocol, in place of Respond. It returns the
	// connection for the other protocol. It fails in a protocol without upgrades.
	Upgrade(*Response) (Upgraded, error)
}

// Upgraded is a connection that now speaks another protocol. Close may be called from any
// goroutine, and more than once.
type Upgraded interface {
	io.ReadWriteCloser
	CloseWrite() error
}
