package lane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/watchfan/watchfan/framing"
)

const (
	// mostNamed is how many objects are requested one by one. For more, the whole collection is
	// listed, unless it has more than mostListed objects.
	mostNamed = 16
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

// objectsAt returns the objects with the given keys as of resourceVersion rv. It may return more
// objects.
func (l *Lane) objectsAt(ctx context.Context, keys []string, rv uint64) (objects []*framing.Object, err error) {
	if len(keys) > mostNamed {
		if n := l.Cache.Stats().Objects; n > mostListed {
			return nil, fmt.Errorf("list %s at %d: %d objects are too many", l, rv, n)
		}
		return l.collection.ListAt(ctx, rv)
	}
	for _, key := range keys {
		found, err := l.collection.GetAt(ctx, key, rv)
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	return objects, nil
}
