package measure

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseBusy(t *testing.T) {
	f := func(stat string, want time.Duration, wantErr bool) {
		t.Helper()
		got, err := parseBusy(stat)
		if got != want || (err != nil) != wantErr {
			t.Errorf("parseBusy(%q): got %v, %v want %v, error %v", stat, got, err, want, wantErr)
		}
	}
	f("cpu  1 2 4 1000 1000 8 16 32 1000 1000\ncpu0 1 1 1 1\n", 63*Tick, false)
	f("cpu  1 2 4 1000", 0, true)
	f("cpu  1 2 4 1000 1000 8 x 32 1000 1000", 0, true)
	f("intr 1 2 4 1000 1000 8 16 32 1000 1000", 0, true)
}

// TestOwnCosts checks the parsers against the kernel, with a process whose use is known: this one.
func TestOwnCosts(t *testing.T) {
	self := []Process{{"self", os.Getpid()}}
	used := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	began := used()
	meter, err := StartMeter(self)
	if err != nil {
		t.Fatal(err)
	}
	for spun := used(); used()-spun < 300*time.Millisecond; {
	}
	u, err := meter.Read()
	if err != nil {
		t.Fatal(err)
	}
	if got, most := u.CPU["self"], used()-began; got < 300*time.Millisecond-4*Tick || got > most+4*Tick {
		t.Errorf("spinning took %v of CPU, want from 300ms to %v", got, most)
	}
	if u.RSS["self"] < 1<<20 {
		t.Errorf("got %d bytes resident", u.RSS["self"])
	}
	if peak, err := self[0].Peak(); err != nil || peak < 1<<20 || peak%1024 != 0 {
		t.Errorf("at most %d bytes resident, %v", peak, err)
	}
	if _, err := (Process{"gone", 1 << 30}).Peak(); err == nil {
		t.Error("the peak of a process that does not exist: no error")
	}
	if _, err := StartMeter([]Process{{"gone", 1 << 30}}); err == nil {
		t.Error("reading a process that does not exist: no error")
	}
}
