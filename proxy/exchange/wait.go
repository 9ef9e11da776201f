package exchange

import "context"

type waitKey struct{}

// WithWait returns a context in which Waits calls began. began may be called more than once and
// from any goroutine.
func WithWait(ctx context.Context, began func()) context.Context {
	return context.WithValue(ctx, waitKey{}, began)
}

// Waits reports that the request of ctx is about to wait for something other than the processors.
func Waits(ctx context.Context) {
	if began, ok := ctx.Value(waitKey{}).(func()); ok {
		began()
	}
}

// WithArrival returns a context in which the arrival of conn ends when its request waits; see
// [Waits].
func WithArrival(ctx context.Context, conn Conn) context.Context {
	if !conn.Arriving() {
		return ctx
	}
	return WithWait(ctx, conn.EndArrival)
}
