package proxy

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/watchfan/watchfan/fanout"
)

const (
	// drainPace is the most time between the ends of two watches: a few take no longer than that, whatever --drain-duration is.
	drainPace = 20 * time.Millisecond
	// drainGrace is for how long a whole ending is waited for while no watch ends: those that are left do not read.
	drainGrace = 2 * time.Second
)

// drain ends the watches that are served from a cache, spread evenly over DrainDuration, each behind a bookmark: clients that come back all
// at once would find another replica busy with them, and not with its events. They go in random order, because those of one process have mostly
// come together. It returns when all have been asked; see awaitEnds.
func (c *cachedReads) drain(ctx context.Context) {
	open, _ := c.watchers.selected(func(*watcher) bool { return true })
	if len(open) == 0 {
		return
	}
	rand.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	length := min(c.opts.DrainDuration, time.Duration(len(open))*drainPace)
	begin := time.Now()
	c.log.Info("Draining", "watches", len(open), "drain", length)
	for i, w := range open {
		sleep(ctx, time.Until(begin.Add(length*time.Duration(i)/time.Duration(len(open)))))
		w.sub.End(fanout.Ending{Reason: fanout.ShutDown, Whole: true})
		if n := (len(open) + 3) / 4; i > 0 && i%n == 0 {
			c.log.Info("Draining", "watches", c.watchers.count(), "elapsed", time.Since(begin).Round(time.Millisecond))
		}
	}
	c.log.Info("Drained", "watches", c.watchers.count(), "elapsed", time.Since(begin).Round(time.Millisecond))
}

// awaitEnds waits until the watches that were asked to end have, until none has for drainGrace, or until ctx ends.
func (c *cachedReads) awaitEnds(ctx context.Context) {
	grace := min(drainGrace, c.opts.ShutdownTimeout/2)
	last, changed := c.watchers.count(), time.Now()
	for last > 0 && time.Since(changed) < grace && ctx.Err() == nil {
		sleep(ctx, 10*time.Millisecond)
		if n := c.watchers.count(); n != last {
			last, changed = n, time.Now()
		}
	}
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
