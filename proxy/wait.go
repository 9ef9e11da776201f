package proxy

import "context"

type waitKey struct{}

// withWait returns a context in which waits calls began. began may be called more than once and from any goroutine.
func withWait(ctx context.Context, began func()) context.Context {
	return context.WithValue(ctx, waitKey{}, began)
}

// waits says that the request of ctx is about to wait for something else than the processors.
func waits(ctx context.Context) {
	if began, ok := ctx.Value(waitKey{}).(func()); ok {
		began()
	}
}
