package proxy

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// Each level of memory use begins at its limit and ends below it, so the level does not change all
// the time.
func TestMemoryLevels(t *testing.T) {
	const limit = 1000
	level := memoryEnough
	for _, step := range []struct {
		used int64
		want memoryLevel
	}{
		{0, memoryEnough}, {799, memoryEnough}, {800, memoryShort}, {799, memoryShort}, {751, memoryShort},
		{750, memoryEnough}, {900, memoryFull}, {851, memoryFull}, {850, memoryShort}, {899, memoryShort},
		{5000, memorySpent}, {700, memoryEnough}, {949, memoryFull}, {751, memoryShort}, {750, memoryEnough},
		{950, memorySpent}, {901, memorySpent}, {900, memoryFull}, {949, memoryFull}, {950, memorySpent},
		{851, memoryFull}, {950, memorySpent}, {760, memoryShort},
	} {
		before := level
		if level = level.next(step.used, limit); level != step.want {
			t.Fatalf("%v and %d of %d in use: got %v, want %v", before, step.used, limit, level, step.want)
		}
	}
	if got := memoryEnough.next(math.MaxInt64, math.MaxInt64); got != memorySpent {
		t.Errorf("got %v", got)
	}
}

func TestResidentMemory(t *testing.T) {
	if got, err := residentMemory(); err != nil || got < 1<<20 || got > 1<<40 {
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
		if ok != (test.limit > 0) || group.limit != test.limit {
			t.Errorf("%s: got a limit of %d, %t; want %d", test.name, group.limit, ok, test.limit)
			continue
		}
		if !ok {
			continue
		}
		if used, err := group.used(); err != nil || used != test.used {
			t.Errorf("%s: got %s in use, %v; want %d", test.name, strconv.FormatInt(used, 10), err, test.used)
		}
	}
}

// The machine's memory is read in KiB. Whatever is not understood is not known.
func TestTotalMemory(t *testing.T) {
	for text, want := range map[string]int64{
		"MemTotal:       24580116 kB\nMemFree: 1 kB\n": 24580116 << 10,
		"MemFree: 1 kB\nMemTotal: 5 kB\n":              5 << 10,
		"MemTotal: 5\n":                                0,
		"MemTotal: -5 kB\n":                            0,
		"MemTotal: 9223372036854775807 kB\n":           0,
		"":                                             0,
	} {
		if got := totalMemory(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	if n := machineMemory(); n < 64<<20 {
		t.Errorf("this machine has %d bytes", n)
	}
}
