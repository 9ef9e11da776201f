package proxytest

import (
	"log/slog"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Guard returns a Guard that logs nothing.
func Guard() *exchange.Guard {
	return exchange.NewGuard(metrics.NewSet(), slog.New(slog.DiscardHandler))
}
