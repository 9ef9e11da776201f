package machine

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ResidentMemory returns the resident memory of this process in bytes (proc_pid_statm(5)).
func ResidentMemory() (int64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	var size, resident int64
	_, err = fmt.Sscan(string(text), &size, &resident)
	return resident * int64(os.Getpagesize()), err
}

// Memory returns the memory of this machine in bytes (sysinfo(2)); 0 if it is not known.
func Memory() int64 {
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}

// Cgroup is a control group whose memory is limited.
type Cgroup struct {
	Limit       int64  // bytes
	current     string // file with the bytes in use
	stat        string // file with the bytes by kind
	reclaimable string // field in stat of the inactive file pages
}

// OwnCgroup returns the control group with the lowest limit among the groups of this process. ok is
// false if none has a limit.
func OwnCgroup() (Cgroup, bool) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return Cgroup{}, false
	}
	return limitedCgroup("/sys/fs/cgroup", string(text))
}

// limitedCgroup is OwnCgroup for a mount point of control groups and a content of /proc/self/cgroup
// (cgroups(7)). A container sees its own group as the root. Or it sees the whole path of its group,
// while the root of the mounted tree is the group itself.
func limitedCgroup(root, self string) (least Cgroup, ok bool) {
	consider := func(dir, limit, current, reclaimable string) {
		text, err := os.ReadFile(path.Join(dir, limit))
		if err != nil {
			return
		}
		n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64) // "max" is no limit
		if err == nil && n > 0 && n < noLimit && (!ok || n < least.Limit) {
			least, ok = Cgroup{n, path.Join(dir, current), path.Join(dir, "memory.stat"), reclaimable}, true
		}
	}
	for line := range strings.Lines(self) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for dir := path.Clean("/" + parts[2]); ; dir = path.Dir(dir) {
			switch parts[1] {
			case "":
				consider(path.Join(root, dir), "memory.max", "memory.current", "inactive_file")
			case "memory":
				consider(path.Join(root, "memory", dir), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
			}
			if dir == "/" {
				break
			}
		}
	}
	return least, ok
}

// Used returns the bytes that the group uses, without the file pages that can be dropped.
func (g Cgroup) Used() (int64, error) {
	text, err := os.ReadFile(g.current)
	if err != nil {
		return 0, err
	}
	current, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", g.current, err)
	}
	stat, err := os.ReadFile(g.stat)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(stat)) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), " "); name == g.reclaimable {
			n, err := strconv.ParseInt(value, 10, 64)
			return max(current-n, 0), err
		}
	}
	return 0, fmt.Errorf("%s has no %s", g.stat, g.reclaimable)
}

// noLimit is the value from which a cgroup's limit counts as no limit. In cgroup version 1, no
// limit is the largest multiple of the page size.
const noLimit = math.MaxInt64 / 2

// ThreadTime returns the processor time that the calling thread has used, 0 if it is not known. It takes
// a third of a microsecond.
func ThreadTime() time.Duration {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now) != nil {
		return 0
	}
	return time.Duration(now.Nano())
}
