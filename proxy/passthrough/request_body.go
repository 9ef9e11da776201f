package passthrough

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/apistatus"
	"github.com/watchfan/watchfan/proxy/exchange"
	"github.com/watchfan/watchfan/proxy/request"
	"github.com/watchfan/watchfan/proxy/upstream"
)

// requestBody is a request's body while net/http sends it upstream. net/http may still read it when
// the response has begun, and even when it has ended; the protocol releases it then.
//
// A short body can be sent again from its beginning. Kube-apiserver ends a connection (HTTP/2's
// GOAWAY) when somebody on it fails to authenticate, and has not looked at the last requests on it:
// net/http then sends those again, or they fail. Strangers share a connection, and none of them may
// make another's request fail. Upstream sends what cannot be sent again elsewhere.
type requestBody struct {
	exchange.Body
	log *slog.Logger

	mu    sync.Mutex
	err   error  // what Body ended with
	total int    // bytes that Body has brought
	kept  []byte // those bytes, while they are no more than maxKeptBody
}

var errBodyNotKept = errors.New("request body is too long to be sent again")

// bodyAttempt reads a requestBody from its beginning.
type bodyAttempt struct {
	body *requestBody
	at   int // bytes read
}

// again is net/http's Request.GetBody.
func (b *requestBody) again() (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.total > upstream.MaxKeptBody {
		return nil, errBodyNotKept
	}
	return &bodyAttempt{body: b}, nil
}

// Read implements io.Reader, for net/http on goroutines that are its own or everybody's.
func (a *bodyAttempt) Read(p []byte) (n int, err error) {
	defer request.Caught(a.body.log, "request body", func() { n, err = 0, request.ErrPanicked })
	n, err = a.body.readAt(p, a.at)
	a.at += n
	return n, err
}

// Close is net/http's and leaves the body to the protocol.
func (a *bodyAttempt) Close() error { return nil }

// readAt reads on from at, which is no more than total.
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
	if b.total += n; b.total <= upstream.MaxKeptBody {
		b.kept = append(b.kept, p[:n]...)
	} else {
		b.kept = nil
	}
	b.err = err
	return n, err
}

// failure releases the body and says what was wrong with it, nil if nothing was. b may be nil.
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
