package selfcheck

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/base/option"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Options says how often lanes are compared with kube-apiserver.
type Options struct {
	// SelfCheckInterval is the longest time between two comparisons of a resource, as long as there
	// is time for all of them. 0 is off.
	SelfCheckInterval time.Duration
}

// AddTo adds the options to a table.
func (o *Options) AddTo(t *option.Table) {
	t.Group("Observability")
	t.Duration(&o.SelfCheckInterval, "self-check-interval", 5*time.Minute, "`DURATION` within which each cache is "+
		"compared with kube-apiserver; a difference is logged, counted, and told to clients; 0 is off", interval)
}

// interval is the check of an interval.
func interval(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return option.Within(time.Second, 24*time.Hour)(d)
}

// Checker compares all lanes with kube-apiserver, again and again.
type Checker struct {
	lanes    *lane.Lanes
	interval time.Duration

	mu  sync.Mutex
	due map[schema.GroupVersionResource]time.Time // when each resource is compared next; guarded by mu
}

// New returns a Checker of lanes. The caller calls Run.
func New(lanes *lane.Lanes, opts *Options) *Checker {
	return &Checker{lanes: lanes, interval: opts.SelfCheckInterval, due: make(map[schema.GroupVersionResource]time.Time)}
}

// Due returns when each resource is compared next, or a little later if others are due too. It may
// be called from any goroutine.
func (c *Checker) Due() map[schema.GroupVersionResource]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.due)
}

const (
	// tick is how often Run looks for a resource that is due.
	tick = 100 * time.Millisecond
	// recheck is the longest time after a difference until the next comparison. A lane that could
	// not be listed again at once, because its watch had just been broken, is then told again.
	recheck = 35 * time.Second
)

// Run compares lanes until ctx ends.
func (c *Checker) Run(ctx context.Context) {
	if c.interval == 0 {
		return
	}
	for exchange.Sleep(ctx, tick) {
		if lanes := c.next(time.Now()); lanes != nil && !c.lanes.MemoryShort() {
			if compare(ctx, lanes) {
				c.plan(lanes[0].GVR, min(c.wait(), recheck))
			}
		}
	}
}

// plan has a resource compared again after d.
func (c *Checker) plan(gvr schema.GroupVersionResource, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due[gvr] = time.Now().Add(d)
}

// next returns the lanes of the resource that has been due for longest, nil for none. It plans the
// next comparison of the resource.
func (c *Checker) next(now time.Time) []*lane.Lane {
	collections := c.lanes.Collections()
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.due, func(gvr schema.GroupVersionResource, _ time.Time) bool { return collections[gvr] == nil })
	var first schema.GroupVersionResource
	for gvr := range collections {
		if c.due[gvr].IsZero() {
			c.due[gvr] = now.Add(c.wait())
		}
		if first.Empty() || c.due[gvr].Before(c.due[first]) {
			first = gvr
		}
	}
	if first.Empty() || c.due[first].After(now) {
		return nil
	}
	c.due[first] = now.Add(c.wait())
	return collections[first]
}

// wait returns the time until the next comparison of a resource: half the interval to all of it, so
// that resources and replicas take turns.
func (c *Checker) wait() time.Duration { return c.interval/2 + rand.N(c.interval/2) }
