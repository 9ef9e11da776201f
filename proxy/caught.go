package proxy

import (
	"errors"
	"log/slog"
	"runtime/debug"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/exposition"
)

var handlerPanics = metrics.NewCounter(exposition.Describe("counter", "watchfan_handler_panics_total",
	"Panics in the handling of a request or a stream. Each is a bug of watchfan, is logged, and ends only that client's connection."))

// errPanicked is how the work for one client ended that panicked.
var errPanicked = errors.New("internal error, see the proxy's log")

// caught ends, deferred, a panic of what is done for one client: it is counted and logged, and end, if there is one, ends that client. All others
// go on. It stands where a goroutine works for one client, and where a goroutine of many calls what is one client's alone, as the flusher's
// shards call a sink. A panic in what many share (a shard's own queues, a cache, a reflector) is not caught: nobody knows in which state that is
// then, and clients are served better by another replica. log may be nil.
func caught(log *slog.Logger, what string, end func()) {
	p := recover()
	if p == nil {
		return
	}
	handlerPanics.Inc()
	if log == nil {
		log = slog.Default()
	}
	log.Error("Handler panicked", "handler", what, "panic", p, "stack", string(debug.Stack()))
	if end != nil {
		end()
	}
}
