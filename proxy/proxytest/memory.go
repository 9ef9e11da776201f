package proxytest

import (
	"fmt"
	"os"
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
