package passthrough

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// requestBody is a request's body while net/http sends it upstream. net/http may still read it when
// the response has begun, and even when it has ended. The protocol releases the body at that point.
//
// The beginning of a known client's body is received before the request is sent. Otherwise a client
// could begin many requests, send no bodies, and hold a stream to kube-apiserver for each of them.
// If it is short, it can be sent again from its beginning: kube-apiserver ends a connection (HTTP/2's
// GOAWAY) when a request on it fails to authenticate, as with a known token that has expired, and may
// not have processed the last requests on that connection. net/http sends those again, or they fail.
//
// A stranger's body is not read before kube-apiserver reads it; see expect. It can be sent again only
// while nothing of it has been read.
type requestBody struct {
	exchange.Body
	guard *exchange.Guard
	most  int64 // what may be held of it, the protocol's part included

	mu    sync.Mutex
	keep  int    // how much of it can be sent again
	err   error  // the error that Body ended with
	total int    // bytes read from Body
	kept  []byte // those bytes, up to keep; nil beyond it
}

// newBody returns the request's body; nil for none. An ordinary request's body has as much time as
// the request.
func (p *Forwarder) newBody(x *exchange.Exchange, r *passing) *requestBody {
	if x.Body == nil {
		return nil
	}
	if !r.holding.lasts {
		x.Body.Due(x.Received.Add(requestTime))
	}
	b := &requestBody{Body: x.Body, guard: p.Guard, most: exchange.MostBodyHeld}
	if x.ContentLength >= 0 {
		b.most = min(b.most, x.ContentLength)
	}
	return b
}

// receive receives the beginning of a known client's body. It returns the response to a request that
// may not go on.
func (p *Forwarder) receive(x *exchange.Exchange, r *passing, body *requestBody) *metav1.Status {
	if body == nil || r.holding.source.Stranger {
		return nil
	}
	if st := p.room(x, r.holding.source, r.holding.addBody(), body.most+min(body.most, upstream.MaxKeptBody)); st != nil {
		return st
	}
	body.Own()
	body.keep = upstream.MaxKeptBody
	return body.receive()
}

// whole reports whether the whole body has come, and is kept. b may be nil.
func (b *requestBody) whole() bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err == io.EOF && b.total <= b.keep
}

var errBodyNotKept = errors.New("request body is too long to be sent again")

// receive waits until the whole body, or upstream.MaxKeptBody bytes of it, have come. It returns the
// response to a body that fails before that, nil for another one.
func (b *requestBody) receive() *metav1.Status {
	if _, err := io.CopyN(io.Discard, &bodyAttempt{body: b}, upstream.MaxKeptBody); err == nil || err == io.EOF {
		return nil
	}
	return b.failure()
}

// bodyAttempt reads a requestBody from its beginning.
type bodyAttempt struct {
	body *requestBody
	at   int // bytes read
}

// again is net/http's Request.GetBody.
func (b *requestBody) again() (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.total > b.keep {
		return nil, errBodyNotKept
	}
	return &bodyAttempt{body: b}, nil
}

// Read implements io.Reader for net/http, on goroutines of net/http, some of them shared by all
// clients.
func (a *bodyAttempt) Read(p []byte) (n int, err error) {
	defer a.body.guard.Caught("request body", func() { n, err = 0, exchange.ErrPanicked })
	n, err = a.body.readAt(p, a.at)
	a.at += n
	return n, err
}

// Close is called by net/http. It leaves the body to the protocol.
func (a *bodyAttempt) Close() error { return nil }

// readAt reads from the offset at, which is no more than total.
func (b *requestBody) readAt(p []byte, at int) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case at < len(b.kept):
		return copy(p, b.kept[at:]), nil
	case at < b.total:
		return 0, errBodyNotKept
	case b.err != nil:
		return 0, b.err
	}
	n, err := b.Body.Read(p)
	if b.total += n; b.total <= b.keep {
		b.kept = append(b.kept, p[:n]...)
	} else {
		b.kept = nil
	}
	b.err = err
	return n, err
}

// failure releases the body. It returns the response to a body that failed, nil if it did not. b
// may be nil.
func (b *requestBody) failure() *metav1.Status {
	if b == nil {
		return nil
	}
	b.Release()
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.err == nil || b.err == io.EOF || errors.Is(b.err, exchange.ErrBodyReleased):
		return nil
	case errors.Is(b.err, os.ErrDeadlineExceeded):
		return apistatus.Failure(http.StatusRequestTimeout, metav1.StatusReasonTimeout, "the request's body did not arrive in time")
	}
	return apistatus.BadRequest("the request's body could not be read")
}
