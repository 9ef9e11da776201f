package http2

import (
	"net/http"
	"sync"
	"time"

	wire "golang.org/x/net/http2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/apistatus"
	"github.com/watchfan/watchfan/proxy/exchange"
	"github.com/watchfan/watchfan/proxy/request"
)

// exchanges holds empty exchanges. One goroutine uses an exchange, until its handler returns.
var exchanges = sync.Pool{New: func() any { return new(exchange.Exchange) }}

func giveBack(x *exchange.Exchange) {
	x.Reset()
	exchanges.Put(x)
}

// requestLocked opens the stream of the head that has been decoded, and starts its handler.
func (c *conn) requestLocked(id uint32, last bool) error {
	x := exchanges.Get().(*exchange.Exchange)
	expects, wrong := c.heads.readHead(x)
	if last && x.ContentLength > 0 {
		giveBack(x)
		apistatus.RejectedMalformed.Inc()
		return c.refuseLocked(id, wire.ErrCodeProtocol)
	}
	st := c.openLocked(id)
	x.Conn, x.Received = st, time.Now()
	switch {
	case last:
		st.remoteEnd = true
		x.ContentLength = 0
	default:
		st.body = newBody(st, x.ContentLength, expects)
		if x.ContentLength != 0 {
			x.Body = st.body
		}
	}
	if c.shared.Last() {
		c.goAwayLocked()
	}
	go st.serve(x, wrong)
	if st.Arriving() {
		c.queued = append(c.queued, func() { <-c.arrived })
	}
	return nil
}

// serve answers a request. It runs on a goroutine of its own, and returns when the response has
// been written or is left to a shard.
func (st *stream) serve(x *exchange.Exchange, wrong *metav1.Status) {
	c := st.conn
	release := true // nothing works for the stream any more
	defer func() {
		st.finished()
		if release {
			c.working.Done()
		}
	}()
	defer st.EndArrival()
	defer request.Caught(c.server.log, "response", func() { st.reset(wire.ErrCodeInternal) })
	st.handle(x, wrong)
	r := &responder{stream: st, method: x.Method}
	if x.Slot != nil {
		defer func() {
			if release {
				r.slot.Release()
			}
		}()
		r.slot = x.Slot
	}
	release = !r.respond(x)
}

// handle calls the handler for a request whose head is good, and rejects other requests. A panic of
// the handler ends the request only.
func (st *stream) handle(x *exchange.Exchange, wrong *metav1.Status) {
	defer request.Caught(st.conn.server.log, "request", func() {
		apistatus.Write(x, apistatus.Failure(http.StatusInternalServerError, metav1.StatusReasonInternalError,
			request.ErrPanicked.Error()))
	})
	if wrong != nil {
		apistatus.RejectedMalformed.Inc()
		apistatus.Write(x, wrong)
		return
	}
	defer st.EndArrival()
	st.conn.server.handler(x)
	x.Continue()
}

// reset ends a stream that cannot be completed.
func (st *stream) reset(code wire.ErrCode) {
	c := st.conn
	c.mu.Lock()
	defer c.unlock()
	c.resetLocked(st, code)
	c.sendLocked()
}
