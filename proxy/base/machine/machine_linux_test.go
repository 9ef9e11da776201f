package machine

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func TestResidentMemory(t *testing.T) {
	if got, err := ResidentMemory(); err != nil || got < 1<<20 || got > 1<<40 {
		t.Errorf("this process has %d bytes, %v", got, err)
	}
}

// The least limit of all cgroups around the process counts, in version 2 and 1. Inactive files are
// not memory in use.
func TestCgroup(t *testing.T) {
	const none = "9223372036854771712"
	for _, test := range []struct {
		name, self  string
		files       map[string]string
		limit, used int64
	}{
		{"version 2, a container that sees its own root", "0::/\n",
			map[string]string{"memory.max": "1000", "memory.current": "700",
				"memory.stat": "anon 1\ninactive_file 200\n"}, 1000, 500},
		{"version 2, the parent's is less", "0::/pods/a\n",
			map[string]string{"pods/a/memory.max": "max", "pods/memory.max": "2000", "pods/memory.current": "9",
				"pods/memory.stat": "inactive_file 0\n"}, 2000, 9},
		{"version 1", "4:memory:/x\n0::/\n",
			map[string]string{"memory/x/memory.limit_in_bytes": "3000", "memory/memory.limit_in_bytes": none,
				"memory/x/memory.usage_in_bytes": "80",
				"memory/x/memory.stat":           "inactive_file 1\ntotal_inactive_file 30\n"}, 3000, 50},
		{"version 1 in a container", "4:memory:/docker/0123\n",
			map[string]string{"memory/memory.limit_in_bytes": "3000", "memory/memory.usage_in_bytes": "80",
				"memory/memory.stat": "total_inactive_file 90\n"}, 3000, 0},
		{"no limit", "4:memory:/\n0::/\n", map[string]string{"memory/memory.limit_in_bytes": none, "memory.max": "max"},
			0, 0},
		{"none of it", "garbage\n", nil, 0, 0},
	} {
		root := t.TempDir()
		for name, text := range test.files {
			name = filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(text+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		group, ok := limitedCgroup(root, test.self)
		if ok != (test.limit > 0) || group.Limit != test.limit {
			t.Errorf("%s: got a limit of %d, %t; want %d", test.name, group.Limit, ok, test.limit)
			continue
		}
		if !ok {
			continue
		}
		if used, err := group.Used(); err != nil || used != test.used {
			t.Errorf("%s: got %s in use, %v; want %d", test.name, strconv.FormatInt(used, 10), err, test.used)
		}
	}
}

// A process never has more memory than its machine.
func TestMemory(t *testing.T) {
	resident, err := ResidentMemory()
	if n := Memory(); err != nil || n < max(resident, 64<<20) {
		t.Errorf("this machine has %d bytes, and this process %d, %v", n, resident, err)
	}
}
