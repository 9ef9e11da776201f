package admission

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"golang.org/x/time/rate"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/base/exposition"
	"github.com/watchfan/watchfan/proxy/base/machine"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Memory keeps the requests of clients from exhausting the process's memory. Each second it
// compares the kernel's count of the memory in use with the limit:
//
//	from 70%  the garbage collector works harder; a lower GOMEMLIMIT in the environment has priority
//	from 80%  memory is given back, see relief;
//	          no lane begins, and requests that would start one are passed through
//	from 90%  new watches are refused too, and lists that a cache would answer, once nothing more
//	          can be given back; a lane that is being filled, or lists anew, is given up
//	from 95%  new connections are reset, because a TLS handshake and a head that does not end take
//	          up to 134 KiB for a while
//
// Each level from 80% ends when the use is 5% of the limit below its mark. Watches that are read
// continue, except those on a lane that is given up. Their clients would come back at once, with
// lists. Its methods may be called from any goroutine.
type Memory struct {
	limit int64  // bytes; 0 is no limit
	of    string // what the limit is, for the log
	read  func() (int64, error)
	sheds *metrics.Counter // lanes that stopped
	log   *slog.Logger

	relief relief // owned by Run

	level    atomic.Int32
	refusing atomic.Bool // watches and lists, because nothing more can be given back
	used     atomic.Int64
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
	softPercent  = 70 // keeps garbage alone from making memory short
	shortPercent = 80
	fullPercent  = 90
	spentPercent = 95
	easePercent  = 5 // of hysteresis
	memoryEvery  = time.Second
)

// next returns the level that follows l when used of limit bytes are in use.
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

// NewMemory returns a Memory with the limit of o. A limit in bytes applies to the resident memory of
// the process. A container's limit applies to the container's use without the file pages that can be
// dropped, as in the kernel. Without one, the process may have half of the machine's memory: the
// bounds on what clients make it hold are parts of a limit. read returns the memory in use; nil is
// the system's figure.
func NewMemory(o *Options, read func() (int64, error), set *metrics.Set, log *slog.Logger) *Memory {
	m := &Memory{limit: o.MemoryLimit, of: "--memory-limit is given", read: machine.ResidentMemory,
		sheds: set.NewCounter(memorySheds), log: log}
	if o.MemoryLimit == CgroupMemory {
		if group, ok := machine.OwnCgroup(); ok {
			m.limit, m.read, m.of = group.Limit, group.Used, "this container's memory"
		} else {
			m.limit, m.of = machine.Memory()/2, "half of this machine's memory"
		}
	}
	if read != nil {
		m.read = read
	}
	set.NewGauge(memoryLimitBytes, func() float64 { return float64(m.limit) })
	set.NewGauge(memoryUsedBytes, func() float64 { return float64(m.used.Load()) })
	return m
}

// Limit returns the limit in bytes; 0 is none.
func (m *Memory) Limit() int64 { return m.limit }

// Run checks the memory until ctx ends. It gives memory back through from.
func (m *Memory) Run(ctx context.Context, from Reliever) {
	if m.limit == 0 {
		return
	}
	// With a GOMEMLIMIT near the limit, garbage would make memory short. A container's GOMEMLIMIT is
	// often its memory request, which may equal its limit.
	before := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(before, m.limit/100*softPercent))
	defer debug.SetMemoryLimit(before)
	m.log.Info("Limited memory", "limitBytes", m.limit, "reason", m.of)
	m.relief = relief{from: from, least: m.limit / 100}
	for ok, failed := true, false; ok; ok = exchange.Sleep(ctx, memoryEvery) {
		if m.relief.freed {
			m.relief.freed = false
			debug.FreeOSMemory()
		}
		used, err := m.read()
		if err != nil && !failed {
			m.log.Error("Read no memory use, nothing is given back or refused for want of it", "err", err)
		}
		if failed = err != nil; failed {
			used = 0
		}
		m.look(used)
	}
}

// look updates the level for the bytes in use, and gives memory back if memory is short.
func (m *Memory) look(used int64) {
	m.used.Store(used)
	level := memoryLevel(m.level.Load())
	now := level.next(used, m.limit)
	m.level.Store(int32(now))
	stopped, spent := m.relief.at(now)
	m.sheds.Add(stopped)
	if now < memoryFull {
		m.refusing.Store(false)
	} else if spent {
		m.refusing.Store(true)
	}
	if now != level {
		m.log.Warn("Memory use crossed a mark", "memory", now.String(), "usedBytes", used, "limitBytes", m.limit, "lanesStopped", stopped)
	}
}

// InUse returns the bytes that count towards the limit, or without one the resident memory of the
// process; 0 if it is not known.
func (m *Memory) InUse() int64 {
	if m.limit > 0 {
		return m.used.Load()
	}
	used, err := m.read()
	if err != nil {
		return 0
	}
	return used
}

// Short reports whether no lane may begin.
func (m *Memory) Short() bool { return m.level.Load() >= int32(memoryShort) }

// refuses reports whether no watch or list may begin.
func (m *Memory) refuses() bool { return m.refusing.Load() }

// Full reports whether no lane may be filled. It reads the use anew.
func (m *Memory) Full() bool {
	if m.limit == 0 || m.level.Load() >= int32(memoryFull) {
		return m.limit != 0
	}
	used, err := m.read() // Run logs a failure
	return err == nil && memoryEnough.next(used, m.limit) >= memoryFull
}

// Spent reports whether no connection may begin.
func (m *Memory) Spent() bool { return m.level.Load() >= int32(memorySpent) }

// NewLedger returns the ledger for a process that may use so many bytes of memory; 0 is no limit. Of
// the cuts it logs one in ten seconds, on a goroutine of its own: what causes a cut may serve others,
// and must not wait for the log.
func NewLedger(memory int64, log *slog.Logger) *account.Ledger {
	l, logged := account.New(account.LimitsOf(memory)), rate.Sometimes{Interval: 10 * time.Second}
	l.Told = func(c account.Cut) {
		logged.Do(func() {
			go log.Warn("Cut what was held for a client", "source", c.Source.Name, "stranger", c.Source.Stranger,
				"bytes", c.Bytes, "memoryShort", c.Short)
		})
	}
	return l
}

var (
	memorySheds = exposition.Describe("counter", "watchfan_memory_sheds_total",
		"Lanes without clients stopped because memory was short.")
	memoryLimitBytes = exposition.Describe("gauge", "watchfan_memory_limit_bytes",
		"Memory limit. 0 is no limit.")
	memoryUsedBytes = exposition.Describe("gauge", "watchfan_memory_used_bytes",
		"Memory in use that counts towards the limit. At 80% caches are given up, at 90% new watches and lists are rejected. 0 without a limit.")
)
