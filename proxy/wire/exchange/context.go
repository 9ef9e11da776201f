package exchange

import (
	"context"
	"time"
)

// Sleep waits for d, or until ctx ends. It reports whether ctx has not ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

type waitKey struct{}

// WithArrival returns a context in which the arrival of conn ends when its request waits; see
// [Waits].
func WithArrival(ctx context.Context, conn Conn) context.Context {
	if !conn.Arriving() {
		return ctx
	}
	return context.WithValue(ctx, waitKey{}, conn)
}

// Waits reports that the request of ctx is about to wait for something other than the processors.
func Waits(ctx context.Context) {
	if conn, ok := ctx.Value(waitKey{}).(Conn); ok {
		conn.EndArrival()
	}
}
