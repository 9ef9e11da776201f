package proxy

import (
	"context"
	"log/slog"
	"math"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// memory sees to it that what clients ask for does not end the process. Each second it compares
// what the kernel counts with the limit:
//
//	from 70%  the garbage collector works harder (or from GOMEMLIMIT in the environment, if that is less)
//	from 80%  lanes without clients stop, compressed lists are forgotten, and no lane begins, so that what would start one is passed through
//	from 90%  new watches and lists are refused as well, and a lane that is being filled, or lists anew, is given up
//	from 95%  new connections are reset: a TLS handshake and a head that does not end take up to 134 KiB for a while
//
// Each ends when the use is 5% lower again. Watches that are there go on: to end them would bring
// them back at once, with lists.
type memory struct {
	limit int64 // bytes; 0 is none
	read  func() (int64, error)
	log   *slog.Logger

	freed time.Time // when memory was last given back; owned by run

	level atomic.Int32
	used  atomic.Int64
}

// memoryLevel is how short memory is.
type memoryLevel int32

const (
	memoryEnough memoryLevel = iota
	memoryShort
	memoryFull
	memorySpent
)

func (l memoryLevel) String() string { return [...]string{"enough", "short", "full", "spent"}[l] }

const (
	softPercent  = 70 // garbage alone is not to make memory short
	shortPercent = 80
	fullPercent  = 90
	spentPercent = 95
	easePercent  = 5 // of hysteresis
	memoryEvery  = time.Second
	freeEvery    = 5 * time.Second // a collection takes 0.1 s for some hundred MiB
)

// next is the level that follows when used of limit bytes are in use.
func (l memoryLevel) next(used, limit int64) memoryLevel {
	percent := float64(used) / float64(limit) * 100
	switch {
	case percent >= spentPercent || l == memorySpent && percent > spentPercent-easePercent:
		return memorySpent
	case percent >= fullPercent || l >= memoryFull && percent > fullPercent-easePercent:
		return memoryFull
	case percent >= shortPercent || l >= memoryShort && percent > shortPercent-easePercent:
		return memoryShort
	}
	return memoryEnough
}

// newMemory finds the limit that opts ask for. A limit of the process alone is compared with its
// resident memory, that of a container with what the container uses beyond files that can be
// dropped, as the kernel itself does.
func newMemory(opts *Options, log *slog.Logger) *memory {
	m := &memory{limit: opts.MemoryLimit, read: residentMemory, log: log}
	if opts.MemoryLimit == CgroupMemory {
		m.limit = 0
		if group, ok := ownCgroup(); ok {
			m.limit, m.read = group.limit, group.used
		}
	}
	if opts.readMemory != nil {
		m.read = opts.readMemory
	}
	return m
}

// run keeps watch until ctx ends. shed stops what can be spared, and returns how many lanes that was.
func (m *memory) run(ctx context.Context, shed func() int) {
	if m.limit == 0 {
		return
	}
	// A GOMEMLIMIT near the limit, such as the request of a container whose limit is the same,
	// would let garbage make memory short.
	before := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(before, m.limit/100*softPercent))
	defer debug.SetMemoryLimit(before)
	m.log.Info("Limited memory", "limitBytes", m.limit)
	tick := time.NewTicker(memoryEvery)
	defer tick.Stop()
	for failed := false; ; {
		used, err := m.read()
		if err != nil && !failed {
			m.log.Error("Read no memory use, nothing is shed or refused for want of it", "err", err)
		}
		if failed = err != nil; failed {
			used = 0
		}
		m.look(used, shed)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look does what so many bytes in use demand.
func (m *memory) look(used int64, shed func() int) {
	m.used.Store(used)
	level := memoryLevel(m.level.Load())
	now := level.next(used, m.limit)
	m.level.Store(int32(now))
	stopped := 0
	if now >= memoryShort {
		stopped = shed()
		memorySheds.Add(stopped)
		// What has been let go of counts until it is collected, and where nothing is asked for any
		// more nothing makes that happen. A lane that was stopped lets go of its objects a little
		// later.
		if time.Since(m.freed) >= freeEvery {
			debug.FreeOSMemory()
			m.freed = time.Now()
		}
	}
	if now != level {
		m.log.Warn("Memory use crossed a mark", "memory", now.String(), "usedBytes", used, "limitBytes", m.limit, "lanesStopped", stopped)
	}
}

// short reports whether no lane is to begin.
func (m *memory) short() bool { return m.level.Load() >= int32(memoryShort) }

// refuses reports whether no watch or list is to begin.
func (m *memory) refuses() bool { return m.level.Load() >= int32(memoryFull) }

// full reports whether no lane is to be filled, by what is in use now.
func (m *memory) full() bool {
	if m.limit == 0 || m.refuses() {
		return m.limit != 0
	}
	used, err := m.read() // which run has logged if it fails
	return err == nil && memoryEnough.next(used, m.limit) >= memoryFull
}

// spent reports whether no connection is to begin.
func (m *memory) spent() bool { return m.level.Load() >= int32(memorySpent) }

// noLimit is the least value that a cgroup's limit has where there is none: version 1 has a number
// of pages.
const noLimit = math.MaxInt64 / 2
