package reflector

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/seed"
	"github.com/watchfan/watchfan/proxy/upstream"
)

// A cache that is filled for the first time may be filled from a sibling replica (package seed). The
// reflector reads the sibling's objects, makes sure that upstream goes on from their resourceVersion,
// and follows upstream's watch from there. So upstream lists nothing. The reflector asks siblings
// once. Whatever is wrong leads to a list at upstream in the same attempt, and requests that wait for
// the cache do not notice it.
//
// A sibling's state may be older than a read that waits, so it proves nothing about freshness; see
// [Filling].
const (
	// seedSilence is how long a sibling may take for a hundred objects.
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

// followSeed fills the cache from a sibling and applies the watch that goes on from there, until the
// watch ends. It reports false if the collection must be listed.
func (r *Reflector) followSeed(ctx context.Context) (followed bool, err error) {
	siblings := r.source.siblings
	if r.filled || r.asked || !siblings.Named() {
		return false, nil
	}
	r.began = time.Now()
	asked, cancel := context.WithTimeout(ctx, answerTimeout)
	now, err := r.collection.CurrentVersion(asked)
	cancel()
	if err != nil {
		return false, nil // the list shows the same
	}
	r.asked = true
	r.build = r.source.builds.Of(ctx, r.collection.info.GVR.GroupVersion())
	got, err := r.readSeed(ctx)
	if err == nil {
		followed, err = r.continueSeed(ctx, got, now)
	}
	switch {
	case followed, ctx.Err() != nil, errors.Is(err, ErrNoRoom):
		return true, err
	}
	r.relist = r.cache.Progress() != 0 // it was filled, but not used
	siblings.Failed(r.log, err)
	return false, nil
}

// readSeed reads the objects of a sibling.
func (r *Reflector) readSeed(ctx context.Context) (got contents, err error) {
	c := r.collection
	w := newWatchdog(ctx, &r.health, seedTimeout, r.source.hangTimeout)
	defer w.stop()
	resp, addr, err := r.source.siblings.Open(w.ctx, c.path, upstream.Query(
		"watch", "true",
		"allowWatchBookmarks", "true",
		"sendInitialEvents", "true",
		"resourceVersion", "0",
		"resourceVersionMatch", "NotOlderThan",
	), c.Accept(false), r.build)
	if err != nil {
		return got, err
	}
	defer resp.Body.Close()
	got.addr = addr
	w.expect(seedSilence)
	if _, err = c.checked(resp, nil); err == nil {
		got.objects, got.end, err = r.initialEvents(framing.NewEventReader(c.Encoding, resp.Body), w, seedSilence)
	}
	switch {
	case err == nil:
		return got, believable(got.objects, got.end.ResourceVersion)
	case errors.Is(err, ErrNoRoom):
		return got, err
	case errors.Is(err, errSilent):
		return got, &seed.Failure{Reason: seed.Slow, Err: fmt.Errorf("%s sent fewer than 100 objects in %s", addr, seedSilence)}
	}
	return got, &seed.Failure{Reason: seed.Broken, Err: fmt.Errorf("from %s: %w", addr, err)}
}

// continueSeed fills the cache with what a sibling has sent, once upstream goes on from its
// resourceVersion, and applies the watch. now is a resourceVersion that upstream has reached. It
// reports false if the cache does not count as filled.
func (r *Reflector) continueSeed(ctx context.Context, got contents, now uint64) (followed bool, err error) {
	rv := got.end.ResourceVersion
	if rv > now {
		if now, err = r.collection.CurrentVersion(ctx); err != nil {
			return false, err
		}
	}
	if rv > now {
		return false, &seed.Failure{Reason: seed.Ahead, Err: fmt.Errorf("it is at %d, upstream at %d", rv, now)}
	}
	w, body, err := r.openWatch(ctx, "resourceVersion", strconv.FormatUint(rv, 10))
	if err != nil {
		return false, unlessRefused(err)
	}
	defer w.stop()
	defer body.Close()
	w.expect(0)
	if _, err := r.replace(got.objects, rv); err != nil {
		return false, err
	}
	r.cache.SetBookmarkForm(got.end.Form)
	r.watchList.Store(true)
	r.wrote.Store(new(r.build))
	r.compared = time.Now()
	accepted, err := r.applyFirst(body, func() {
		filledSibling.Inc()
		r.filling.End(time.Time{})
		r.log.Info("Filled from a sibling", "address", got.addr, "objects", len(got.objects), "resourceVersion", rv,
			"elapsed", time.Since(r.began).Round(time.Millisecond))
	})
	err = w.explain(err)
	if r.filled = accepted; !accepted {
		return false, unlessRefused(err)
	}
	return true, err
}

// unlessRefused returns why upstream's watch from a sibling's resourceVersion ended before it began.
func unlessRefused(err error) error {
	if Expired(err) {
		return &seed.Failure{Reason: seed.TooOld, Err: err}
	}
	if err == nil {
		err = errEndedAtOnce
	}
	return err
}
