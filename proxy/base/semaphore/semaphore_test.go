package semaphore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// A semaphore has n places. A wait for one ends with a release, or with its context.
func TestSemaphore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(2)
		for want := 1; want >= 0; want-- {
			if err := s.Acquire(t.Context()); err != nil || cap(s)-len(s) != want {
				t.Fatalf("got %v, %d places free, want %d", err, cap(s)-len(s), want)
			}
		}
		left := errors.New("left")
		ctx, leave := context.WithCancelCause(t.Context())
		waiting := make(chan error)
		go func() { waiting <- s.Acquire(ctx) }()
		synctest.Wait()
		leave(left)
		if err := <-waiting; err != left {
			t.Errorf("got %v, want %v", err, left)
		}
		go func() { waiting <- s.Acquire(t.Context()) }()
		synctest.Wait()
		s.Release()
		if err := <-waiting; err != nil || cap(s)-len(s) != 0 {
			t.Errorf("got %v, %d places free", err, cap(s)-len(s))
		}
	})
}
