package proxytest

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// ResidentMemory returns a process's resident memory in bytes. It needs Linux.
func ResidentMemory(pid int) (int64, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	pages, err := strconv.ParseInt(strings.Fields(string(content))[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// Heap returns the reachable bytes of this process. Pools hold memory until the second collection.
func Heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
