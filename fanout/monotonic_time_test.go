package fanout_test

import (
	"testing"
	"time"

	"github.com/watchfan/watchfan/fanout"
)

// An Instant's Time has a reading of the monotonic clock: its distance to another is not that of the wall clock's readings.
func TestMonotonicTime(t *testing.T) {
	t.Parallel()
	now := time.Now()
	got := fanout.MonotonicOf(now).Time()
	if d := now.Sub(got); d != 0 {
		t.Errorf("%s off", d)
	}
	if got == got.Round(0) { // which strips it
		t.Error("no reading of the monotonic clock")
	}
	if i := fanout.MonotonicNow(); i < fanout.MonotonicOf(now) {
		t.Errorf("now is %d, before it was %d", i, fanout.MonotonicOf(now))
	}
	if !fanout.MonotonicTime(0).Time().IsZero() {
		t.Error("the zero Instant is some time")
	}
}
