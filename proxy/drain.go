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
	// drainGrace is how long the watches that were the last to be asked have to end whole.
	drainGrace = time.Second
)

// drain ends the watches that are served from a cache, spread evenly over DrainDuration, each behind a bookmark: clients that come back all
// at once would find another replica busy with them, and not with its events. They go in random order, because those of one process have mostly
// come together. It returns when none is left, but does not wait for clients that do not read.
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
	for until := time.Now().Add(drainGrace); c.watchers.count() > 0 && time.Now().Before(until) && ctx.Err() == nil; {
		sleep(ctx, 10*time.Millisecond)
	}
	c.log.Info("Drained", "watches", c.watchers.count(), "elapsed", time.Since(begin).Round(time.Millisecond))
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
