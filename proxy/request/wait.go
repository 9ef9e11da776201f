package request

import "context"

type waitKey struct{}

// WithWait returns a context in which waits calls began. began may be called more than once and
// from any goroutine.
func WithWait(ctx context.Context, began func()) context.Context {
	return context.WithValue(ctx, waitKey{}, began)
}

// Waits says that the request of ctx is about to wait for something else than the processors.
func Waits(ctx context.Context) {
	if began, ok := ctx.Value(waitKey{}).(func()); ok {
		began()
	}
}
