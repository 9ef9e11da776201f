package remember

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// A caller that leaves does not affect the others. When the last caller leaves, the call is
// cancelled, and the next caller gets a new call.
func TestCoalescerLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Coalescer[string, bool]
		cancelled := 0
		wait := func(ctx context.Context) bool {
			select {
			case <-ctx.Done():
				cancelled++
				time.Sleep(time.Second) // slow to notice
				return false
			case <-time.After(10 * time.Second):
				return true
			}
		}
		leave := func(after time.Duration) (v, ok bool) {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			return c.Do(ctx, "k", time.Minute, wait)
		}

		go leave(time.Second)
		if v, ok := c.Do(t.Context(), "k", time.Minute, wait); !v || !ok || cancelled != 0 {
			t.Errorf("the one who stayed: got %v %v, %d cancelled", v, ok, cancelled)
		}

		go leave(2 * time.Second)
		if v, ok := leave(time.Second); v || ok {
			t.Errorf("the one who left: got %v %v", v, ok)
		}
		time.Sleep(time.Second + time.Millisecond) // now the other has left as well
		if v, ok := c.Do(t.Context(), "k", time.Minute, wait); !v || !ok || cancelled != 1 {
			t.Errorf("the one who came later: got %v %v, %d cancelled", v, ok, cancelled)
		}
		if len(c.calls) != 0 {
			t.Errorf("%d calls are left over", len(c.calls))
		}
	})
}

// A call that panics has no value for its callers. The next caller gets a new call.
func TestCoalescerPanic(t *testing.T) {
	c := Coalescer[string, error]{Guard: proxytest.Guard()}
	for range 2 {
		if _, ok := c.Do(t.Context(), "key", time.Minute, func(context.Context) error { panic("call") }); ok {
			t.Error("it has a value")
		}
	}
	if n := c.Guard.Panics.Get(); n != 2 {
		t.Errorf("%d panics counted, want 2", n)
	}
	if err, ok := c.Do(t.Context(), "key", time.Minute, func(context.Context) error { return nil }); err != nil || !ok {
		t.Errorf("afterwards: %v, %t", err, ok)
	}
}

// TestCoalescerEnd: End cancels the calls under way, waits for them, and lets no other begin.
func TestCoalescerEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Coalescer[string, bool]
		returned := false
		slow := func(ctx context.Context) bool {
			<-ctx.Done()
			time.Sleep(time.Second) // slow to notice
			returned = true
			return true
		}
		go c.Do(t.Context(), "k", time.Minute, slow)
		synctest.Wait()
		began := time.Now()
		c.End()
		if took := time.Since(began); !returned || took != time.Second {
			t.Errorf("End returned after %s, before the call: %v", took, !returned)
		}
		if _, ok := c.Do(t.Context(), "k", time.Minute, slow); ok || len(c.calls) != 0 {
			t.Errorf("afterwards: %v, %d calls", ok, len(c.calls))
		}
	})
}
