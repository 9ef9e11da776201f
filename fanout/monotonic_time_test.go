package fanout_test

import (
	"testing"
	"time"

	"github.com/watchfan/watchfan/fanout"
)

// The Time of a MonotonicTime has a reading of the monotonic clock: differences do not depend on
// the wall clock.
func TestMonotonicTime(t *testing.T) {
	t.Parallel()
	now := time.Now()
	got := fanout.MonotonicOf(now).Time()
	if !got.Equal(now) {
		t.Errorf("got %s, want %s", got, now)
	}
	if got == got.Round(0) { // Round strips it
		t.Error("no reading of the monotonic clock")
	}
	if i := fanout.MonotonicNow(); i < fanout.MonotonicOf(now) {
		t.Errorf("now is %d, before it was %d", i, fanout.MonotonicOf(now))
	}
	if !fanout.MonotonicTime(0).Time().IsZero() {
		t.Error("the zero MonotonicTime is some time")
	}
}
