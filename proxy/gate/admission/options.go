package admission

import "github.com/watchfan/watchfan/proxy/base/option"

// CgroupMemory as a memory limit selects the limit of the container, or of another control group, or
// without one half of the machine's memory.
const CgroupMemory = -1

// leastMemory is the memory that watchfan needs with a few lanes and clients.
const leastMemory = 64 << 20

// Options are the limits on watches and memory; see AddTo. What exceeds them is refused with 429.
type Options struct {
	MaxWatches int // 0 is no limit, as in kube-apiserver
	// MaxWatchesPerUser stops broken and malicious clients. A kubelet has some hundreds of watches, Argo CD
	// thousands, and kube-proxy, one user on all nodes, four on each of 5,000 nodes.
	MaxWatchesPerUser int
	MemoryLimit       int64 // bytes; CgroupMemory, or 0 for off; see Memory
}

// AddTo adds the options to a table.
func (o *Options) AddTo(t *option.Table) {
	t.Group("Limits")
	t.Int(&o.MaxWatches, "max-watches", 0,
		"`WATCHES` that may be open at a time, passed-through ones included; 0 is any number", option.AtLeast(0))
	t.Int(&o.MaxWatchesPerUser, "max-watches-per-user", 20_000, "`WATCHES` that one user may have open at a time, "+
		"such as the account of an agent on all nodes; 0 is any number", option.AtLeast(0))
	t.Size(&o.MemoryLimit, "memory-limit", CgroupMemory, "`BYTES` of memory; near them caches are given up, and "+
		"new watches and lists are rejected; 0 is off, -1 is the container's limit, or without one half of the machine's "+
		"memory", memoryLimit)
}

// memoryLimit is the check of a memory limit.
func memoryLimit(n int64) string {
	if n != 0 && n != CgroupMemory && n < leastMemory {
		return "is too small: give at least 64Mi, 0 for off, or -1 for the container's or half of the machine's memory"
	}
	return ""
}
