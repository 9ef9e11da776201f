package reflector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

const (
	// minWatchTimeout is the least timeout of a watch. Watches last for up to twice as long, as
	// client-go's do (client-go/tools/cache/reflector.go, minWatchTimeout).
	minWatchTimeout = 5 * time.Minute
	// answerTimeout is how long upstream has to say its current resourceVersion, at first; see
	// resume.
	answerTimeout = 10 * time.Second
)

// openWatch begins a watch with these parameters besides the usual ones. If it succeeds, the caller
// stops w.
func (r *Reflector) openWatch(ctx context.Context, params ...string) (
	w *watchdog, lines *framing.EventReader, err error,
) {
	timeout := minWatchTimeout + rand.N(minWatchTimeout)
	if r.Collection.Table != "" {
		timeout *= tableWatchFactor
	}
	w = newWatchdog(ctx, &r.health, timeout)
	w.expect(listTimeout)
	resp, err := r.Collection.watch(w.ctx, timeout, params...)
	if err != nil {
		err = w.explain(err)
		w.stop()
		return nil, nil, err
	}
	w.body = resp.Body
	return w, framing.NewEventReader(r.Collection.Encoding, resp.Body), nil
}

// resume watches from the resourceVersion of the cache, unless upstream has not reached what clients have been
// shown: an etcd that was restored from a backup accepts a watch from its future and then says nothing.
func (r *Reflector) resume(ctx context.Context) error {
	rv, shown := r.Cache.Progress(), r.Cache.Shown()
	// Of several kube-apiservers, one that has lost etcd is soon left for another. If all of them
	// are slow, the timeout grows.
	now, err := r.Collection.CurrentVersion(ctx, min(answerTimeout<<r.slow, listTimeout))
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			r.slow = min(r.slow+1, 3)
		}
		return fmt.Errorf("list %s: %w", r.Collection, err)
	}
	r.slow = 0
	if now < shown {
		r.relist = true
		return fmt.Errorf("watch %s from %d, shown up to %d: upstream is at %d", r.Collection, rv, shown, now)
	}
	return r.watch(ctx, rv)
}

// watch applies the events after resourceVersion rv.
func (r *Reflector) watch(ctx context.Context, rv uint64) error {
	w, lines, err := r.openWatch(ctx, "resourceVersion", strconv.FormatUint(rv, 10))
	if err != nil {
		r.relist = Expired(err)
		return fmt.Errorf("watch %s from %d: %w", r.Collection, rv, err)
	}
	defer w.stop()
	w.expect(0)
	return w.explain(r.apply(lines))
}

// refusalWait is how long after the head of the first watch an event is awaited that refuses its
// resourceVersion.
const refusalWait = 50 * time.Millisecond

// watchFirst fills the cache with the objects of resourceVersion rv, which are not from a list at
// upstream, and applies the events after rv. Upstream may refuse rv with the first event. Once it
// has not done that, accept is called, perhaps by a timer, and the cache counts as filled.
// Otherwise it is empty when watchFirst returns.
func (r *Reflector) watchFirst(ctx context.Context, objects []*framing.Object, rv uint64, accept func()) error {
	w, lines, err := r.openWatch(ctx, "resourceVersion", strconv.FormatUint(rv, 10))
	if err != nil {
		return fmt.Errorf("watch %s from %d: %w", r.Collection, rv, err)
	}
	defer w.stop()
	w.expect(0)
	r.Cache.Reset(objects, rv, fanout.Ending{})
	accept = sync.OnceFunc(accept)
	r.accept = func() {
		r.filled = true
		accept()
	}
	silent := time.AfterFunc(refusalWait, accept)
	err = w.explain(r.apply(lines))
	r.accept = nil
	if silent.Stop() && !r.filled { // refused, or ended at once
		r.Cache.Reset(nil, 0, fanout.Ending{})
		r.relist = false
		return err
	}
	accept() // returns once the cache counts as filled
	r.filled = true
	return err
}

// apply applies a watch until it ends. If the content of the watch is doubtful, the collection is
// listed again.
func (r *Reflector) apply(lines *framing.EventReader) error {
	r.metrics.watches.Inc()
	began := time.Now()
	r.health.note(func(s *Status) { s.WatchBegan, s.BrokenSince, s.LastHeard = began, time.Time{}, began })
	defer func() {
		r.health.note(func(s *Status) { s.BrokenSince = time.Now() })
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
			return fmt.Errorf("watch %s: %w", r.Collection, err)
		}
		if err := r.applyLine(line, &last, lines.More()); err != nil {
			return fmt.Errorf("watch %s: %w", r.Collection, err)
		}
	}
}

// applyLine applies one event of a watch, whose last resourceVersion was last. More says that another has
// come. It sets relist if it returns an error after which the watch cannot be resumed.
func (r *Reflector) applyLine(line []byte, last *uint64, more bool) error {
	received := time.Now()
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
		r.health.note(func(s *Status) { s.LastHeard, s.bookmarked = received, true })
		r.Cache.SetBookmarkForm(ev.Form)
		r.Cache.Advance(ev.ResourceVersion)
		return nil
	}
	*last = max(*last, ev.ResourceVersion)
	r.metrics.events.Inc()
	r.source.changes.Add(1)
	r.metrics.eventBytes.Add(len(line))
	apply := r.Cache.ApplyLast
	if more {
		apply = r.Cache.Apply
	}
	if err := apply(ev, received); err != nil {
		r.relist = true
		return err
	}
	// Now the lists of the filters have the change too; see diagnose.WatchersPage.
	r.health.note(func(s *Status) { s.LastHeard, s.LastChange = received, received })
	return nil
}
