package reflector

import (
	"context"
	"errors"
	"time"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/seed"
)

// A cache that is filled for the first time may be filled from a sibling replica (package seed).
// The reflector reads the sibling's objects, makes sure that upstream goes on from their
// resourceVersion, and follows upstream's watch from there. If one sibling fails, the next is asked.
// If all fail, upstream lists the collection in the same attempt, so requests that wait for the cache
// do not notice it. Siblings are asked in one attempt only.
const (
	// seedSilence is how long a sibling may take for a hundred objects, or for one that is large.
	seedSilence = 5 * time.Second
	// seedTimeout and the watchdog's overtime bound a whole seed.
	seedTimeout = time.Minute
)

// contents is what a sibling has sent.
type contents struct {
	objects []*framing.Object
	end     framing.Event // the bookmark after them
	addr    string        // of the sibling
}

// followSeed fills the cache from a sibling and applies the watch that goes on from there, until
// the watch ends. It reports false if the collection must be listed.
func (r *Reflector) followSeed(ctx context.Context) (followed bool, err error) {
	siblings := r.source.siblings
	if r.filled || r.unseeded != "" || !siblings.Named() {
		return false, nil
	}
	r.began = time.Now()
	r.build = r.source.builds.Of(ctx, r.Collection.info.GVR.GroupVersion())
	search := siblings.Search(ctx, r.build)
	for search.More() {
		got, err := r.readSeed(ctx, search)
		if err == nil {
			err = r.continueSeed(ctx, got)
		}
		if r.filled || ctx.Err() != nil || errors.Is(err, ErrNoRoom) {
			return true, err
		}
		r.Log.Debug("Refused a seed", "err", err)
		search.Refuse(err)
	}
	r.unseeded = search.Failed(r.Log)
	return false, nil
}

// readSeed reads the objects of the next sibling.
func (r *Reflector) readSeed(ctx context.Context, search *seed.Search) (got contents, err error) {
	c := r.Collection
	w := newWatchdog(ctx, &r.health, seedTimeout)
	defer w.stop()
	resp, err := search.Ask(w.ctx, c.path, upstream.Query(
		"watch", "true",
		"allowWatchBookmarks", "true",
		"sendInitialEvents", "true",
		"resourceVersion", "0",
		"resourceVersionMatch", "NotOlderThan",
	), c.Accept(false))
	if err != nil {
		return got, err
	}
	w.body = resp.Body
	got.addr = resp.Request.URL.Host
	w.expect(seedSilence)
	if _, err = c.checked(resp, nil); err == nil {
		got.objects, got.end, err = r.initialEvents(framing.NewEventReader(c.Encoding, resp.Body), w, seedSilence)
	}
	if err == nil {
		err = believable(got.objects, got.end.ResourceVersion)
	}
	switch {
	case err == nil, errors.Is(err, ErrNoRoom):
		return got, err
	case errors.Is(err, errSilent):
		return got, seed.Fail(seed.Slow, "sibling %s sent fewer than 100 objects in %s", got.addr, seedSilence)
	}
	return got, seed.Fail(seed.Broken, "sibling %s: %w", got.addr, err)
}

// continueSeed fills the cache with what a sibling has sent, if upstream has reached its
// resourceVersion and goes on from there, and applies the watch. Otherwise the cache does not count
// as filled, and the error says why.
func (r *Reflector) continueSeed(ctx context.Context, got contents) error {
	rv := got.end.ResourceVersion
	now, err := r.Collection.CurrentVersion(ctx, answerTimeout)
	if err != nil {
		return err
	}
	if rv > now {
		return seed.Fail(seed.Ahead, "sibling %s is at %d, upstream at %d", got.addr, rv, now)
	}
	r.compared = time.Now()
	err = r.watchFirst(ctx, got.objects, rv, func() { r.acceptSeed(got) })
	switch {
	case r.filled:
		return err
	case err == nil:
		return errEndedAtOnce
	case Expired(err):
		return &seed.Failure{Reason: seed.TooOld, Err: err}
	}
	return err
}

// acceptSeed notes that the cache has been filled with what a sibling has sent. A timer may call
// it.
func (r *Reflector) acceptSeed(got contents) {
	r.source.filledSibling.Inc()
	r.firstFilled(got.addr, len(got.objects))
	r.Cache.SetBookmarkForm(got.end.Form)
	r.health.note(func(s *Status) {
		s.WatchList = true // or the sibling would not have been sent initial events
		s.Build = new(r.build)
	})
	r.Filling.End(time.Time{})
	r.Log.Info("Filled from a sibling", "address", got.addr, "objects", len(got.objects),
		"resourceVersion", got.end.ResourceVersion, "elapsed", time.Since(r.began).Round(time.Millisecond))
}

// firstFilled notes that the cache has been filled for the first time, by a sibling or, if its
// address is "", by a list.
func (r *Reflector) firstFilled(sibling string, objects int) {
	now := time.Now()
	f := &Filled{Source: "sibling", Address: sibling, Time: now, Seconds: now.Sub(r.began).Seconds(), Objects: objects}
	if sibling == "" {
		f.Source, f.NoSibling = "upstream", r.unseeded
	}
	r.health.note(func(s *Status) { s.Filled = f })
}
