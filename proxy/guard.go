package proxy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// hangTimeout is for how long a watch may bring nothing that has brought bookmarks: kube-apiserver sends one each minute.
	hangTimeout = 150 * time.Second
	// overtime is how much longer a watch may last than it was asked to.
	overtime = 30 * time.Second
)

// errSilent is why a guard broke a watch.
var errSilent = errors.New("upstream has gone silent")

// guard breaks an upstream watch on which nothing comes although its connection is alive: its head does not come, or its initial events do not go on, or
// no bookmark does where they have come before, or not even its end. Where upstream has sent no bookmark yet, as for a resource that
// has not changed since kube-apiserver began, where etcd does not tell it of its progress, silence proves nothing, and only the end bounds it.
type guard struct {
	lane   *lane
	ctx    context.Context // of the watch
	cancel context.CancelCauseFunc
	end    time.Time // when the watch has long been to end

	running sync.WaitGroup
	wakec   chan struct{} // one token: expected has changed; never closed

	mu       sync.Mutex
	since    time.Time // when expect was last called
	expected time.Time // by when something is to come; zero for no such time
}

// guard returns what breaks a watch of the lane that is asked to last for timeout.
func (l *lane) guard(ctx context.Context, timeout time.Duration) *guard {
	now := time.Now()
	g := &guard{lane: l, since: now, end: now.Add(timeout + overtime), wakec: make(chan struct{}, 1)}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	g.running.Go(g.run)
	return g
}

// stop ends the watch.
func (g *guard) stop() {
	g.cancel(nil)
	g.running.Wait()
}

// expect has something to come within d; 0 is the silence between two bookmarks.
func (g *guard) expect(d time.Duration) {
	g.mu.Lock()
	g.since, g.expected = time.Now(), time.Time{}
	if d > 0 {
		g.expected = g.since.Add(d)
	}
	g.mu.Unlock()
	select {
	case g.wakec <- struct{}{}:
	default:
	}
}

// explain returns err, of reading the watch, or why the guard has broken it.
func (g *guard) explain(err error) error {
	if err != nil && context.Cause(g.ctx) == errSilent {
		return fmt.Errorf("%w: %w", errSilent, err)
	}
	return err
}

func (g *guard) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-g.wakec:
		case <-g.ctx.Done():
			return
		}
		left := g.left()
		if left <= 0 {
			g.lane.health.bookmarked.Store(false) // should the next not bring any, that is how it is
			g.cancel(errSilent)
			return
		}
		timer.Reset(left)
	}
}

// left is for how long nothing need be done.
func (g *guard) left() time.Duration {
	l := g.lane
	left := min(time.Until(g.end), l.lanes.hang)
	g.mu.Lock()
	since, expected := g.since, g.expected
	g.mu.Unlock()
	switch {
	case !expected.IsZero():
		left = min(left, time.Until(expected))
	case l.health.bookmarked.Load():
		if heard := l.health.lastHeard.time(); heard.After(since) {
			since = heard
		}
		left = min(left, l.lanes.hang-time.Since(since))
	}
	return left
}
