package proxytest

import (
	"context"
	"time"
)

// Sleep waits for d. It returns false, and at once, if ctx ends before.
//
//testlint:allow timer calls of it are findings
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
