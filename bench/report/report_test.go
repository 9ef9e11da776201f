//go:build linux

package report

import "testing"

func TestHuman(t *testing.T) {
	f := func(v float64, want string) {
		t.Helper()
		if got := Human(v); got != want {
			t.Errorf("human(%v): got %q want %q", v, got, want)
		}
	}
	f(0, "0.00")
	f(0.0123, "0.012")
	f(1.234, "1.23")
	f(12.34, "12.3")
	f(123.4, "123")
	f(1234, "1,234")
	f(1234567, "1,234,567")
	f(-1234, "-1,234")
}
