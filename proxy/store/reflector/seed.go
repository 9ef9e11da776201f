package reflector

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/seed"
)

// A cache that is filled for the first time may be filled from a file of --cache-dir or from a sibling
// replica (package seed). The reflector reads the objects, makes sure that upstream goes on from their
// resourceVersion, and follows upstream's watch from there. If the file or one sibling fails, the next
// sibling is asked. If all fail, upstream lists the collection in the same attempt, so requests that wait
// for the cache do not notice it. This is done in one attempt only.
const (
	// seedSilence is how long a sibling may take for a hundred objects, or for one that is large.
	seedSilence = 5 * time.Second
	// seedTimeout and the watchdog's overtime bound a whole seed.
	seedTimeout = time.Minute
)

// contents is what a sibling has sent, or what a file has.
type contents struct {
	objects []*framing.Object
	end     framing.Event // the bookmark after them
	addr    string        // of the sibling; "" for a file
}

// followSeed fills the cache from a file or a sibling and applies the watch that goes on from there, until
// the watch ends. It reports false if the collection must be listed.
func (r *Reflector) followSeed(ctx context.Context) (followed bool, err error) {
	siblings, kept := r.source.siblings, r.Collection.File() != "" && !r.diskRead
	if r.filled || r.unseeded != "" || !kept && !siblings.Named() {
		return false, nil
	}
	r.began, r.diskRead = time.Now(), true
	r.build = r.source.builds.Of(ctx, r.Collection.info)
	if kept {
		if followed, err := r.followFrom(ctx, r.readDisk); followed {
			return true, err
		} else if !errors.Is(err, fs.ErrNotExist) {
			r.Log.Info("The file in --cache-dir is of no use", "err", err)
		}
	}
	if !siblings.Named() {
		return false, nil
	}
	search := siblings.Search(ctx, r.build)
	for search.More() {
		followed, err := r.followFrom(ctx, func(ctx context.Context) (contents, error) { return r.readSeed(ctx, search) })
		if followed {
			return true, err
		}
		r.Log.Debug("Refused a seed", "err", err)
		search.Refuse(err)
	}
	r.unseeded = search.Failed(r.Log)
	return false, nil
}

// followFrom fills the cache with what read returns, and follows upstream from there. It reports false if
// another source must fill the cache, because of err.
func (r *Reflector) followFrom(ctx context.Context, read func(context.Context) (contents, error)) (followed bool, err error) {
	got, err := read(ctx)
	if err == nil {
		err = r.continueSeed(ctx, got)
	}
	return r.filled || ctx.Err() != nil || errors.Is(err, ErrNoRoom), err
}

// readDisk reads what the lane's file has: initial events, and the events since then. Nobody else can have
// made the file, so the events are not checked again.
func (r *Reflector) readDisk(ctx context.Context) (got contents, err error) {
	defer r.source.guard.Caught("file of --cache-dir", func() { got, err = contents{}, errNoEvents })
	identity, err := r.source.siblings.Identity(ctx, r.build)
	if err != nil {
		return got, err
	}
	body, err := r.source.siblings.Disk.Open(r.Collection.File(), identity)
	if err != nil {
		return got, err
	}
	w := newWatchdog(ctx, &r.health, seedTimeout)
	defer w.stop()
	w.body = body
	w.expect(seedSilence)
	lines, known := framing.NewEventReader(r.Collection.Encoding, body), r.Collection.knownScanner()
	if got.objects, got.end, err = r.initialEvents(lines, known, w, seedSilence); err != nil {
		return got, err
	}
	if err = r.readChanges(lines, known, &got); err == nil {
		err = believable(got.objects, got.end.ResourceVersion)
	}
	return got, err
}

var errNoEvents = errors.New("it has something else than events")

// readChanges applies the events behind the initial events to them, up to where the file ends.
func (r *Reflector) readChanges(lines *framing.EventReader, scanner framing.Scanner, got *contents) error {
	changed := make(map[string]*framing.Object) // nil if it is gone
	for {
		ev, size, err := nextEvent(lines, scanner)
		if err != nil {
			break
		}
		got.end.ResourceVersion = max(got.end.ResourceVersion, ev.ResourceVersion)
		switch ev.Type {
		case framing.Added, framing.Modified:
			changed[ev.Object.Key] = ev.Object
		case framing.Deleted:
			changed[ev.Object.Key] = nil
		}
		if err := r.room(size); err != nil {
			return err
		}
	}
	got.objects = slices.DeleteFunc(got.objects, func(o *framing.Object) bool { _, ok := changed[o.Key]; return ok })
	for _, o := range changed {
		if o != nil {
			got.objects = append(got.objects, o)
		}
	}
	return nil
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
		got.objects, got.end, err = r.initialEvents(framing.NewEventReader(c.Encoding, resp.Body), r.scanner, w, seedSilence)
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
		return seed.Fail(seed.Ahead, "sibling %s is at %d, upstream at %d", cmp.Or(got.addr, "--cache-dir"), rv, now)
	}
	r.compared = time.Now()
	r.Cache.Seeded(now)
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

// acceptSeed notes that the cache has been filled with what a sibling or a file has. A timer may call it.
func (r *Reflector) acceptSeed(got contents) {
	filled := &Filled{Source: fromSibling, Address: got.addr, Objects: len(got.objects)}
	if got.addr == "" {
		filled.Source = fromDisk
	}
	r.firstFilled(filled)
	r.Cache.SetBookmarkForm(got.end.Form)
	r.health.note(func(s *Status) {
		s.WatchList = true // or there would be no initial events
		s.Build = new(r.build)
	})
	r.Filling.End(time.Time{})
	r.Log.Info("Filled without a list", "source", filled.From(), "objects", len(got.objects),
		"resourceVersion", got.end.ResourceVersion, "elapsed", time.Since(r.began).Round(time.Millisecond))
}

// firstFilled notes and counts how the cache has been filled for the first time.
func (r *Reflector) firstFilled(f *Filled) {
	r.source.filled[f.Source].Inc()
	f.Time = time.Now()
	f.Seconds = f.Time.Sub(r.began).Seconds()
	r.health.note(func(s *Status) { s.Filled = f })
}
