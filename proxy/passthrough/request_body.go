package passthrough

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/apistatus"
	"github.com/watchfan/watchfan/proxy/downstream"
	"github.com/watchfan/watchfan/proxy/request"
	"github.com/watchfan/watchfan/proxy/upstream"
)

// requestBody is a request's body while net/http sends it upstream. net/http may still read it when
// the response has begun, and even when it has ended; fasthttp takes it away then. release comes
// between the two.
//
// A short body can be sent again from its beginning. Kube-apiserver ends a connection (HTTP/2's
// GOAWAY) when somebody on it fails to authenticate, and has not looked at the last requests on it:
// net/http then sends those again, or they fail. Strangers share a connection, and none of them may
// make another's request fail. Upstream sends what cannot be sent again elsewhere.
type requestBody struct {
	conn   net.Conn
	length int // chunkedLength for one in chunks
	log    *slog.Logger

	atEnd atomic.Bool // the body has been read to its end

	releasing atomic.Bool

	mu          sync.Mutex
	stream      io.Reader // nil once released
	err         error     // what stream ended with
	interrupted bool      // err is release's doing
	total       int       // bytes that stream has brought
	kept        []byte    // those bytes, while they are no more than maxKeptBody
}

var (
	errBodyReleased = errors.New("request body released: the response is complete")
	errBodyNotKept  = errors.New("request body is too long to be sent again")
)

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

// Close is net/http's and leaves the stream to release.
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
	case b.stream == nil:
		return 0, errBodyReleased
	}
	_ = b.conn.SetReadDeadline(time.Now().Add(downstream.StallTimeout))
	if b.releasing.Load() { // its deadline may have come before ours
		return 0, errBodyReleased
	}
	n, err := b.stream.Read(p)
	if b.total += n; b.total <= upstream.MaxKeptBody {
		b.kept = append(b.kept, p[:n]...)
	} else {
		b.kept = nil
	}
	if err == io.EOF && !b.wholeLocked() {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		b.err = err
		b.atEnd.Store(err == io.EOF)
		b.interrupted = b.releasing.Load()
	}
	return n, err
}

// wholeLocked reports whether a stream that has said io.EOF has brought all of the body.
func (b *requestBody) wholeLocked() bool {
	if b.length == downstream.ChunkedLength {
		return downstream.SawEnd(b.stream)
	}
	return b.total == b.length
}

// release ends a read in progress, reads a little of what is left, and gives the stream back to
// fasthttp. It reports whether the body was whole, so that the connection can carry another
// request.
func (b *requestBody) release() (whole bool) {
	if !b.atEnd.Load() {
		b.releasing.Store(true)
		_ = b.conn.SetReadDeadline(downstream.LongAgo)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stream != nil && b.err == nil {
		whole = downstream.DiscardBody(b.conn, b.stream)
	}
	b.stream = nil
	return whole || b.atEnd.Load()
}

// failure says what was wrong with the client's body, nil if nothing was.
func (b *requestBody) failure() *metav1.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.err == nil || b.err == io.EOF || b.interrupted:
		return nil
	case errors.Is(b.err, os.ErrDeadlineExceeded):
		return apistatus.Failure(http.StatusRequestTimeout, metav1.StatusReasonTimeout, "the request's body did not arrive in time")
	}
	return apistatus.BadRequest("the request's body could not be read")
}
