package reflector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
)

const (
	// minWatchTimeout is the least timeout of a watch; see watchTimeout.
	minWatchTimeout = 5 * time.Minute
	// answerTimeout is how long upstream has to say its current resourceVersion, at first; see
	// resume.
	answerTimeout = 10 * time.Second
)

// watchTimeout returns how long a watch is to last. The range is client-go's
// (client-go/tools/cache/reflector.go, minWatchTimeout).
func watchTimeout() time.Duration { return minWatchTimeout + rand.N(minWatchTimeout) }

// openWatch begins a watch with these parameters besides the usual ones. If it succeeds, the caller
// stops w and closes body.
func (r *Reflector) openWatch(ctx context.Context, params ...string) (w *watchdog, body io.ReadCloser, err error) {
	timeout := watchTimeout()
	if r.collection.Table != "" {
		timeout *= tableWatchFactor
	}
	w = newWatchdog(ctx, &r.health, timeout)
	w.expect(listTimeout)
	resp, err := r.collection.watch(w.ctx, upstream.Query(append(params,
		"watch", "true",
		"allowWatchBookmarks", "true",
		"timeoutSeconds", strconv.Itoa(int(timeout.Seconds())),
	)...))
	if err != nil {
		err = w.explain(err)
		w.stop()
		return nil, nil, err
	}
	return w, resp.Body, nil
}

// resume watches from the resourceVersion of the cache, unless upstream has not reached it: an etcd
// that was restored from a backup accepts a watch from its future and then says nothing.
func (r *Reflector) resume(ctx context.Context) error {
	rv := r.cache.Progress()
	// Of several kube-apiservers, one that has lost etcd is soon left for another. If all of them
	// are slow, the timeout grows.
	asked, cancel := context.WithTimeout(ctx, min(answerTimeout<<r.slow, listTimeout))
	now, err := r.collection.CurrentVersion(asked)
	cancel()
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			r.slow = min(r.slow+1, 3)
		}
		return fmt.Errorf("list %s: %w", r.collection, err)
	}
	r.slow = 0
	if now < rv {
		r.relist = true
		return fmt.Errorf("watch %s from %d: upstream is at %d", r.collection, rv, now)
	}
	return r.watch(ctx, rv)
}

// watch applies the events after resourceVersion rv.
func (r *Reflector) watch(ctx context.Context, rv uint64) error {
	w, body, err := r.openWatch(ctx, "resourceVersion", strconv.FormatUint(rv, 10))
	if err != nil {
		r.relist = Expired(err)
		return fmt.Errorf("watch %s from %d: %w", r.collection, rv, err)
	}
	defer w.stop()
	defer body.Close()
	w.expect(0)
	return w.explain(r.apply(framing.NewEventReader(r.collection.Encoding, body)))
}

// apply applies a watch until it ends. If the content of the watch is doubtful, the collection is
// listed again.
func (r *Reflector) apply(lines framing.EventReader) error {
	r.metrics.watches.Inc()
	r.health.began()
	defer func() {
		r.health.brokenSince.set(time.Now())
		r.metrics.watches.Dec()
	}()
	var last uint64 // of this stream; a proof may have brought the cache further
	for {
		line, err := lines.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			r.relist = uncachable(err)
			return fmt.Errorf("watch %s: %w", r.collection, err)
		}
		if err := r.applyLine(line, &last); err != nil {
			return fmt.Errorf("watch %s: %w", r.collection, err)
		}
	}
}

// applyLine applies one event of a watch, whose last resourceVersion was last. It sets relist if it
// returns an error after which the watch cannot be resumed.
func (r *Reflector) applyLine(line []byte, last *uint64) error {
	received := time.Now()
	r.health.lastHeard.set(received)
	ev, err := r.scanner.Event(line)
	if err != nil {
		r.relist = true
		return err
	}
	r.setColumns(ev.Columns)
	if r.accept != nil && ev.Type != framing.Error {
		r.accept()
	}
	switch ev.Type {
	case framing.Error:
		err := eventError(ev)
		r.relist = Expired(err)
		return err
	case framing.Bookmark:
		if ev.ResourceVersion < *last {
			r.relist = true
			return fmt.Errorf("bookmark %d after %d", ev.ResourceVersion, *last)
		}
		*last = ev.ResourceVersion
		r.health.bookmarked.Store(true)
		r.cache.SetBookmarkForm(ev.Form)
		r.cache.Advance(ev.ResourceVersion)
		return nil
	}
	*last = max(*last, ev.ResourceVersion)
	r.metrics.events.Inc()
	r.source.metrics.changes.Add(1)
	r.metrics.eventBytes.Add(len(line))
	if err := r.cache.Apply(ev, received); err != nil {
		r.relist = true
		return err
	}
	r.health.lastChange.set(received) // now the lists of the filters have the change too; see diagnose.WatchersPage
	return nil
}
