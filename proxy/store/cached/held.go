package cached

import (
	"unsafe"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// An answer from a cache shares the objects with it. But a client that does not read also keeps
// memory that is its answer's alone: the slices of a long list, the records that TLS has sealed, and
// bytes that were compressed for it and others. That counts for its source (package account) until
// the answer has been written. Small answers do not count. Versions of objects that change meanwhile
// do not either: all answers keep them together, for a minute at most.

// leastHeld is how many bytes an answer keeps at least that counts.
const leastHeld = 64 << 10

// holdAnswer counts what a body keeps. The client may not hold it unless o is open.
func (c *Reads) holdAnswer(x *exchange.Exchange, r *read, body exchange.BodySlices) (o request.Outcome) {
	bytes := int64(len(body)) * int64(unsafe.Sizeof(body[0]))
	if x.Conn.Secure() {
		sealed := int64(min(body.Size(), downstream.SealedAtOnce))
		if x.Protocol < exchange.HTTP20 {
			sealed *= 2 // they are joined first
		}
		bytes += sealed
	}
	if bytes < leastHeld {
		return o
	}
	return c.share(x, r, c.ledger.Share(account.Answers, bytes))
}

// share makes r's client hold something until the answer has been written. The client may not hold
// it unless o is open.
func (c *Reads) share(x *exchange.Exchange, r *read, held *account.Shared) (o request.Outcome) {
	letGo, ok := held.Hold(r.Source(), x.Conn.Break)
	if !ok {
		return c.tooMuch()
	}
	before := x.Until
	x.Until = closeFunc(func() {
		letGo()
		if before != nil {
			_ = before.Close()
		}
	})
	return o
}

// tooMuch refuses a read whose client holds too much.
func (c *Reads) tooMuch() request.Outcome {
	c.metrics.held.Inc()
	return request.Refuse(apistatus.TooManyRequests("too many responses to this client wait to be read"))
}
