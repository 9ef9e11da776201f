package request

import (
	"testing"
	"time"
)

// timeoutSeconds overflows as in kube-apiserver, which ends a watch of 292 years at once.
func TestWatchTimeout(t *testing.T) {
	if got := (&Request{}).WatchTimeout(); got != 0 {
		t.Errorf("without a timeout: %s", got)
	}
	for _, c := range []struct {
		seconds int64
		want    time.Duration
		atOnce  bool
	}{
		{0, 0, false},
		{5, 5 * time.Second, false},
		{-5, -5 * time.Second, true},
		{9223372036, 9223372036 * time.Second, false},
		{9223372037, -9_223_372_036_709_551_616, true}, // as seen on kube-apiserver 1.36.3, and the next two
		{18446744073, -709_551_616, true},
		{18446744074, 290_448_384, false},
	} {
		req := &Request{Info: Info{Verb: "watch"}, TimeoutSeconds: &c.seconds}
		if got, atOnce := req.WatchTimeout(), req.Unserved() == Parameters; got != c.want || atOnce != c.atOnce {
			t.Errorf("%d: %d, ends at once %t", c.seconds, got, atOnce)
		}
	}
}
