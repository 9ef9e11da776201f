package lane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/base/semaphore"
	"github.com/watchfan/watchfan/proxy/store/reflector"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// backfillTimeout bounds one replay from upstream. kube-apiserver sends the bookmark that shows
// that the replay is complete after little more than a second.
const backfillTimeout = 5 * time.Second

var errTooOld = errors.New("upstream has no history from there")

// historyBackfill is what a lane knows of the history before its own. Its fields may be used from
// any goroutine.
type historyBackfill struct {
	turn   semaphore.Semaphore // a mutex, held while the history is extended or resolved
	tooOld atomic.Uint64       // the largest resourceVersion for which upstream had no history
	wanted atomic.Uint64       // the smallest resourceVersion that a client waits for, 0 for none

	unresolved atomic.Uint64 // where the history began when ResolvePrevious last tried
}

// Backfill makes the lane's history reach back to resourceVersion rv. It replays one upstream watch
// from rv to where the history begins. Clients that wait at the same time share the watch, which
// begins at the oldest resourceVersion that one of them wants.
func (l *Lane) Backfill(ctx context.Context, rv uint64) error {
	if l.Collection.Uncached() {
		return errTooOld // its watch would not tell when the replay is complete
	}
	for {
		old := l.history.wanted.Load()
		if old != 0 && old <= rv || l.history.wanted.CompareAndSwap(old, rv) {
			break
		}
	}
	exchange.Waits(ctx)
	if err := l.history.turn.Acquire(ctx); err != nil {
		return err
	}
	defer l.history.turn.Release()
	until := l.Cache.Stats().Oldest
	if rv >= until {
		return nil // the replay for another client has brought it
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

// replay fetches the changes after from, up to and including until.
func (l *Lane) replay(ctx context.Context, from, until uint64) error {
	ctx, cancel := context.WithTimeout(ctx, backfillTimeout)
	defer cancel()
	started := time.Now()
	events, err := l.changesBetween(ctx, from, until)
	if reflector.Expired(err) {
		l.history.tooOld.Store(max(from, l.history.tooOld.Load()))
		return errTooOld
	}
	if err == nil && !l.Cache.Extend(events, from, until) {
		err = errors.New("it does not fit")
	}
	if err != nil {
		return fmt.Errorf("extend history of %s from %d: %w", l.Collection, from, err)
	}
	l.Log.Info("Extended history", "fromResourceVersion", from, "resourceVersion", until, "events", len(events),
		"elapsed", time.Since(started).Round(time.Millisecond))
	return nil
}

// changesBetween returns the changes after from, up to and including until. It stops early if they
// are more than the history may hold.
func (l *Lane) changesBetween(ctx context.Context, from, until uint64) (events []framing.Event, err error) {
	// Once kube-apiserver has said the current resourceVersion, its cache is behind nothing up to
	// until, and its bookmark says so.
	if _, err := l.Collection.CurrentVersion(ctx, backfillTimeout); err != nil {
		return nil, err
	}
	limits, size := l.Cache.Limits(), int64(0)
	err = l.Collection.ReadWatch(ctx, from, func(ev framing.Event) (more bool, err error) {
		if ev.Columns.Known() && !l.Cache.SetColumns(ev.Columns) {
			return false, errors.New("upstream has other columns")
		}
		if ev.ResourceVersion > until || ev.Type == framing.Bookmark && ev.ResourceVersion >= until {
			return false, nil
		}
		if ev.Type != framing.Bookmark {
			events = append(events, ev)
			size += int64(ev.Object.Size())
		}
		return ev.ResourceVersion != until && len(events) <= limits.HistoryEvents && size <= limits.HistoryBytes, nil
	})
	return events, err
}

const (
	// fewNamed is how many objects are requested one by one whatever the collection's size. Up to
	// 1/perNamed of the objects are too: a request for one costs about as much as perNamed objects of
	// a list, 1 ms of kube-apiserver's CPU time and 11 µs. For more the whole collection is listed.
	fewNamed = 16
	perNamed = 64
	// namedAtOnce is how many of those requests are made at a time.
	namedAtOnce = 8
	// resolveTimeout bounds all requests for previous versions.
	resolveTimeout = time.Minute
)

// ResolvePrevious finds out which objects matched selectors before the first events of a history
// that a replay has brought. That depends on the objects' previous versions. kube-apiserver still
// has those, as of the resourceVersion where the history begins. After a restart nearly all clients
// with selectors resume from before the history of the lane. Without the previous versions each of
// them would pass through for as long as its watch lasts.
//
// It is tried once for each such resourceVersion, however many clients wait.
func (l *Lane) ResolvePrevious(ctx context.Context) error {
	if err := l.history.turn.Acquire(ctx); err != nil {
		return err
	}
	donec := make(chan error, 1)
	if !l.lanes.Spawn(func(ctx context.Context) {
		defer l.history.turn.Release()
		donec <- l.resolvePreviousOnce(ctx)
	}) {
		l.history.turn.Release()
		return context.Canceled
	}
	select {
	case err := <-donec:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errNoPrevious = errors.New("upstream has not given the versions from before the history")

func (l *Lane) resolvePreviousOnce(ctx context.Context) error {
	keys, after := l.Cache.UnresolvedKeys()
	switch {
	case len(keys) == 0:
		return nil
	case l.history.unresolved.Swap(after) == after:
		return errNoPrevious
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	started := time.Now()
	objects, err := l.objectsAt(ctx, keys, after)
	if err == nil && !l.Cache.ResolvePrevious(objects, after) {
		err = errNoPrevious
	}
	if err != nil {
		l.Log.Warn("Passed watches of selectors through, for a minute", "fromResourceVersion", after, "err", err)
		return err
	}
	l.Log.Info("Resolved previous versions", "fromResourceVersion", after, "objects", len(keys),
		"elapsed", time.Since(started).Round(time.Millisecond))
	return nil
}

// objectsAt returns the objects with the given keys as of resourceVersion rv.
func (l *Lane) objectsAt(ctx context.Context, keys []string, rv uint64) ([]*framing.Object, error) {
	if len(keys) > max(fewNamed, l.Cache.Stats().Objects/perNamed) {
		return l.Collection.ListAt(ctx, rv, sets.New(keys...).Has)
	}
	found := make([][]*framing.Object, len(keys))
	asking, ctx := errgroup.WithContext(ctx)
	asking.SetLimit(namedAtOnce)
	for i, key := range keys {
		asking.Go(func() (err error) {
			found[i], err = l.Collection.GetAt(ctx, key, rv)
			return err
		})
	}
	err := asking.Wait()
	return slices.Concat(found...), err
}
