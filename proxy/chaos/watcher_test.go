package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// beginning is how a watcher gets the state from which it watches.
type beginning string

const (
	byList         beginning = "list"              // a list, then a watch from its resourceVersion
	byStaleList    beginning = "list at 0"         // the same, of any state
	byWatchList    beginning = "watch-list"        // initial events, as new as the request
	byStaleWatch   beginning = "watch-list from 0" // initial events of any state
	byForgetting   beginning = "watch-list, never resumed"
	neverMoreThan            = 100 * time.Millisecond // between two attempts at first
	atMostBetween            = 2 * time.Second
	eventsReported           = 15
)

// manner is how a watcher reads.
type manner struct {
	name   string
	pause  time.Duration // behind each event
	stalls bool          // it stops reading when the fault of that name is on
	leaves bool          // it goes away without notice, and comes back, perhaps late
}

var (
	steady   = manner{name: "steady"}
	slow     = manner{name: "slow", pause: 60 * time.Millisecond}
	stalling = manner{name: "stalling", stalls: true}
	leaving  = manner{name: "leaving", leaves: true}
)

// watcher is a client that follows a collection, whatever happens, and checks everything that it
// receives with the oracle.
type watcher struct {
	suite  *suite
	name   string
	client *client
	begin  beginning
	manner manner
	rng    *rand.Rand

	mu      sync.Mutex // guards the rest; held while an event is taken
	cursor  cursor
	synced  bool
	seen    uint64  // resourceVersion to resume from
	recent  []event // the last ones
	wanted  uint64  // a state that begins now may not be older
	resumes bool    // the stream continues behind seen, and has not brought anything yet
	failed  error   // why the last stream ended
}

// run follows the collection until ctx ends.
func (w *watcher) run(ctx context.Context) {
	defer w.client.close()
	wait := neverMoreThan
	for ctx.Err() == nil {
		began := time.Now()
		err := w.once(ctx)
		var wrong *violation
		if errors.As(err, &wrong) && ctx.Err() == nil {
			w.suite.violate(w.name, wrong.err, w.story())
			w.mu.Lock()
			w.synced = false
			w.mu.Unlock()
		}
		if time.Since(began) > 2*time.Second {
			wait = neverMoreThan
		}
		pause := wait/2 + time.Duration(w.rng.Int64N(int64(wait)))
		if w.manner.leaves && !w.suite.calm.Load() && errors.Is(err, errLeft) {
			pause = time.Duration(w.rng.Int64N(int64(8 * time.Second)))
			if w.rng.IntN(4) == 0 {
				pause += 25 * time.Second // long enough for a lane to stop
			}
			if w.rng.IntN(2) == 0 {
				w.mu.Lock()
				w.synced = false
				w.mu.Unlock()
			}
		}
		w.mu.Lock()
		w.failed = err
		w.mu.Unlock()
		proxytest.Sleep(ctx, pause)
		wait = min(2*wait, atMostBetween)
	}
}

// violation is an error that only a mistake of the server causes.
type violation struct{ err error }

func (v *violation) Error() string { return v.err.Error() }

var errLeft = errors.New("left")

// once lists, if it has to, and watches until the stream ends.
func (w *watcher) once(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	query := url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"},
		"timeoutSeconds": {strconv.Itoa(20 + w.rng.IntN(100))}}
	w.mu.Lock()
	if w.begin == byForgetting {
		w.synced = false
	}
	synced := w.synced
	w.wanted, w.resumes = 0, synced
	w.mu.Unlock()
	switch {
	case synced:
		query.Set("resourceVersion", strconv.FormatUint(w.seen, 10))
	case w.begin == byList || w.begin == byStaleList:
		if err := w.list(ctx); err != nil {
			return err
		}
		query.Set("resourceVersion", strconv.FormatUint(w.seen, 10))
	default:
		query.Set("sendInitialEvents", "true")
		query.Set("resourceVersionMatch", "NotOlderThan")
		if w.begin == byStaleWatch {
			query.Set("resourceVersion", "0")
		} else {
			w.wanted = w.suite.acknowledged(w.cursor.filter.resource)
		}
	}
	w.suite.counts.watches.Add(1)
	f := w.cursor.filter
	w.selectors(query)
	resp, err := w.client.open(ctx, http.MethodGet, collection(f.resource, f.namespace), query,
		w.cursor.form.accept, "", "")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return w.refused(resp.StatusCode, resp.Body)
	}
	w.suite.counts.streams.Add(1)
	body := resp.Body
	if resp.Header.Get("Content-Encoding") == "gzip" {
		body = proxytest.NewMemberReader(body)
		w.suite.counts.zipped.Add(1)
	}
	if w.manner.leaves {
		leave := time.AfterFunc(time.Duration(1+w.rng.IntN(15))*time.Second, func() {
			if !w.suite.calm.Load() {
				w.suite.counts.vanished.Add(1)
				if w.client.shared { // the others stay
					cancel(errLeft)
				} else {
					w.client.vanish()
				}
			}
		})
		defer leave.Stop()
	}
	return w.read(ctx, newEventReader(w.cursor.form, body))
}

func (w *watcher) selectors(query url.Values) {
	if s := w.cursor.filter.labels.String(); s != "" {
		query.Set("labelSelector", s)
	}
	if s := w.cursor.filter.fields.String(); s != "" {
		query.Set("fieldSelector", s)
	}
}

// refused returns the error for an answer other than 200. It is a violation only if watchfan calls
// the request wrong: a starting kube-apiserver may refuse clients that it does not know yet, and
// not know a custom resource.
func (w *watcher) refused(status int, body io.Reader) error {
	content, _ := io.ReadAll(io.LimitReader(body, 2000)) // only shown
	err := fmt.Errorf("%d: %s", status, content)
	switch {
	case status == http.StatusGone:
		w.suite.counts.expired.Add(1)
		w.mu.Lock()
		w.synced = false
		w.mu.Unlock()
	case status == http.StatusBadRequest || status == http.StatusUnprocessableEntity ||
		status == http.StatusNotAcceptable:
		return &violation{err}
	}
	return err
}

// list begins with a list.
func (w *watcher) list(ctx context.Context) error {
	query := make(url.Values)
	w.selectors(query)
	wanted := uint64(0)
	if w.begin == byStaleList {
		query.Set("resourceVersion", "0")
	} else {
		wanted = w.suite.acknowledged(w.cursor.filter.resource)
	}
	f := w.cursor.filter
	as := jsonForm // a list holds the same in each form
	if w.cursor.form.metadata() {
		as = jsonMetaForm
	}
	status, body, err := w.client.get(ctx, collection(f.resource, f.namespace), query, as.lists())
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("%d: %.300s", status, body)
	}
	w.suite.counts.reads.Add(1)
	l, err := parseList(as, body)
	if err != nil {
		return &violation{err}
	}
	if l.rv < wanted {
		return &violation{fmt.Errorf("a consistent list is as of %d, and %d had been acknowledged before the request",
			l.rv, wanted)}
	}
	if err := w.suite.oracle.state(as, f, l.items, l.rv, w.client.way.leaps); err != nil {
		return &violation{fmt.Errorf("list: %w", err)}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cursor.begin(l.rv)
	w.synced, w.seen, w.recent = true, l.rv, nil
	return nil
}

// read takes the events of one stream.
func (w *watcher) read(ctx context.Context, in *eventReader) error {
	var initial []event
	for {
		if w.manner.stalls {
			w.suite.gate.pass(ctx)
		}
		if w.manner.pause > 0 && !w.suite.calm.Load() {
			proxytest.Sleep(ctx, w.manner.pause)
		}
		e, err := in.next()
		var wrong *violation
		switch {
		case errors.As(err, &wrong):
			return wrong
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case err == io.EOF:
			w.suite.counts.ended.Add(1)
			return err
		case err != nil && w.manner.leaves:
			return fmt.Errorf("%w: %w", errLeft, err)
		case err != nil:
			w.suite.counts.cut.Add(1)
			return err
		}
		if err := w.take(e, &initial); err != nil {
			return err
		}
	}
}

func (w *watcher) take(e event, initial *[]event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.recent = append(w.recent, e); len(w.recent) > eventsReported {
		w.recent = w.recent[1:]
	}
	switch {
	case e.typ == "ERROR":
		w.suite.counts.errors.Add(1)
		if e.code == http.StatusGone {
			w.suite.counts.expired.Add(1)
			w.synced = false
		}
		if e.code < 400 {
			return &violation{fmt.Errorf("%s", e)}
		}
		return errors.New(e.message)
	case !w.synced && !e.end:
		*initial = append(*initial, e)
		return nil
	case !w.synced:
		if e.rv < w.wanted {
			return &violation{fmt.Errorf("initial events are as of %d, and %d had been acknowledged before the request",
				e.rv, w.wanted)}
		}
		if err := w.cursor.initial(*initial, e.rv); err != nil {
			return &violation{fmt.Errorf("initial events: %w", err)}
		}
		w.synced, w.seen = true, e.rv
		return nil
	case e.end:
		return &violation{fmt.Errorf("%s, again", e)}
	}
	if w.resumes { // this stream did not begin with an ERROR
		w.resumes = false
		w.cursor.resume(w.seen)
	}
	if err := w.cursor.take(e); err != nil {
		return &violation{err}
	}
	w.seen = e.rv
	return nil
}

// story tells what the watcher received last.
func (w *watcher) story() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("%s, %s; it knows everything up to %d, would resume from %d, and received last %v; its last stream ended with %v", w.cursor.filter, w.begin, w.cursor.last, w.seen, w.recent, w.failed)
}

// settled returns an error unless the watcher has received everything.
func (w *watcher) settled() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.synced {
		return fmt.Errorf("%s has not begun again: %w", w.name, w.failed)
	}
	if err := w.cursor.settled(); err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	return nil
}

// reached reports whether the watcher has received the change at rv, which it selects.
func (w *watcher) reached(rv uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.synced && w.cursor.last >= rv
}
