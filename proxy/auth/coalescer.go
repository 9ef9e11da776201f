package auth

import (
	"context"
	"sync"
	"time"

	"github.com/watchfan/watchfan/proxy/request"
)

// Coalescer lets callers that want the same thing at the same time share one
// call. The zero value is ready for use, by any number of goroutines.
type Coalescer[K comparable, V any] struct {
	mu    sync.Mutex
	calls map[K]*call[V] // those under way
}

type call[V any] struct {
	cancel context.CancelFunc
	donec  chan struct{} // closed when the rest is set; never sent on
	value  V
	failed bool // fn has panicked: there is no value

	waiters int // guarded by coalescer.mu
}

// Do returns the value of fn, or of a call of fn for the same key that is
// already under way. A caller whose ctx ends leaves, and do reports false; the
// call goes on for the others and is cancelled when the last one has left, or
// after timeout. fn runs on a goroutine of its own and gets none of ctx's values. If
// it panics, do reports false to all.
func (c *Coalescer[K, V]) Do(ctx context.Context, key K, timeout time.Duration, fn func(context.Context) V) (value V, ok bool) {
	c.mu.Lock()
	cl := c.calls[key]
	if cl == nil {
		cl = c.startLocked(key, timeout, fn)
	}
	cl.waiters++
	c.mu.Unlock()
	request.Waits(ctx)

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

func (c *Coalescer[K, V]) startLocked(key K, timeout time.Duration, fn func(context.Context) V) *call[V] {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	cl := &call[V]{cancel: cancel, donec: make(chan struct{})}
	if c.calls == nil {
		c.calls = make(map[K]*call[V])
	}
	c.calls[key] = cl
	go func() {
		defer close(cl.donec)
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.endLocked(key, cl)
		}()
		cl.failed = true
		defer request.Caught(nil, "shared call", nil)
		cl.value = fn(ctx)
		cl.failed = false
	}()
	return cl
}

// endLocked cancels a call that has returned or that nobody waits for. Its key
// may already belong to a later call.
func (c *Coalescer[K, V]) endLocked(key K, cl *call[V]) {
	cl.cancel()
	if c.calls[key] == cl {
		delete(c.calls, key)
	}
}
