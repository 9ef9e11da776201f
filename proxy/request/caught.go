package request

import (
	"errors"
	"log/slog"
	"runtime/debug"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/exposition"
)

var HandlerPanics = metrics.NewCounter(exposition.Describe("counter", "watchfan_handler_panics_total",
	"Panics in the handling of a request or a stream. Each is a bug of watchfan, is logged, and ends only that client's connection."))

// ErrPanicked is how the work for one client ended that panicked.
var ErrPanicked = errors.New("internal error, see the proxy's log")

// Caught, when deferred, ends a panic in the work for one client. It counts and logs the panic, and
// calls end, if there is one, to end that client. All others go on. It stands where a goroutine
// works for one client, and where a shared goroutine calls what is one client's alone, as a shard
// of the flusher calls a sink. A panic in what many clients share (a shard's queues, a cache, a
// reflector) is not caught: its state is unknown then, and another replica serves better. log may
// be nil.
func Caught(log *slog.Logger, what string, end func()) {
	p := recover()
	if p == nil {
		return
	}
	HandlerPanics.Inc()
	if log == nil {
		log = slog.Default()
	}
	log.Error("Handler panicked", "handler", what, "panic", p, "stack", string(debug.Stack()))
	if end != nil {
		end()
	}
}
