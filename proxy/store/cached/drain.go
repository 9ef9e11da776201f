package cached

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/store/watchers"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// drainPace is the longest time between the ends of two watches. It keeps the drain of a few
// watches short, for any --drain-duration.
const drainPace = 20 * time.Millisecond

// Drain ends the watches that are served from a cache. The ends are spread evenly over at most d,
// and each follows a bookmark. If all clients came back at once, the other replica would be busy
// with them and not with its events. The order is random, because the watches of one process mostly
// began together. Drain returns when all watches have been asked to end; see AwaitEnds. Reads that
// wait for a lane get 429.
func (c *Reads) Drain(ctx context.Context, d time.Duration) {
	c.Lanes.EndWaits()
	open, _ := c.Watchers.Selected(func(*watchers.Watcher) bool { return true })
	if len(open) == 0 {
		return
	}
	rand.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	length := min(d, time.Duration(len(open))*drainPace)
	begin := time.Now()
	c.log.Info("Draining", "watches", len(open), "drain", length)
	for i, w := range open {
		exchange.Sleep(ctx, time.Until(begin.Add(length*time.Duration(i)/time.Duration(len(open)))))
		w.Sub.End(fanout.Ending{Reason: fanout.ShutDown, Graceful: true})
		if n := (len(open) + 3) / 4; i > 0 && i%n == 0 {
			c.log.Info("Draining", "watches", c.Watchers.Count(), "elapsed", time.Since(begin).Round(time.Millisecond))
		}
	}
	c.log.Info("Drained", "watches", c.Watchers.Count(), "elapsed", time.Since(begin).Round(time.Millisecond))
}

// AwaitEnds waits for the ends of the watches that Drain asked to end, for at most d. A client that
// does not read in this time gets no bookmark.
func (c *Reads) AwaitEnds(d time.Duration) {
	ctx, cancel := context.WithTimeout(c.ctx, d)
	defer cancel()
	for c.Watchers.Count() > 0 && ctx.Err() == nil {
		exchange.Sleep(ctx, 10*time.Millisecond)
	}
}
