package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// reflector follows one resource upstream. It fills the lane's cache from a list, then applies what the watch brings. After a
// broken watch it resumes from the last resourceVersion. Where upstream has lost the history, it lists once more and compares the list
// with the cache: only the differences go to clients, whose streams stay open.
type reflector struct {
	lane    *lane
	scanner framing.Scanner
	backoff time.Duration // before the next attempt, at least

	relist bool      // the cache can't be brought up to date by a watch
	began  time.Time // when the list that is under way was asked for
	slow   int       // how often in a row upstream has not said in time at which resourceVersion it is
	typed  []byte
	unseen int // bytes listed since memory was last looked at

	// See reencoded.
	build              build     // that wrote what the cache was filled with
	compared, refilled time.Time // when the cache was last compared with what upstream writes, and when it was listed for that reason
}

// Times of the reflector. The watch timeout is client-go's range (client-go/tools/cache/reflector.go, minWatchTimeout).
const (
	minWatchTimeout = 5 * time.Minute
	minBackoff      = 100 * time.Millisecond
	maxBackoff      = 5 * time.Second
	listPage        = "500"
	listTimeout     = time.Minute      // for a page of a list, for a watch to begin, or for initial events to go on
	answerTimeout   = 10 * time.Second // for the current resourceVersion, at first
	beginTimeout    = 3 * time.Second  // for which requests wait while upstream says that it is busy
)

// run follows the resource until ctx ends, upstream no longer serves it, or it can't be cached. Then it returns how long the
// lane stays in quarantine.
func (r *reflector) run(ctx context.Context) (quarantine time.Duration) {
	l := r.lane
	started := time.Now()
	l.log.Info("Started lane")
	r.backoff = minBackoff
	hung := false // upstream is there, and did not do what was asked of it
	for {
		if hung {
			l.lanes.reconnect(ctx)
		}
		a := attempt{began: time.Now(), progress: l.cache.Progress(), relisting: r.relist}
		a.err = r.follow(ctx)
		if ctx.Err() != nil || !a.status().beginning() || time.Since(started) > beginTimeout {
			l.filling.fail(ctx.Err() == nil && troubled(a.err))
		}
		if ctx.Err() != nil {
			l.log.Info("Stopped lane", "elapsed", time.Since(started).Round(time.Second))
			return 0
		}
		o := r.outcome(a)
		switch o.next {
		case nextStop:
			return 0
		case nextQuarantine:
			return o.wait
		case nextResume:
			continue
		}
		hung = hangs(o.err)
		l.metrics.breaks.Inc()
		l.health.failed(o.err, r.relist)
		l.log.Warn("Upstream watch broke", "err", o.err, "relist", r.relist, "retryIn", o.wait.Round(time.Millisecond))
		r.backoff = min(r.backoff*2, maxBackoff)
		sleep(ctx, o.wait)
	}
}

var (
	errBehind = errors.New("upstream listed what is older than what it has shown")
	errNoRoom = errors.New("memory is full")
)

// roomEvery is after how many bytes of a list memory is looked at. In a second, a list could take more memory than is left
// between where memory counts as full and where the process is killed.
const roomEvery = 1 << 20

// room notes n bytes of a list that is being read, and returns errNoRoom if memory is full. A relist needs as much memory again
// as the cache has. Without it the clients would keep an old state, so the lane ends, which makes room.
func (r *reflector) room(n int) error {
	r.lane.filling.progress()
	if r.unseen += n; r.unseen < roomEvery {
		return nil
	}
	r.unseen = 0
	if full := r.lane.lanes.full; full != nil && full() {
		return errNoRoom
	}
	return nil
}

// follow brings the cache up to date and applies one upstream watch. nil means that the watch came to a proper end.
func (r *reflector) follow(ctx context.Context) error {
	l := r.lane
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.breaker.arm(cancel)
	if l.form.Load() == nil {
		if err := r.learnForm(ctx); err != nil {
			return err
		}
	}
	if l.breaker.relist.Swap(false) {
		r.relist = true
	}
	if l.cache.Progress() != 0 && !r.relist {
		if r.relist = r.reencoded(ctx); !r.relist {
			return r.resume(ctx)
		}
	}
	l.filling.inLine.Store(true)
	listed, err := l.lanes.turns.take(ctx)
	l.filling.inLine.Store(false)
	l.filling.progress()
	if err != nil {
		return err
	}
	defer listed()
	r.began = time.Now()
	r.build = l.lanes.builds.of(ctx, l.gvr.GroupVersion())
	err = r.watchList(ctx, listed)
	if errors.Is(err, errNoWatchList) {
		if err := r.list(ctx); err != nil {
			return err
		}
		listed()
		return r.watch(ctx, l.cache.Progress())
	}
	return err
}

// learnForm asks for an empty list, to see how upstream writes it.
func (r *reflector) learnForm(ctx context.Context) error {
	l := r.lane
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	resp, err := l.list(ctx, query("resourceVersion", "0", "fieldSelector", matchesNothing))
	if err != nil {
		return fmt.Errorf("list %s: %w", l, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, framing.MaxEvent))
	if err != nil {
		return fmt.Errorf("list %s: %w", l, err)
	}
	form, _, err := framing.ParseListForm(l.encoding, body)
	if err != nil {
		return fmt.Errorf("list %s: %w", l, err)
	}
	r.typed = form.TypeMeta(l.info.kind)
	warnings := resp.Header.Values("Warning")
	l.warnings.Store(&warnings)
	l.form.Store(&form)
	return nil
}

var errNoWatchList = errors.New("upstream does not serve sendInitialEvents")

// watchList fills the cache from the initial events of a watch, calls listed, then applies what follows on the same stream.
func (r *reflector) watchList(ctx context.Context, listed func()) error {
	l := r.lane
	timeout := watchTimeout()
	w := l.watchdog(ctx, timeout)
	defer w.stop()
	w.expect(listTimeout)
	resp, err := l.watch(w.ctx, query(
		"watch", "true",
		"sendInitialEvents", "true",
		"resourceVersionMatch", "NotOlderThan",
		"allowWatchBookmarks", "true",
		"timeoutSeconds", inSecondsText(timeout),
	))
	err = w.explain(err)
	if err != nil {
		var status *statusError
		if errors.As(err, &status) && status.Code == http.StatusUnprocessableEntity {
			return errNoWatchList
		}
		return fmt.Errorf("watch %s: %w", l, err)
	}
	defer resp.Body.Close()
	lines := framing.NewEventReader(l.encoding, resp.Body)

	w.expect(listTimeout)
	objects, end, err := r.initialEvents(lines, w)
	if err != nil {
		return err
	}
	w.expect(0)
	l.watchList.Store(true)
	l.cache.SetBookmarkForm(end.Form)
	if err := r.fill(w.ctx, objects, end.ResourceVersion); err != nil {
		return err
	}
	listed()
	return w.explain(r.apply(lines))
}

// initialEvents reads the objects that a watch begins with, and the bookmark behind them.
func (r *reflector) initialEvents(lines framing.EventReader, w *watchdog) (objects []*framing.Object, end framing.Event, err error) {
	l := r.lane
	for {
		line, err := lines.Next()
		if err != nil {
			return nil, end, fmt.Errorf("watch %s: initial events: %w", l, w.explain(err))
		}
		ev, err := r.scanner.Event(line)
		switch {
		case err != nil:
			return nil, end, fmt.Errorf("watch %s: initial events: %w", l, err)
		case ev.Type == framing.Error:
			return nil, end, fmt.Errorf("watch %s: %w", l, eventError(ev))
		case ev.InitialEventsEnd && ev.Type != framing.Added:
			return objects, ev, nil
		case ev.Type != framing.Added:
			return nil, end, fmt.Errorf("watch %s: %s among the initial events", l, ev.Type)
		}
		if objects = append(objects, ev.Object); len(objects)%100 == 0 {
			w.expect(listTimeout)
		}
		if err := r.room(len(line)); err != nil {
			return nil, end, fmt.Errorf("watch %s: initial events: %w", l, err)
		}
	}
}

// list fills the cache from a list, page by page, where upstream has no sendInitialEvents.
func (r *reflector) list(ctx context.Context) error {
	l := r.lane
	var objects []*framing.Object
	token := ""
	for {
		meta, err := r.page(ctx, token, &objects)
		if err != nil {
			return fmt.Errorf("list %s: %w", l, err)
		}
		if token = meta.Continue; token == "" {
			return r.fill(ctx, objects, meta.ResourceVersion)
		}
	}
}

func (r *reflector) page(ctx context.Context, token string, objects *[]*framing.Object) (framing.ListMeta, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	resp, err := r.lane.list(ctx, query("limit", listPage, "continue", token))
	if err != nil {
		return framing.ListMeta{}, err
	}
	defer resp.Body.Close()
	return readList(r.lane.encoding, resp.Body, func(raw []byte) error {
		o, err := r.scanner.Item(raw, r.typed)
		if err != nil {
			return err
		}
		*objects = append(*objects, o)
		return r.room(len(raw))
	})
}

// fill makes the cache hold a list.
func (r *reflector) fill(ctx context.Context, objects []*framing.Object, rv uint64) error {
	l := r.lane
	if rv == 0 || slices.ContainsFunc(objects, func(o *framing.Object) bool { return o.ResourceVersion > rv }) {
		return fmt.Errorf("list %s: it is as of %d, and some objects are newer", l, rv)
	}
	if before := l.cache.Progress(); rv < before {
		// An etcd that was restored, or a kube-apiserver that lags behind it: the current version is etcd's own, whoever says it.
		now, err := l.currentVersion(ctx)
		if err != nil {
			return fmt.Errorf("list %s: %w", l, err)
		}
		if now >= before {
			return fmt.Errorf("list %s: as of %d, at %d after %d: %w", l, rv, now, before, errBehind)
		}
	}
	differences, err := l.cache.Replace(objects, rv, time.Now())
	if errors.Is(err, fanout.ErrReencoded) {
		l.log.Warn("Upstream writes objects differently at the same resourceVersion, all clients start anew", "err", err)
		l.metrics.reencoded.Inc()
		l.cache.Reset(objects, rv, fanout.Ending{
			Reason: fanout.Reencoded,
			Last:   errorFrame(l.encoding, expired(l.cache.Progress(), rv)),
		})
	} else if errors.Is(err, fanout.ErrBackwards) {
		l.log.Error("Upstream went back in time, all clients start anew", "err", err)
		l.metrics.resets.Inc()
		l.cache.Reset(objects, rv, fanout.Ending{
			Reason: fanout.Backwards,
			Last:   errorFrame(l.encoding, expired(l.cache.Progress(), rv)),
		})
	} else if err != nil {
		return fmt.Errorf("list %s: %w", l, err)
	}
	relisted := l.synced()
	r.relist = false
	r.compared = time.Now()
	if relisted {
		l.metrics.relists.Inc()
	} else {
		l.filling.end(r.began)
	}
	l.log.Info("Listed", "objects", len(objects), "resourceVersion", rv, "relisted", relisted, "differences", differences,
		"elapsed", time.Since(r.began).Round(time.Millisecond))
	return nil
}

// resume watches on from where the cache stands, unless upstream is not there yet: an etcd that was restored from a
// backup accepts a watch from its future and then says nothing.
func (r *reflector) resume(ctx context.Context) error {
	l := r.lane
	rv := l.cache.Progress()
	// Of several kube-apiservers one that is cut off from etcd is soon left for another; should all be slow, patience grows.
	asked, cancel := context.WithTimeout(ctx, min(answerTimeout<<r.slow, listTimeout))
	now, err := l.currentVersion(asked)
	cancel()
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			r.slow = min(r.slow+1, 3)
		}
		return fmt.Errorf("list %s: %w", l, err)
	}
	r.slow = 0
	if now < rv {
		r.relist = true
		return fmt.Errorf("watch %s from %d: upstream is at %d", l, rv, now)
	}
	return r.watch(ctx, rv)
}

// watch applies what happened behind resourceVersion rv, and what happens.
func (r *reflector) watch(ctx context.Context, rv uint64) error {
	l := r.lane
	timeout := watchTimeout()
	w := l.watchdog(ctx, timeout)
	defer w.stop()
	w.expect(listTimeout)
	resp, err := l.watch(w.ctx, query(
		"watch", "true",
		"resourceVersion", strconv.FormatUint(rv, 10),
		"allowWatchBookmarks", "true",
		"timeoutSeconds", inSecondsText(timeout),
	))
	if err != nil {
		var status *statusError
		r.relist = errors.As(err, &status) && status.expired()
		return fmt.Errorf("watch %s from %d: %w", l, rv, w.explain(err))
	}
	defer resp.Body.Close()
	w.expect(0)
	return w.explain(r.apply(framing.NewEventReader(l.encoding, resp.Body)))
}

// apply applies a watch until it ends. Whatever makes its content doubtful has the collection listed anew.
func (r *reflector) apply(lines framing.EventReader) error {
	l := r.lane
	l.metrics.watches.Inc()
	l.health.began()
	defer func() {
		l.health.ended()
		l.metrics.watches.Dec()
	}()
	var last uint64 // of this stream; the cache may have been proved to be further
	for {
		line, err := lines.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			r.relist = uncachable(err)
			return fmt.Errorf("watch %s: %w", l, err)
		}
		received := time.Now()
		l.health.heard(received)
		ev, err := r.scanner.Event(line)
		if err != nil {
			r.relist = true
			return fmt.Errorf("watch %s: %w", l, err)
		}
		switch ev.Type {
		case framing.Error:
			err := eventError(ev)
			var status *statusError
			r.relist = errors.As(err, &status) && status.expired()
			return fmt.Errorf("watch %s: %w", l, err)
		case framing.Bookmark:
			if ev.ResourceVersion < last {
				r.relist = true
				return fmt.Errorf("watch %s: bookmark %d after %d", l, ev.ResourceVersion, last)
			}
			last = ev.ResourceVersion
			l.health.bookmarked.Store(true)
			l.cache.SetBookmarkForm(ev.Form)
			l.cache.Advance(ev.ResourceVersion)
			continue
		}
		last = max(last, ev.ResourceVersion)
		l.health.changed(received)
		l.metrics.events.Inc()
		l.metrics.eventBytes.Add(len(line))
		if err := l.cache.Apply(ev, received); err != nil {
			r.relist = true
			return fmt.Errorf("watch %s: %w", l, err)
		}
	}
}

func watchTimeout() time.Duration { return minWatchTimeout + rand.N(minWatchTimeout) }

// inSecondsText returns d as timeoutSeconds has it.
func inSecondsText(d time.Duration) string { return strconv.Itoa(int(d.Seconds())) }
