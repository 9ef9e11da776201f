package exchange

import (
	"errors"
	"log/slog"
	"runtime/debug"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/base/exposition"
)

var handlerPanics = exposition.Describe("counter", "watchfan_handler_panics_total",
	"Panics in the handling of a request or a stream. Each is a bug of watchfan, is logged, and ends only that client's connection.")

// ErrPanicked is the error of work for one client that panicked.
var ErrPanicked = errors.New("internal error, see the proxy's log")

// Guard catches the panics in a server's work for single clients. It is immutable.
type Guard struct {
	Log    *slog.Logger // the server's
	Panics *metrics.Counter
}

// NewGuard returns a Guard that counts in set.
func NewGuard(set *metrics.Set, log *slog.Logger) *Guard {
	return &Guard{Log: log, Panics: set.NewCounter(handlerPanics)}
}

// Caught, when deferred, stops a panic in the work for one client. It counts and logs the panic.
// Then it calls end, if not nil, to end that client. All other clients go on.
//
// Caught is deferred where a goroutine works for one client. It is also deferred where a shared
// goroutine calls code of one client only, as a shard of the flusher calls a sink. A panic in state
// that many clients share (a shard's queues, a cache, a reflector) is not caught: that state is
// then unknown, and another replica serves better.
func (g *Guard) Caught(what string, end func()) {
	p := recover()
	if p == nil {
		return
	}
	g.Panics.Inc()
	g.Log.Error("Handler panicked", "handler", what, "panic", p, "stack", string(debug.Stack()))
	if end != nil {
		end()
	}
}
