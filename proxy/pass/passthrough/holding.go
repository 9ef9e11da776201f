package passthrough

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const (
	// heldByRequest is what a request holds until it is answered: its goroutine and its head.
	heldByRequest = 8 << 10
	// heldByStranger is the same of a stranger, whose request has an upstream connection to itself.
	heldByStranger = 32 << 10
	// heldByLasting is the same of a request that may last: it has two goroutines, and a copy buffer
	// also while nothing comes. An upgraded one has twice as much, and an upstream connection.
	heldByLasting, heldByTunnel = 48 << 10, 128 << 10
	// roomWait is how long a request waits while its source holds too much, and roomEvery the time
	// between two looks. mostRoomWaits is how many of a source wait, because each of them takes as much
	// as one that goes on. A request beyond these is told to try again.
	roomWait, roomEvery = 5 * time.Second, 200 * time.Millisecond
	mostRoomWaits       = 256

	// requestTime is how long an ordinary request may take, its body and its response included. It is
	// kube-apiserver's --request-timeout, at which kube-apiserver answers 504 or breaks the response
	// off. answerGrace lets that answer come first.
	requestTime, answerGrace = 60 * time.Second, 3 * time.Second
	// leftEvery is the time between two looks whether the client of a request has left.
	leftEvery = time.Second
)

// errCut ends a request whose source holds more than its share. net/http returns it too, over HTTP/1.1.
// errUnheld says that kube-apiserver has answered, and that the answer would be beyond the share.
var (
	errCut    = errors.New("the client holds too much memory of the proxy")
	errUnheld = errors.New("the response may not be held")
)

// holding is what the proxy holds for one request that is passed through, as its source's account
// knows it. It is held until close. The account may cut it: then the request ends here and upstream.
type holding struct {
	ledger  *account.Ledger
	metrics *Metrics
	client  exchange.Conn
	ctx     context.Context // of the upstream request
	cancel  context.CancelCauseFunc
	lasts   bool        // the response may last; otherwise the request has requestTime
	head    int64       // what nothing else counts of a detached request's head, in bytes
	due     time.Time   // when a request ends that does not last
	looking *time.Timer // looks after the client; nil if the request is detached
	answer  *account.Entry

	mu        sync.Mutex
	source    account.Source
	body      *account.Entry // nil for none
	answering bool           // the response is being written
	closed    bool
}

// hold opens the account of a request. The upstream request ends with the streams if it is detached, and
// otherwise with the requests and when the client leaves. If it does not last, it ends at its time.
func (p *Forwarder) hold(x *exchange.Exchange, source account.Source, lasts, detached bool) (*holding, *metav1.Status) {
	h := &holding{ledger: p.Ledger, metrics: p.Metrics, client: x.Conn, source: source, lasts: lasts}
	ends := p.requests
	if detached {
		ends = p.streams
		if x.Protocol < exchange.HTTP20 { // whose account of a long head ends when the connection is taken over
			h.head = max(0, headOf(x)-heldByRequest)
		}
	}
	h.ctx, h.cancel = context.WithCancelCause(ends)
	h.answer = p.Ledger.Open(source, account.Answers, h.cut)
	if st := p.room(x, source, h.answer, h.least()); st != nil {
		h.close()
		return nil, st
	}
	if !detached {
		h.due = x.Received.Add(requestTime + answerGrace)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.looking = time.AfterFunc(h.wait(), h.look)
	}
	return h, nil
}

// headOf returns the bytes of a head, which the request to kube-apiserver keeps as long as it lasts.
func headOf(x *exchange.Exchange) int64 {
	bytes := len(x.Target)
	for _, f := range x.Header {
		bytes += len(f.Name) + len(f.Value)
	}
	return int64(bytes)
}

// wait returns the time until the next look.
func (h *holding) wait() time.Duration {
	if h.lasts {
		return leftEvery
	}
	return min(leftEvery, time.Until(h.due))
}

// look ends the request if its time is over, or its client has left, which nothing else shows while
// kube-apiserver sends nothing.
func (h *holding) look() {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
	case !h.lasts && !time.Now().Before(h.due):
		h.endLocked(context.DeadlineExceeded)
	case h.client.Left():
		h.cancel(nil)
	default:
		h.looking.Reset(h.wait())
	}
}

// room waits until entry, which is of source, may hold so many bytes. It returns the response to a
// request that may not go on.
func (p *Forwarder) room(x *exchange.Exchange, source account.Source, entry *account.Entry, bytes int64) *metav1.Status {
	if entry.Set(bytes) {
		return nil
	}
	if !p.waiting.begin(source) {
		return p.Metrics.tooMuch()
	}
	defer p.waiting.end(source)
	for waited := time.Duration(0); !entry.Set(bytes); waited += roomEvery {
		if waited >= roomWait || x.Conn.Left() || !exchange.Sleep(p.requests, roomEvery) {
			return p.Metrics.tooMuch()
		}
	}
	return nil
}

// roomWaits counts the requests of each source that wait for room.
type roomWaits struct {
	mu sync.Mutex
	of map[account.Source]int
}

// begin reports whether another request of source may wait. Then the caller calls end.
func (w *roomWaits) begin(source account.Source) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of[source] >= mostRoomWaits {
		return false
	}
	if w.of == nil {
		w.of = make(map[account.Source]int)
	}
	w.of[source]++
	return true
}

func (w *roomWaits) end(source account.Source) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of[source]--; w.of[source] == 0 {
		delete(w.of, source)
	}
}

// tooMuch is the response to a client that holds too much.
func (m *Metrics) tooMuch() *metav1.Status {
	m.held.Inc()
	return apistatus.TooManyRequests("too many responses to this client wait to be read, or too many bodies to be sent")
}

// least is what the request holds in any case.
func (h *holding) least() int64 {
	switch {
	case h.lasts:
		return heldByLasting + h.head
	case h.source.Stranger:
		return heldByStranger
	}
	return heldByRequest
}

// addBody opens the account of the request's body, which holds no bytes yet. It returns nil if the
// request has ended.
func (h *holding) addBody() *account.Entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.body != nil {
		return nil
	}
	h.body = h.ledger.Open(h.source, account.Bodies, h.cut)
	return h.body
}

// move makes another source pay, because its client has become known.
func (h *holding) move(to account.Source) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.source = to
	h.answer.Move(to)
}

// began counts a response whose body begins. It reports false if it may not be held.
func (h *holding) began(resp *http.Response) bool {
	h.mu.Lock()
	bytes := h.least()
	h.answering = true
	h.mu.Unlock()
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols:
		bytes = heldByTunnel + h.head
	case !h.lasts && resp.Body != http.NoBody:
		bytes += held(resp.ContentLength)
	}
	return h.answer.Set(bytes)
}

// held is how much of a response of some length the proxy can hold; -1 is any length.
func held(length int64) int64 {
	window := int64(upstream.Window)
	if length >= 0 {
		window = min(window, length)
	}
	return window + int64(exchange.CopyBufferSize(length))
}

// cut ends the request because its account is cut.
func (h *holding) cut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.endLocked(errCut)
	}
}

// endLocked ends the request upstream, and breaks off the response that is being written.
func (h *holding) endLocked(cause error) {
	h.cancel(cause)
	if h.answering {
		h.client.Break()
	}
}

// failure returns the response to a request that has failed because of err, if it was ended here or its
// response may not be held; nil for another one.
func (h *holding) failure(method string, err error) *metav1.Status {
	switch cause := context.Cause(h.ctx); {
	case errors.Is(err, errUnheld) && !safe(method):
		return apistatus.Failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
			"too many responses to this client wait to be read; the request has been processed, but its response is lost")
	case errors.Is(err, errUnheld), errors.Is(cause, errCut) && safe(method):
		return h.metrics.tooMuch()
	case errors.Is(cause, errCut):
		return apistatus.Failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
			"this client holds too much memory of this proxy; the request may or may not have taken effect")
	case errors.Is(cause, context.DeadlineExceeded):
		return apistatus.Failure(http.StatusGatewayTimeout, metav1.StatusReasonTimeout,
			"Timeout: request did not complete within the allotted timeout")
	}
	return nil
}

// close says that nothing is held any more. It ends the request upstream.
func (h *holding) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.cancel(nil)
	if h.looking != nil {
		h.looking.Stop()
	}
	h.answer.Close()
	if h.body != nil {
		h.body.Close()
	}
}

// heldBody is the body of a response that may last. It counts only while the client is being
// written to: until then, nothing waits. A body that may not be held ends.
type heldBody struct {
	io.ReadCloser
	holding *holding
}

func (b *heldBody) Read(p []byte) (int, error) {
	h := b.holding
	h.answer.Set(h.least())
	n, err := b.ReadCloser.Read(p)
	if n > 0 && !h.answer.Set(h.least()+upstream.Window+int64(n)) {
		h.metrics.held.Inc()
		h.cut()
		return 0, context.Canceled
	}
	return n, err
}
