package lane

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/request"
	"github.com/watchfan/watchfan/proxy/upstream"
)

// backfillTimeout bounds one replay from upstream. kube-apiserver sends its bookmark, which shows
// that the replay is complete, after little more than a second.
const backfillTimeout = 5 * time.Second

var errTooOld = errors.New("upstream has no history from there")

// historyBackfill is what a lane knows of the history before its own. Its fields may be used from
// any goroutine.
type historyBackfill struct {
	turn   semaphore     // held while the history is extended
	tooOld atomic.Uint64 // the largest resourceVersion for which upstream had no history
	wanted atomic.Uint64 // the smallest resourceVersion that somebody waits for, 0 for none

	unresolved atomic.Uint64 // where the history began when resolvePrevious last tried
}

// Backfill makes the lane's history reach back to resourceVersion rv. It replays one upstream watch
// from there up to where the history begins. Clients that wait at the same time share the watch,
// which begins at the oldest resourceVersion that they want.
func (l *Lane) Backfill(ctx context.Context, rv uint64) error {
	if l.Uncached() {
		return errTooOld // its watch would not tell when the replay is complete
	}
	for {
		old := l.history.wanted.Load()
		if old != 0 && old <= rv || l.history.wanted.CompareAndSwap(old, rv) {
			break
		}
	}
	request.Waits(ctx)
	if err := l.history.turn.acquire(ctx); err != nil {
		return err
	}
	defer l.history.turn.release()
	until := l.Cache.Stats().Oldest
	if rv >= until {
		return nil // somebody else has fetched it
	}
	if rv <= l.history.tooOld.Load() {
		return errTooOld
	}
	if wanted := l.history.wanted.Swap(0); wanted != 0 && wanted < rv && wanted > l.history.tooOld.Load() {
		if l.replay(ctx, wanted, until) == nil {
			return nil
		}
	}
	return l.replay(ctx, rv, until)
}

// replay fetches the changes behind from, up to and including until.
func (l *Lane) replay(ctx context.Context, from, until uint64) error {
	ctx, cancel := context.WithTimeout(ctx, backfillTimeout)
	defer cancel()
	started := time.Now()
	var (
		events []framing.Event
		size   int64
		limits = l.Cache.Limits()
	)
	// Having been asked, kube-apiserver knows that it is behind nothing up to until, and its
	// bookmark says so.
	if _, err := l.currentVersion(ctx); err != nil {
		return fmt.Errorf("extend history of %s from %d: %w", l, from, err)
	}
	err := l.readWatch(ctx, upstream.Query(
		"watch", "true",
		"resourceVersion", strconv.FormatUint(from, 10),
		"allowWatchBookmarks", "true",
		"timeoutSeconds", strconv.Itoa(request.ProbeSeconds),
	), func(ev framing.Event) bool {
		if ev.ResourceVersion > until || ev.Type == framing.Bookmark && ev.ResourceVersion >= until {
			return false
		}
		if ev.Type != framing.Bookmark {
			events = append(events, ev)
			size += int64(ev.Object.Size())
		}
		return ev.ResourceVersion != until && len(events) <= limits.HistoryEvents && size <= limits.HistoryBytes
	})
	var status *statusError
	if errors.As(err, &status) && status.expired() {
		l.history.tooOld.Store(max(from, l.history.tooOld.Load()))
		return errTooOld
	}
	if err != nil {
		return fmt.Errorf("extend history of %s from %d: %w", l, from, err)
	}
	if !l.Cache.Extend(events, from, until) {
		return fmt.Errorf("extend history of %s from %d: it does not fit", l, from)
	}
	l.Log.Info("Extended history", "fromResourceVersion", from, "resourceVersion", until, "events", len(events), "elapsed", time.Since(started).Round(time.Millisecond))
	return nil
}
