package lane

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
	"github.com/watchfan/watchfan/proxy/apistatus"
	"github.com/watchfan/watchfan/proxy/upstream"
)

// reflector follows one resource upstream. It fills the lane's cache from a list, then applies what
// the watch brings. After a broken watch it resumes from the last resourceVersion. Where upstream
// has lost the history, it lists once more and compares the list with the cache: only the
// differences go to clients, whose streams stay open.
type reflector struct {
	lane    *Lane
	scanner framing.Scanner
	backoff time.Duration // before the next attempt, at least

	relist bool      // the cache can't be brought up to date by a watch
	began  time.Time // when the list that is under way was asked for
	slow   int       // how often in a row upstream has not said in time at which resourceVersion it is
	typed  []byte
	unseen int // bytes listed since memory was last looked at

	// See reencoded.
	build              upstream.Build // that wrote what the cache was filled with
	compared, refilled time.Time      // when the cache was last compared with what upstream writes, and when it was listed for that reason
}

// Times of the reflector. The watch timeout is client-go's range
// (client-go/tools/cache/reflector.go, minWatchTimeout).
const (
	minWatchTimeout = 5 * time.Minute
	minBackoff      = 100 * time.Millisecond
	maxBackoff      = 5 * time.Second
	listPage        = "500"
	listTimeout     = time.Minute      // for a page of a list, for a watch to begin, or for initial events to go on
	answerTimeout   = 10 * time.Second // for the current resourceVersion, at first
	beginTimeout    = 3 * time.Second  // for which requests wait while upstream says that it is busy
)

// run follows the resource until ctx ends, upstream no longer serves it, or it can't be cached.
// Then it returns how long the lane stays in quarantine.
func (r *reflector) run(ctx context.Context) (quarantine time.Duration) {
	l := r.lane
	started := time.Now()
	l.Log.Info("Started lane")
	r.backoff = minBackoff
	hung := false // upstream is there, and did not do what was asked of it
	for {
		if hung {
			l.lanes.reconnect(ctx)
		}
		a := attempt{began: time.Now(), progress: l.Cache.Progress(), relisting: r.relist}
		a.err = r.follow(ctx)
		if ctx.Err() != nil || !a.status().beginning() || time.Since(started) > beginTimeout {
			l.Filling.fail(ctx.Err() == nil && troubled(a.err))
		}
		if ctx.Err() != nil {
			l.Log.Info("Stopped lane", "elapsed", time.Since(started).Round(time.Second))
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
		l.Metrics.breaks.Inc()
		l.Health.failed(o.err, r.relist)
		l.Log.Warn("Upstream watch broke", "err", o.err, "relist", r.relist, "retryIn", o.wait.Round(time.Millisecond))
		r.backoff = min(r.backoff*2, maxBackoff)
		Sleep(ctx, o.wait)
	}
}

var (
	errBehind = errors.New("upstream listed what is older than what it has shown")
	errNoRoom = errors.New("memory is full")
)

// roomEvery is after how many bytes of a list memory is looked at. In a second, a list could take
// more memory than is left between where memory counts as full and where the process is killed.
const roomEvery = 1 << 20

// room notes n bytes of a list that is being read, and returns errNoRoom if memory is full. A
// relist needs as much memory again as the cache has. Without it the clients would keep an old
// state, so the lane ends, which makes room.
func (r *reflector) room(n int) error {
	r.lane.Filling.progress()
	if r.unseen += n; r.unseen < roomEvery {
		return nil
	}
	r.unseen = 0
	if full := r.lane.lanes.Full; full != nil && full() {
		return errNoRoom
	}
	return nil
}

// follow brings the cache up to date and applies one upstream watch. nil means that the watch came
// to a proper end.
func (r *reflector) follow(ctx context.Context) error {
	l := r.lane
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.breaker.arm(cancel)
	if l.Form.Load() == nil {
		if err := r.learnForm(ctx); err != nil {
			return err
		}
	}
	if l.breaker.relist.Swap(false) {
		r.relist = true
	}
	if l.Cache.Progress() != 0 && !r.relist {
		if r.relist = r.reencoded(ctx); !r.relist {
			return r.resume(ctx)
		}
	}
	l.Filling.inLine.Store(true)
	listed, err := l.lanes.turns.take(ctx)
	l.Filling.inLine.Store(false)
	l.Filling.progress()
	if err != nil {
		return err
	}
	defer listed()
	r.began = time.Now()
	r.build = l.lanes.builds.Of(ctx, l.GVR.GroupVersion())
	err = r.watchList(ctx, listed)
	if errors.Is(err, ErrNoWatchList) {
		if err := r.list(ctx); err != nil {
			return err
		}
		listed()
		return r.watch(ctx, l.Cache.Progress())
	}
	return err
}

// learnForm asks for an empty list, to see how upstream writes it.
func (r *reflector) learnForm(ctx context.Context) error {
	l := r.lane
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	resp, err := l.list(ctx, upstream.Query("resourceVersion", "0", "fieldSelector", upstream.MatchesNothing))
	if err != nil {
		return fmt.Errorf("list %s: %w", l, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, framing.MaxEvent))
	if err != nil {
		return fmt.Errorf("list %s: %w", l, err)
	}
	form, _, err := framing.ParseListForm(l.Encoding, body)
	if err != nil {
		return fmt.Errorf("list %s: %w", l, err)
	}
	r.typed = form.TypeMeta(l.Info.Kind)
	warnings := resp.Header.Values("Warning")
	l.warnings.Store(&warnings)
	l.Form.Store(&form)
	return nil
}

var ErrNoWatchList = errors.New("upstream does not serve sendInitialEvents")

// watchList fills the cache from the initial events of a watch, calls listed, then applies what
// follows on the same stream.
func (r *reflector) watchList(ctx context.Context, listed func()) error {
	l := r.lane
	timeout := watchTimeout()
	w := l.watchdog(ctx, timeout)
	defer w.stop()
	w.expect(listTimeout)
	resp, err := l.watch(w.ctx, upstream.Query(
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
			return ErrNoWatchList
		}
		return fmt.Errorf("watch %s: %w", l, err)
	}
	defer resp.Body.Close()
	lines := framing.NewEventReader(l.Encoding, resp.Body)

	w.expect(listTimeout)
	objects, end, err := r.initialEvents(lines, w)
	if err != nil {
		return err
	}
	w.expect(0)
	l.WatchList.Store(true)
	l.Cache.SetBookmarkForm(end.Form)
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
	resp, err := r.lane.list(ctx, upstream.Query("limit", listPage, "continue", token))
	if err != nil {
		return framing.ListMeta{}, err
	}
	defer resp.Body.Close()
	return readList(r.lane.Encoding, resp.Body, func(raw []byte) error {
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
	if before := l.Cache.Progress(); rv < before {
		// An etcd that was restored, or a kube-apiserver that lags behind it: the current version
		// is etcd's own, whoever says it.
		now, err := l.currentVersion(ctx)
		if err != nil {
			return fmt.Errorf("list %s: %w", l, err)
		}
		if now >= before {
			return fmt.Errorf("list %s: as of %d, at %d after %d: %w", l, rv, now, before, errBehind)
		}
	}
	differences, err := l.Cache.Replace(objects, rv, time.Now())
	if errors.Is(err, fanout.ErrReencoded) {
		l.Log.Warn("Upstream writes objects differently at the same resourceVersion, all clients start anew", "err", err)
		l.Metrics.reencoded.Inc()
		l.Cache.Reset(objects, rv, fanout.Ending{
			Reason: fanout.Reencoded,
			Last:   apistatus.ErrorFrame(l.Encoding, apistatus.Expired(l.Cache.Progress(), rv)),
		})
	} else if errors.Is(err, fanout.ErrBackwards) {
		l.Log.Error("Upstream went back in time, all clients start anew", "err", err)
		l.Metrics.resets.Inc()
		l.Cache.Reset(objects, rv, fanout.Ending{
			Reason: fanout.Backwards,
			Last:   apistatus.ErrorFrame(l.Encoding, apistatus.Expired(l.Cache.Progress(), rv)),
		})
	} else if err != nil {
		return fmt.Errorf("list %s: %w", l, err)
	}
	relisted := l.Synced()
	r.relist = false
	r.compared = time.Now()
	if relisted {
		l.Metrics.relists.Inc()
	} else {
		l.Filling.end(r.began)
	}
	l.Log.Info("Listed", "objects", len(objects), "resourceVersion", rv, "relisted", relisted, "differences", differences,
		"elapsed", time.Since(r.began).Round(time.Millisecond))
	return nil
}

// resume watches on from where the cache stands, unless upstream is not there yet: an etcd that was
// restored from a backup accepts a watch from its future and then says nothing.
func (r *reflector) resume(ctx context.Context) error {
	l := r.lane
	rv := l.Cache.Progress()
	// Of several kube-apiservers one that is cut off from etcd is soon left for another; should all
	// be slow, patience grows.
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
	resp, err := l.watch(w.ctx, upstream.Query(
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
	return w.explain(r.apply(framing.NewEventReader(l.Encoding, resp.Body)))
}

// apply applies a watch until it ends. Whatever makes its content doubtful has the collection
// listed anew.
func (r *reflector) apply(lines framing.EventReader) error {
	l := r.lane
	l.Metrics.watches.Inc()
	l.Health.began()
	defer func() {
		l.Health.ended()
		l.Metrics.watches.Dec()
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
		l.Health.heard(received)
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
			l.Health.bookmarked.Store(true)
			l.Cache.SetBookmarkForm(ev.Form)
			l.Cache.Advance(ev.ResourceVersion)
			continue
		}
		last = max(last, ev.ResourceVersion)
		l.Health.changed(received)
		l.Metrics.events.Inc()
		l.Metrics.eventBytes.Add(len(line))
		if err := l.Cache.Apply(ev, received); err != nil {
			r.relist = true
			return fmt.Errorf("watch %s: %w", l, err)
		}
	}
}

func watchTimeout() time.Duration { return minWatchTimeout + rand.N(minWatchTimeout) }

// inSecondsText returns d as timeoutSeconds has it.
func inSecondsText(d time.Duration) string { return strconv.Itoa(int(d.Seconds())) }
