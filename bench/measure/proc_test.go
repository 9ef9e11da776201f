//go:build linux

package measure

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseRSS(t *testing.T) {
	f := func(status string, want int64, wantErr bool) {
		t.Helper()
		got, err := parseMemory([]byte(status), "VmRSS")
		if got != want || (err != nil) != wantErr {
			t.Errorf("parseMemory(%q): got %v, %v want %v, error %v", status, got, err, want, wantErr)
		}
	}
	f("Name:\tx\nVmHWM:\t  9 kB\nVmRSS:\t    2048 kB\nThreads:\t1\n", 2<<20, false)
	f("Name:\tx\nState:\tZ (zombie)\n", 0, true)
	f("Name:\tx\nVmRSS:\t2048 MB\n", 0, true)
	f("Name:\tx\nVmRSS:\tmany kB\n", 0, true)
}

func TestParseBusy(t *testing.T) {
	f := func(stat string, want time.Duration, wantErr bool) {
		t.Helper()
		got, err := parseBusy([]byte(stat))
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
	before, err := ReadCosts(self)
	if err != nil {
		t.Fatal(err)
	}
	for spun := used(); used()-spun < 300*time.Millisecond; {
	}
	after, err := ReadCosts(self)
	if err != nil {
		t.Fatal(err)
	}
	if got, most := after.CPUSince(before)["self"], used()-began; got < 300*time.Millisecond-4*Tick || got > most+4*Tick {
		t.Errorf("spinning took %v of CPU, want from 300ms to %v", got, most)
	}
	if after.RSS["self"] < 1<<20 {
		t.Errorf("got %d bytes resident", after.RSS["self"])
	}
	if _, err := ReadCosts([]Process{{"gone", 1 << 30}}); err == nil {
		t.Error("reading a process that does not exist: no error")
	}
}
