package exchange

import (
	"io"
	"net/http"

	"github.com/watchfan/watchfan/fanout"
)

// Response is a response as data. At most one of Body, Reader, Stream and Detached is set.
type Response struct {
	Status int    // 0 is 200
	Header Header // without Date, Connection and the fields that say where the body ends

	// Body is the whole body. What takes long of sealing it for TLS is done in Turn.
	Body BodySlices
	Turn Turn

	// Reader brings the body, and is closed after it. Length is how many bytes that are, -1 if only
	// the end will tell; then the head is sent at once. An error of Reader breaks the response off.
	// The response to a HEAD request has a Length and brings nothing.
	Reader io.ReadCloser
	Length int64

	// Stream is the source of a body without end. First is what the body begins with, and leaves
	// with the head. It is framed as what the sink gets.
	Stream Stream
	First  string

	// Detached answers in place of the handler, once that has returned.
	Detached func(Responder)

	// Close has the connection carry no other request.
	Close bool
}

// Reset empties the response, but for Close: what is to be the last response stays the last.
func (r *Response) Reset() {
	if r.Reader != nil {
		_ = r.Reader.Close()
	}
	clear(r.Header)
	*r = Response{Header: r.Header[:0], Close: r.Close}
}

// Code returns the status code.
func (r *Response) Code() int {
	if r.Status == 0 {
		return http.StatusOK
	}
	return r.Status
}

// HasBody reports whether a body follows the head of a response to a method (RFC 9112, section
// 6.3).
func (r *Response) HasBody(method string) bool {
	code := r.Code()
	return method != http.MethodHead && code >= 200 && code != http.StatusNoContent && code != http.StatusNotModified
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

// Turn is one client's turn at work that takes a processor. It is not held while we wait for the
// client.
type Turn interface {
	// Resume waits for the turn. An error says that the response cannot go on.
	Resume() error
	// Give ends the turn.
	Give()
}

// Stream is the source of a response without end. All its methods but Begin must not wait. After
// End none is called.
type Stream interface {
	// Begin hands over what the stream is to be written to, once the head has been written. It is
	// not called if that has failed.
	Begin(fanout.Sink)
	// Gone says that the client has left, or that the sink can't go on. The stream is to end.
	Gone()
	// Evict says that the stream is being ended because its client is too far behind.
	Evict(fanout.State)
	// End follows the last write, or a head that could not be written. complete says whether the
	// client has all that the stream promised.
	End(reason fanout.Reason, complete bool)
}

// Responder writes a response that may last, for a function of Detached. One goroutine uses it at a
// time.
type Responder interface {
	// OnGone has gone called when the client leaves before the response is complete, on another
	// goroutine and at most once. It is called once, before anything is written.
	OnGone(gone func())
	// Respond writes a response with a Body or a Reader. If it can't be written whole, the client
	// sees it broken off. It is called once at most.
	Respond(*Response)
	// Upgrade writes a response that changes the protocol, in place of Respond, and returns the
	// connection for the other protocol. Where the protocol knows no upgrades it fails.
	Upgrade(*Response) (Upgraded, error)
}

// Upgraded is a connection that speaks another protocol now. Close may be called from any
// goroutine, and more than once.
type Upgraded interface {
	io.ReadWriteCloser
	CloseWrite() error
}
