package proxytest

import (
	"context"
	"time"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Sleep waits for d. It returns false, and at once, if ctx ends before.
func Sleep(ctx context.Context, d time.Duration) bool { return exchange.Sleep(ctx, d) }
