//go:build linux

package measure

import (
	"os"
	"testing"
)

func TestParseMeminfo(t *testing.T) {
	f := func(meminfo string, want int64, wantErr bool) {
		t.Helper()
		got, err := parseMeminfo([]byte(meminfo), "Slab:", "PageTables:")
		if got != want || (err != nil) != wantErr {
			t.Errorf("%q: got %d, %v want %d, error %v", meminfo, got, err, want, wantErr)
		}
	}
	f("MemTotal:  9 kB\nSlab:   3 kB\nSecPageTables: 9 kB\nPageTables:  2 kB\n", 5<<10, false)
	f("Slab:   3 kB\n", 0, true)
	f("Slab:   3 kB\nPageTables: many kB\n", 0, true)
	f("Slab:   3\nPageTables: 2 kB\n", 0, true)
}

func TestParseSockstat(t *testing.T) {
	f := func(sockstat string, pages int64, wantErr bool) {
		t.Helper()
		got, err := parseSockstat([]byte(sockstat))
		if got != pages*int64(os.Getpagesize()) || (err != nil) != wantErr {
			t.Errorf("%q: got %d bytes, %v want %d pages, error %v", sockstat, got, err, pages, wantErr)
		}
	}
	f("sockets: used 149\nTCP: inuse 132 orphan 0 tw 92 alloc 135 mem 7\nUDP: inuse 0 mem 9\n", 7, false)
	f("UDP: inuse 0 mem 9\n", 0, true)
	f("TCP: inuse 132 mem\n", 0, true)
	f("TCP: mem x\n", 0, true)
}

// TestKernelMemory reads what this kernel says.
func TestKernelMemory(t *testing.T) {
	if k, err := ReadKernelMemory(); err != nil || k.Structures < 1<<20 || k.Buffers < 0 {
		t.Errorf("got %+v, %v", k, err)
	}
}
