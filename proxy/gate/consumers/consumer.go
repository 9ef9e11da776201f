package consumers

import (
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
	"time"
)

// Name is who consumes: an account, and a program that uses it. Both are safe to show.
type Name struct{ Account, Program string }

// Consumer is what is known of an account and a program. Its methods may be called from any goroutine.
type Consumer struct {
	Name
	register *Register

	mu      sync.Mutex
	first   time.Time // request
	last    time.Time // request
	counts  recent[Counts]
	work    float64 // by the model since the last round, in nanoseconds
	handler [ways]estimate
	ended   [2]Delivered // to watches that have ended; the second over HTTP/2
	seen    [2]Delivered // to all watches at the last round
	open    int          // watches at the last round
	crowded []string     // resources that it watches more than once on one connection; see Watch.Copies
	habits  map[string]*recent[habit]
	clients [2]clients       // of this window, and the one before
	window  recent[struct{}] // of clients
	budget  budget
}

// Counts are what a consumer has used.
type Counts struct {
	Requests uint64  // that have been answered
	Passed   uint64  // of these by kube-apiserver
	Limited  uint64  // of these with 429, because of the consumer's budget
	Bytes    uint64  // of bodies, and of the events of watches; compressed if they were sent so
	Events   uint64  // of watches
	CPU      float64 // processor time here, in seconds
	Alone    float64 // an estimate of kube-apiserver's without this proxy, in seconds
}

func (c Counts) minus(d Counts) Counts {
	return Counts{c.Requests - d.Requests, c.Passed - d.Passed, c.Limited - d.Limited, c.Bytes - d.Bytes,
		c.Events - d.Events, c.CPU - d.CPU, c.Alone - d.Alone}
}

func (c Counts) plus(d Counts) Counts {
	return Counts{c.Requests + d.Requests, c.Passed + d.Passed, c.Limited + d.Limited, c.Bytes + d.Bytes, c.Events + d.Events,
		c.CPU + d.CPU, c.Alone + d.Alone}
}

// recent is a sum that grows, and what it was one and two windows ago.
type recent[T any] struct {
	all    T
	before [2]T
	since  [2]time.Time
}

// turn begins a new window if the present one has lasted for long enough. It reports whether it has.
func (r *recent[T]) turn(now time.Time, window time.Duration) bool {
	if r.since[0].IsZero() {
		r.since = [2]time.Time{now, now}
	}
	if now.Sub(r.since[0]) < window {
		return false
	}
	r.before = [2]T{r.all, r.before[0]}
	r.since = [2]time.Time{now, r.since[0]}
	return true
}

// over returns the sum at the beginning of the window before the present one, and the time since then.
func (r *recent[T]) over(now time.Time) (then T, passed time.Duration) {
	return r.before[1], now.Sub(r.since[1])
}

// clients counts clients by a hash of each, in 256 bytes: linear counting (Whang et al., 1990). The
// error is 3 % of 5,000. It counts about 15,000 at most.
type clients [32]uint64

func (c *clients) add(hash uint64) { c[hash>>6%32] |= 1 << (hash % 64) }

// estimateClients returns how many clients are in either.
func estimateClients(c, d *clients) float64 {
	const all = 32 * 64
	empty := all
	for i := range c {
		empty -= bits.OnesCount64(c[i] | d[i])
	}
	return all * math.Log(all/float64(max(empty, 1)))
}

var seed = maphash.MakeSeed()
