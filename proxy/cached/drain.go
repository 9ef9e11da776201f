package cached

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/diagnose"
)

// drainPace is the most time between the ends of two watches: a few take no longer than that,
// whatever --drain-duration is.
const drainPace = 20 * time.Millisecond

// Drain ends the watches that are served from a cache, spread evenly over at most d, each
// behind a bookmark: clients that come back all at once would find another replica busy with them,
// and not with its events. They go in random order, because those of one process have mostly come
// together. It returns when all have been asked; see AwaitEnds.
func (c *Reads) Drain(ctx context.Context, d time.Duration) {
	open, _ := c.watchers.Selected(func(*diagnose.Watcher) bool { return true })
	if len(open) == 0 {
		return
	}
	rand.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	length := min(d, time.Duration(len(open))*drainPace)
	begin := time.Now()
	c.log.Info("Draining", "watches", len(open), "drain", length)
	for i, w := range open {
		sleep(ctx, time.Until(begin.Add(length*time.Duration(i)/time.Duration(len(open)))))
		w.Sub.End(fanout.Ending{Reason: fanout.ShutDown, Graceful: true})
		if n := (len(open) + 3) / 4; i > 0 && i%n == 0 {
			c.log.Info("Draining", "watches", c.watchers.Count(), "elapsed", time.Since(begin).Round(time.Millisecond))
		}
	}
	c.log.Info("Drained", "watches", c.watchers.Count(), "elapsed", time.Since(begin).Round(time.Millisecond))
}

// AwaitEnds waits until the watches that were asked to end have ended, for at most d. A client that
// does not read until then gets no bookmark.
func (c *Reads) AwaitEnds(d time.Duration) {
	ctx, cancel := context.WithTimeout(c.ctx, d)
	defer cancel()
	for c.watchers.Count() > 0 && ctx.Err() == nil {
		sleep(ctx, 10*time.Millisecond)
	}
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
