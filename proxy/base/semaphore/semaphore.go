// Package semaphore bounds how many goroutines do something at a time. It knows nothing else of the
// proxy.
package semaphore

import "context"

// Semaphore holds one token for each goroutine that is at work. It is never closed. A select may
// send to it, to acquire it beside other cases.
type Semaphore chan struct{}

// New returns a semaphore for n goroutines at a time. With n = 1 it is a mutex whose wait ends with
// a context.
func New(n int) Semaphore { return make(Semaphore, n) }

// Acquire waits for a place, or until ctx ends. Then it returns the context's cause.
func (s Semaphore) Acquire(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TryAcquire takes a place if one is free, and reports whether it did.
func (s Semaphore) TryAcquire() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

// Release gives a place up. It never blocks after an Acquire.
func (s Semaphore) Release() { <-s }
