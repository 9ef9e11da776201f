package remember

import (
	"context"
	"sync"
	"time"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Coalescer lets callers that want the same thing at the same time share one call. Its methods may
// be called from any goroutine.
type Coalescer[K comparable, V any] struct {
	Guard *exchange.Guard // of the calls; immutable

	running sync.WaitGroup // the goroutines of calls

	mu    sync.Mutex
	calls map[K]*call[V] // those that callers can join
	ended bool           // no call begins any more
}

type call[V any] struct {
	cancel context.CancelFunc
	donec  chan struct{} // closed when the rest is set; never sent on
	value  V
	failed bool // fn has panicked: there is no value

	waiters int // guarded by Coalescer.mu
}

// Do returns the value of fn, or of a call of fn for the same key that is already under way. A
// caller whose ctx ends leaves, and Do reports false. The call goes on for the others. It is
// cancelled when the last caller has left, or after timeout. fn runs on its own goroutine and gets
// none of ctx's values. If fn panics, and after End, Do reports false.
func (c *Coalescer[K, V]) Do(ctx context.Context, key K, timeout time.Duration, fn func(context.Context) V) (value V, ok bool) {
	c.mu.Lock()
	cl := c.joinLocked(key, timeout, fn)
	if cl == nil {
		c.mu.Unlock()
		return value, false
	}
	cl.waiters++
	c.mu.Unlock()
	exchange.Waits(ctx)

	select {
	case <-cl.donec:
		return cl.value, !cl.failed
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		if cl.waiters--; cl.waiters == 0 {
			c.endLocked(key, cl)
		}
		return value, false
	}
}

// Start is Do without a wait. If callers of Do join the call, the last one to leave cancels it.
func (c *Coalescer[K, V]) Start(key K, timeout time.Duration, fn func(context.Context) V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.joinLocked(key, timeout, fn)
}

// joinLocked returns the call that is under way for key, or starts one. It returns nil after End.
func (c *Coalescer[K, V]) joinLocked(key K, timeout time.Duration, fn func(context.Context) V) *call[V] {
	if cl := c.calls[key]; cl != nil || c.ended {
		return cl
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	cl := &call[V]{cancel: cancel, donec: make(chan struct{}), failed: true}
	if c.calls == nil {
		c.calls = make(map[K]*call[V])
	}
	c.calls[key] = cl
	c.running.Go(func() {
		defer close(cl.donec)
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.endLocked(key, cl)
		}()
		defer c.Guard.Caught("shared call", nil)
		cl.value = fn(ctx)
		cl.failed = false
	})
	return cl
}

// endLocked cancels a call that has returned or that nobody waits for. Its key may already belong
// to a later call.
func (c *Coalescer[K, V]) endLocked(key K, cl *call[V]) {
	cl.cancel()
	if c.calls[key] == cl {
		delete(c.calls, key)
	}
}

// End cancels all calls and returns when their goroutines have ended. No call begins after that.
func (c *Coalescer[K, V]) End() {
	c.mu.Lock()
	c.ended = true
	for key, cl := range c.calls {
		c.endLocked(key, cl)
	}
	c.mu.Unlock()
	c.running.Wait()
}
