package consumers

import (
	"hash/maphash"
	"math"
	"math/bits"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/watchfan/watchfan/proxy/gate/request"
)

// Name is who consumes: a user, and a program that acts in its name. Both are safe to show.
type Name struct{ User, Program string }

// NameOf returns the name of the consumer with a user and a user agent. All nodes are one user: a large cluster has
// more of them than are told apart.
func NameOf(user, agent string) Name {
	if strings.HasPrefix(user, "system:node:") {
		user = "system:nodes"
	}
	return Name{request.Shown(user), ProgramOf(agent)}
}

// maxProgram is the maximum length of a program's name, in bytes.
const maxProgram = 64

// ProgramOf shortens a user agent to what names a program: without versions, platforms and commits.
// client-go's has the form NAME/VERSION (OS/ARCH) kubernetes/COMMIT[/PART]. The part stays: it tells the
// controllers of one process apart.
//
//	kubelet/v1.37.2 (linux/amd64) kubernetes/abc                        →  kubelet
//	kube-controller-manager/v1.37 (…) kubernetes/abc/leader-election    →  kube-controller-manager/leader-election
//	Go-http-client/2.0                                                  →  Go-http-client
func ProgramOf(agent string) string {
	first, rest, _ := strings.Cut(strings.TrimSpace(agent), " ")
	name, _, _ := strings.Cut(first, "/")
	if _, build, ok := strings.Cut(rest, "kubernetes/"); ok {
		if _, part, ok := strings.Cut(build, "/"); ok {
			name += "/" + part
		}
	}
	if name == "" {
		return "(none)"
	}
	if len(name) > maxProgram {
		name = name[:maxProgram]
	}
	return request.Shown(name)
}

// Consumer is what is known of a user and a program. Its methods may be called from any goroutine.
type Consumer struct {
	Name
	register *Register
	limited  rate.Sometimes // a refusal is logged

	mu      sync.Mutex
	first   time.Time // request
	counts  recent[Counts]
	work    float64      // since the last round, in nanoseconds
	ended   [2]Delivered // to watches that have ended; the second to those that shared a connection
	seen    [2]Delivered // to all watches at the last round
	open    int          // watches at the last round
	turned  bool         // a round has seen it
	crowded []string     // resources that it watches more than once on one connection; see Watches.Copies
	habits  map[string]*recent[habit]
	clients [2]clients       // of this window, and the one before
	window  recent[struct{}] // of clients
	budget  budget
}

// Counts are what a consumer has used.
type Counts struct {
	Requests uint64  // that have been answered
	Passed   uint64  // of these by kube-apiserver
	Rejected uint64  // of these with 429, because of the consumer's budget
	Bytes    uint64  // of bodies, and of the events of watches; compressed if they were sent so
	Events   uint64  // of watches
	CPU      float64 // processor time here, in seconds
	Alone    float64 // an estimate of kube-apiserver's without this proxy, in seconds
}

func (c Counts) minus(d Counts) Counts {
	return Counts{c.Requests - d.Requests, c.Passed - d.Passed, c.Rejected - d.Rejected, c.Bytes - d.Bytes,
		c.Events - d.Events, c.CPU - d.CPU, c.Alone - d.Alone}
}

func (c Counts) plus(d Counts) Counts {
	return Counts{c.Requests + d.Requests, c.Passed + d.Passed, c.Rejected + d.Rejected, c.Bytes + d.Bytes,
		c.Events + d.Events, c.CPU + d.CPU, c.Alone + d.Alone}
}

// answered counts a request, and work beside that for its kind.
func (c *Consumer) answered(req *request.Request, client uint64, k kind, work float64, bytes uint64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.all.Requests++
	if k.passed() {
		c.counts.all.Passed++
	}
	c.counts.all.Alone += aloneRequest
	c.work += requestCost[k] + work
	if k.passed() {
		c.sentLocked(bytes, passedByteCost)
	} else {
		c.sentLocked(bytes, byteCost)
	}
	c.clients[0].add(client)
	c.noteLocked(req, now)
}

func (c *Consumer) sentLocked(bytes uint64, each float64) {
	c.counts.all.Bytes += bytes
	c.counts.all.Alone += aloneByte * float64(bytes)
	c.work += each * float64(bytes)
}

// sent counts bytes of a body that passes through.
func (c *Consumer) sent(bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sentLocked(uint64(bytes), passedByteCost)
}

// Worked counts processor time that was measured.
func (c *Consumer) Worked(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.work += float64(d)
}

// recentCost orders consumers by what they have cost in the last minute.
func (c *Consumer) recentCost() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.counts.all.minus(c.counts.before[1])
	return d.CPU + c.work/1e9 + d.Alone/10
}

// round takes what the consumer has done since the last round. ended is what watches were sent that had ended before
// the open ones were asked.
func (c *Consumer) round(open Watches, ended [2]Delivered, now time.Time) (work float64) {
	suffers := c.register.health.suffers(now)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open, c.crowded = open.Open, open.Copies
	for i := range c.seen {
		if all := ended[i].Plus(open.Sent[i]); !c.turned && c.register.full {
			c.seen[i] = all // its watches may have begun while it was not told apart
		} else {
			c.deliveredLocked(i, all)
		}
	}
	c.turned = true
	for _, h := range c.habits {
		h.turn(now, habitWindow)
	}
	if c.window.turn(now, habitWindow) {
		c.clients = [2]clients{{}, c.clients[0]}
	}
	c.budget.grow(now, suffers)
	work, c.work = c.work, 0
	return work
}

// deliveredLocked counts what watches were sent since the last round. A watch that has just ended may be
// missing in one round.
func (c *Consumer) deliveredLocked(shared int, all Delivered) {
	seen := c.seen[shared]
	if all.Events < seen.Events || all.Bytes < seen.Bytes || all.Writes < seen.Writes {
		return
	}
	d := all.minus(seen)
	c.seen[shared] = all
	c.counts.all.Events += d.Events
	c.counts.all.Bytes += d.Bytes
	c.counts.all.Alone += aloneEvent * float64(d.Events)
	c.work += deliveryWork(d, shared)
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
