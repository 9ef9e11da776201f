//go:build linux

package measure

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// TestMeterLaps: laps leave no time out and count none twice.
func TestMeterLaps(t *testing.T) {
	const name = "self"
	self := []Process{{name, os.Getpid()}}
	whole, err := StartMeter(self)
	if err != nil {
		t.Fatal(err)
	}
	m := *whole
	var sum Usage
	for range 3 {
		spin(t, 20*time.Millisecond)
		u, err := m.Lap()
		if err != nil {
			t.Fatal(err)
		}
		if u.CPU[name] < time.Millisecond || u.RSS[name] == 0 {
			t.Errorf("got %v of CPU and %d bytes in a lap of 20 ms of work", u.CPU[name], u.RSS[name])
		}
		sum.Window += u.Window
		sum.CPU = map[string]time.Duration{name: sum.CPU[name] + u.CPU[name]}
	}
	all, err := whole.Read()
	if err != nil {
		t.Fatal(err)
	}
	if sum.Window > all.Window || sum.CPU[name] > all.CPU[name] || sum.CPU[name] < all.CPU[name]*9/10 {
		t.Errorf("laps sum up to %v of CPU in %v, all is %v in %v", sum.CPU[name], sum.Window, all.CPU[name], all.Window)
	}
}

// spin takes some CPU time.
func spin(t *testing.T, d time.Duration) {
	spent := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for until := spent() + d; spent() < until; {
	}
}
