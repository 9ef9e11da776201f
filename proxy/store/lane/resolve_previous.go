package lane

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/base/semaphore"
)

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
		wanted := make(map[string]bool, len(keys))
		for _, key := range keys {
			wanted[key] = true
		}
		return l.collection.ListAt(ctx, rv, func(key string) bool { return wanted[key] })
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	found, places := make([][]*framing.Object, len(keys)), semaphore.New(namedAtOnce)
	var asking sync.WaitGroup
	for i, key := range keys {
		if places.Acquire(ctx) != nil {
			break
		}
		asking.Go(func() {
			defer places.Release()
			var err error
			if found[i], err = l.collection.GetAt(ctx, key, rv); err != nil {
				cancel(err)
			}
		})
	}
	asking.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return slices.Concat(found...), nil
}
