package reflector

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
)

var (
	// ErrNoWatchList is the reason to list page by page.
	ErrNoWatchList = errors.New("upstream does not serve sendInitialEvents")
	// ErrNoRoom stops a reflector that lists while memory is full.
	ErrNoRoom = errors.New("memory is full")

	errBehind = errors.New("upstream listed an older state than it has shown before")
)

// fillByWatch fills the cache from the initial events of a watch, calls listed, then applies the
// events that follow on the same stream. An aggregated API server may never end the initial events: if
// they fail once, the next attempt lists.
func (r *Reflector) fillByWatch(ctx context.Context, listed func()) error {
	if r.endless {
		return ErrNoWatchList
	}
	w, lines, err := r.openWatch(ctx, "sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan")
	if err != nil {
		if statusCode(err) == http.StatusUnprocessableEntity {
			return ErrNoWatchList
		}
		return fmt.Errorf("watch %s: %w", r.Collection, err)
	}
	defer w.stop()
	w.expect(listTimeout)
	objects, end, err := r.initialEvents(lines, r.scanner, w, listTimeout)
	if err != nil {
		info := r.Collection.info
		r.endless = info.Definition == nil && !upstream.BuiltIn(info.GVR.Group)
		return err
	}
	w.expect(0)
	r.health.note(func(s *Status) { s.WatchList = true })
	r.Cache.SetBookmarkForm(end.Form)
	if err := r.fill(w.ctx, objects, end.ResourceVersion); err != nil {
		return err
	}
	listed()
	return w.explain(r.apply(lines))
}

// largeObject is the size of an object, in bytes, that counts as much as a hundred others for the
// watchdog of initial events.
const largeObject = 16 << 10

// initialEvents reads the objects that a watch begins with, and the bookmark after them. w breaks
// the watch unless a hundred objects, or a large one, come within patience.
func (r *Reflector) initialEvents(
	lines *framing.EventReader, scanner framing.Scanner, w *watchdog, patience time.Duration,
) (objects []*framing.Object, end framing.Event, err error) {
	c := r.Collection
	for {
		ev, size, err := nextEvent(lines, scanner)
		switch {
		case err != nil:
			return nil, end, fmt.Errorf("watch %s: initial events: %w", c, w.explain(err))
		case ev.InitialEventsEnd && ev.Type != framing.Added:
			return objects, ev, nil
		case ev.Type != framing.Added:
			return nil, end, fmt.Errorf("watch %s: %s among the initial events", c, ev.Type)
		}
		if objects = append(objects, ev.Object); len(objects)%100 == 0 || size >= largeObject {
			w.expect(patience)
		}
		if err := r.room(size); err != nil {
			return nil, end, fmt.Errorf("watch %s: initial events: %w", c, err)
		}
	}
}

// fillByList fills the cache from a list, page by page, where upstream has no sendInitialEvents.
func (r *Reflector) fillByList(ctx context.Context) error {
	var objects []*framing.Object
	rv, err := r.Collection.objects(ctx, r.Collection.path, "", 0, func(o *framing.Object) error {
		objects = append(objects, o)
		return r.room(len(o.Bytes()))
	})
	if err != nil {
		return fmt.Errorf("list %s: %w", r.Collection, err)
	}
	return r.fill(ctx, objects, rv)
}

// roomEvery is after how many bytes of a list memory is looked at. Looking once a second would not
// do: in that time a list could take all the memory that is left when memory counts as full.
const roomEvery = 1 << 20

// room notes n bytes of a list that is being read, and returns ErrNoRoom if memory is full. A
// relist needs as much memory again as the cache has. Without it the cache would stay old, so Run
// ends, which makes room.
func (r *Reflector) room(n int) error {
	r.Filling.Progress()
	if r.unseen += n; r.unseen < roomEvery {
		return nil
	}
	r.unseen = 0
	if r.source.full() {
		return ErrNoRoom
	}
	return nil
}

// fill makes the cache hold a list.
func (r *Reflector) fill(ctx context.Context, objects []*framing.Object, rv uint64) error {
	differences := 0
	restored, err := r.believe(ctx, objects, rv)
	if err == nil {
		r.breaker.relist.Store(false) // whatever was found different is replaced
		differences, err = r.replace(objects, rv, restored)
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", r.Collection, err)
	}
	r.breaker.lists.Store(false)
	relisted := r.filled
	r.relist, r.filled, r.compared = false, true, time.Now()
	r.health.note(func(s *Status) { s.Build, s.KnownWrong = new(r.build), false })
	if relisted {
		r.metrics.relists.Inc()
	} else {
		r.firstFilled(&Filled{Source: fromUpstream, NoSibling: r.unseeded, Objects: len(objects)})
		r.Filling.End(r.began)
	}
	r.Log.Info("Listed", "objects", len(objects), "resourceVersion", rv,
		"relisted", relisted, "differences", differences, "elapsed", time.Since(r.began).Round(time.Millisecond))
	return nil
}

// believe returns an error for a list that cannot be true, and for one that is older than the cache
// although etcd is not. restored reports whether etcd is older than what clients have been shown.
func (r *Reflector) believe(ctx context.Context, objects []*framing.Object, rv uint64) (restored bool, err error) {
	if err := believable(objects, rv); err != nil {
		return false, err
	}
	before, shown := r.Cache.Progress(), r.Cache.Shown()
	if rv >= shown {
		return false, nil
	}
	// Either etcd was restored, or this kube-apiserver lags behind it, or a proof was later than the list. The
	// current resourceVersion is etcd's own, whichever kube-apiserver answers.
	now, err := r.Collection.CurrentVersion(ctx, listTimeout)
	switch {
	case err == nil && now < shown:
		return true, nil
	case rv >= before:
		return false, nil
	case err == nil:
		err = fmt.Errorf("as of %d, at %d after %d: %w", rv, now, before, errBehind)
	}
	return false, err
}

// believable returns an error for objects that cannot be those of resourceVersion rv.
func believable(objects []*framing.Object, rv uint64) error {
	if rv == 0 || slices.ContainsFunc(objects, func(o *framing.Object) bool { return o.ResourceVersion > rv }) {
		return fmt.Errorf("it is as of %d, and some objects are newer", rv)
	}
	return nil
}

// replace puts a list into the cache. Clients get the differences, or are told to start again if
// differences cannot say what has happened, or etcd was restored.
func (r *Reflector) replace(objects []*framing.Object, rv uint64, restored bool) (differences int, err error) {
	reset := func(reason fanout.Reason) {
		r.reset(objects, rv, fanout.Ending{
			Reason: reason,
			Last:   apistatus.ErrorFrame(r.Collection.Encoding, apistatus.Expired(r.Cache.Progress(), rv)),
		})
	}
	if restored {
		err = fmt.Errorf("%w: list of %d after %d", fanout.ErrBackwards, rv, r.Cache.Shown())
	} else {
		differences, err = r.Cache.Replace(objects, rv, time.Now())
	}
	switch {
	case errors.Is(err, fanout.ErrReencoded):
		r.Log.Warn("Upstream writes objects differently at the same resourceVersion, all clients start again",
			"err", err)
		r.metrics.reencoded.Inc()
		reset(fanout.Reencoded)
	case errors.Is(err, fanout.ErrBackwards):
		r.Log.Error("Upstream went back in time, all clients start again", "err", err)
		r.metrics.resets.Inc()
		reset(fanout.Backwards)
	default:
		return differences, err
	}
	return differences, nil
}

// reset makes the cache begin again, and ends all clients' watches. If upstream went back in time, what ended lanes
// have left on disk goes too.
func (r *Reflector) reset(objects []*framing.Object, rv uint64, ending fanout.Ending) {
	r.Cache.Reset(objects, rv, ending)
	if ending.Reason == fanout.Backwards {
		r.source.restored()
	}
}
