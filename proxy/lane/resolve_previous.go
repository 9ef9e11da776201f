package lane

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/watchfan/watchfan/framing"
)

// mostNamed is how many objects are requested one by one. For more, the whole collection is listed,
// unless it has more than mostListed objects.
const mostNamed = 16

// ResolvePrevious finds out which objects matched selectors before the first events of a history
// that a replay has brought. That depends on the objects' previous versions, and kube-apiserver
// still has those, as of the resourceVersion where the history begins. After a restart nearly all
// clients with selectors resume from there. Otherwise each would be passed through for as long as
// its watch lasts.
//
// It is tried once for each such resourceVersion, however many clients wait.
func (l *Lane) ResolvePrevious(ctx context.Context) error {
	if err := l.history.turn.acquire(ctx); err != nil {
		return err
	}
	donec := make(chan error, 1)
	if !l.lanes.Spawn(func(ctx context.Context) {
		defer l.history.turn.release()
		donec <- l.resolvePreviousOnce(ctx)
	}) {
		l.history.turn.release()
		return context.Canceled
	}
	select {
	case err := <-donec:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errNoPrevious = errors.New("the versions from before the history can't be had")

func (l *Lane) resolvePreviousOnce(ctx context.Context) error {
	keys, after := l.Cache.UnresolvedKeys()
	switch {
	case len(keys) == 0:
		return nil
	case l.history.unresolved.Swap(after) == after:
		return errNoPrevious
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
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
	l.Log.Info("Decided history", "fromResourceVersion", after, "objects", len(keys), "elapsed", time.Since(started).Round(time.Millisecond))
	return nil
}

// objectsAt returns the objects with the given keys as of resourceVersion rv. It may return others
// with them.
func (l *Lane) objectsAt(ctx context.Context, keys []string, rv uint64) (objects []*framing.Object, err error) {
	if len(keys) > mostNamed {
		if n := l.Cache.Stats().Objects; n > mostListed {
			return nil, fmt.Errorf("list %s at %d: %d objects are too many", l, rv, n)
		}
		return l.listAt(ctx, l.path, "", rv)
	}
	for _, key := range keys {
		namespace, name, namespaced := strings.Cut(key, "/")
		path := l.path
		if !namespaced {
			name = key
		} else {
			path = strings.TrimSuffix(l.path, l.GVR.Resource) + "namespaces/" + url.PathEscape(namespace) + "/" + l.GVR.Resource
		}
		found, err := l.listAt(ctx, path, "metadata.name="+name, rv)
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	return objects, nil
}
