//go:build linux

package measure

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// KernelMemory is memory of the kernel, in bytes, for connections and for everything else. It
// contains both ends of a connection on loopback.
type KernelMemory struct {
	Structures int64 // Slab, KernelStack and PageTables of proc_meminfo(5)
	Buffers    int64 // TCP's buffers: "mem" of /proc/net/sockstat
}

// Since returns the growth since an earlier reading.
func (k KernelMemory) Since(earlier KernelMemory) KernelMemory {
	return KernelMemory{k.Structures - earlier.Structures, k.Buffers - earlier.Buffers}
}

// ReadKernelMemory returns the kernel's memory now.
func ReadKernelMemory() (k KernelMemory, err error) {
	meminfo, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return k, err
	}
	sockstat, err := os.ReadFile("/proc/net/sockstat")
	if err != nil {
		return k, err
	}
	if k.Structures, err = parseMeminfo(meminfo, "Slab:", "KernelStack:", "PageTables:"); err == nil {
		k.Buffers, err = parseSockstat(sockstat)
	}
	return k, err
}

// parseMeminfo adds up lines of proc_meminfo(5), such as "Slab:             476720 kB".
func parseMeminfo(meminfo []byte, names ...string) (sum int64, err error) {
	for _, name := range names {
		found := false
		for line := range bytes.Lines(meminfo) {
			fields := bytes.Fields(line)
			if len(fields) != 3 || string(fields[0]) != name || string(fields[2]) != "kB" {
				continue
			}
			n, err := strconv.ParseInt(string(fields[1]), 10, 50)
			if err != nil {
				return 0, fmt.Errorf("/proc/meminfo: %w", err)
			}
			sum += n << 10
			found = true
		}
		if !found {
			return 0, fmt.Errorf("/proc/meminfo: no %s", name)
		}
	}
	return sum, nil
}

// parseSockstat finds the pages in "TCP: inuse 132 orphan 0 tw 92 alloc 135 mem 7", and returns
// them in bytes.
func parseSockstat(sockstat []byte) (int64, error) {
	for line := range bytes.Lines(sockstat) {
		fields := bytes.Fields(line)
		if len(fields) == 0 || string(fields[0]) != "TCP:" {
			continue
		}
		for i := 1; i+1 < len(fields); i += 2 {
			if string(fields[i]) == "mem" {
				pages, err := strconv.ParseInt(string(fields[i+1]), 10, 40)
				return pages * int64(os.Getpagesize()), err
			}
		}
	}
	return 0, fmt.Errorf("/proc/net/sockstat: no memory of TCP")
}
