package reflector

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/seed"
)

// A cache that is filled for the first time may be filled from a sibling replica (package seed).
// The reflector reads the sibling's objects, makes sure that upstream goes on from their
// resourceVersion, and follows upstream's watch from there. So upstream lists nothing. If one
// sibling fails, the next is asked. If all fail, upstream lists the collection in the same attempt,
// and requests that wait for the cache do not notice it. Siblings are asked in one attempt only.
//
// A sibling's state may be older than a read that waits, so it proves nothing about freshness; see
// [Filling].
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
	if r.filled || r.asked || !siblings.Named() {
		return false, nil
	}
	r.asked, r.began = true, time.Now()
	r.build = r.source.builds.Of(ctx, r.collection.info.GVR.GroupVersion())
	search := siblings.Search(ctx, r.build)
	for search.More() {
		got, err := r.readSeed(ctx, search)
		if err == nil {
			followed, err = r.continueSeed(ctx, got)
		}
		if followed || ctx.Err() != nil || errors.Is(err, ErrNoRoom) {
			return true, err
		}
		r.log.Debug("Refused a seed", "err", err)
		search.Refuse(err)
	}
	r.unseeded = search.Failed(r.log)
	return false, nil
}

// readSeed reads the objects of the next sibling.
func (r *Reflector) readSeed(ctx context.Context, search *seed.Search) (got contents, err error) {
	c := r.collection
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
	defer resp.Body.Close()
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
		return got, &seed.Failure{Reason: seed.Slow, Err: fmt.Errorf("sibling %s sent fewer than 100 objects in %s", got.addr, seedSilence)}
	}
	return got, &seed.Failure{Reason: seed.Broken, Err: fmt.Errorf("sibling %s: %w", got.addr, err)}
}

// continueSeed fills the cache with what a sibling has sent, if upstream has reached its
// resourceVersion and goes on from there, and applies the watch. It reports false if the cache does
// not count as filled; then it is empty.
func (r *Reflector) continueSeed(ctx context.Context, got contents) (followed bool, err error) {
	rv := got.end.ResourceVersion
	asked, cancel := context.WithTimeout(ctx, answerTimeout)
	now, err := r.collection.CurrentVersion(asked)
	cancel()
	if err != nil {
		return false, err
	}
	if rv > now {
		return false, &seed.Failure{Reason: seed.Ahead, Err: fmt.Errorf("sibling %s is at %d, upstream at %d", got.addr, rv, now)}
	}
	w, body, err := r.openWatch(ctx, "resourceVersion", strconv.FormatUint(rv, 10))
	if err != nil {
		return false, refusedSeed(err)
	}
	defer w.stop()
	defer body.Close()
	w.expect(0)
	r.cache.Reset(got.objects, rv, fanout.Ending{})
	r.cache.SetBookmarkForm(got.end.Form)
	r.compared = time.Now()
	accepted, err := r.applyFirst(body, func() { r.acceptSeed(got) })
	err = w.explain(err)
	if !accepted {
		r.cache.Reset(nil, 0, fanout.Ending{})
		r.relist = false
		return false, refusedSeed(err)
	}
	r.filled = true
	return true, err
}

// acceptSeed notes that the cache has been filled with what a sibling has sent. A timer may call
// it.
func (r *Reflector) acceptSeed(got contents) {
	r.source.metrics.filledSibling.Inc()
	r.firstFilled(got.addr, len(got.objects))
	r.watchList.Store(true) // or the sibling would not have been sent initial events
	r.wrote.Store(new(r.build))
	r.filling.End(time.Time{})
	r.log.Info("Filled from a sibling", "address", got.addr, "objects", len(got.objects),
		"resourceVersion", got.end.ResourceVersion, "elapsed", time.Since(r.began).Round(time.Millisecond))
}

// refusedSeed returns why upstream does not go on from a sibling's resourceVersion; err is nil if
// its watch ended at once.
func refusedSeed(err error) error {
	switch {
	case err == nil:
		return errEndedAtOnce
	case Expired(err):
		return &seed.Failure{Reason: seed.TooOld, Err: err}
	}
	return err
}

// Filled says how a cache was filled for the first time. It does not change.
type Filled struct {
	Sibling   string      // address of the replica that sent the objects; "" for a list at upstream
	NoSibling seed.Reason // why no sibling has filled it; "" if one has, or if none was asked
	At        time.Time
	Took      time.Duration // since the siblings were first asked, or since the list was requested
	Objects   int
}

// firstFilled notes that the cache has been filled for the first time, by a sibling or, if its
// address is "", by a list.
func (r *Reflector) firstFilled(sibling string, objects int) {
	now := time.Now()
	f := &Filled{Sibling: sibling, At: now, Took: now.Sub(r.began), Objects: objects}
	if sibling == "" {
		f.NoSibling = r.unseeded
	}
	r.first.Store(f)
}
