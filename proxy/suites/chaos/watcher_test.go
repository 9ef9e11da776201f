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

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
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

// withList is the beginning where there are no watch-lists.
func (b beginning) withList() beginning {
	if b == byStaleWatch {
		return byStaleList
	}
	return byList
}

// manner is how a watcher reads.
type manner struct {
	name   string
	pause  time.Duration // behind each event
	stalls bool          // it stops reading when the fault of that name is on
	leaves int           // it goes away without notice after at most so many seconds; 0: never
	rests  bool          // and comes back, perhaps late

	wanders bool // its streams are short, and the next one is often at another server
}

var (
	steady   = manner{name: "steady"}
	slow     = manner{name: "slow", pause: 60 * time.Millisecond}
	stalling = manner{name: "stalling", stalls: true}
	leaving  = manner{name: "leaving", leaves: 15, rests: true}

	wandering = manner{name: "wandering", wanders: true}
	// A straying one is slow and goes in the middle of anything, as of a list's differences.
	straying = manner{name: "straying", wanders: true, pause: slow.pause, leaves: 5}
)

// watcher is a client that follows a collection, whatever happens, and checks everything that it
// receives with the oracle.
type watcher struct {
	suite  *suite
	name   string
	client *client
	at     *watchfan // the server; not if the client is straight at kube-apiserver
	begin  beginning
	manner manner
	rng    *rand.Rand
	opened time.Time // when the stream began

	elsewhere *server // where the next stream may be; nil: nowhere

	mu      sync.Mutex // guards the rest; held while an event is taken
	cursor  cursor
	synced  bool
	seen    uint64  // resourceVersion to resume from
	recent  []event // the last ones
	wanted  uint64  // a state that begins now may not be older
	resumes bool    // the stream continues behind seen, and has not brought anything yet
	failed  error   // why the last stream ended
}

// server is one that a watcher may be connected to.
type server struct {
	client   *client
	watchfan *watchfan
}

// move goes to the other server.
func (w *watcher) move() {
	w.client.close()
	w.mu.Lock()
	defer w.mu.Unlock()
	here := server{w.client, w.at}
	w.client, w.at = w.elsewhere.client, w.elsewhere.watchfan
	w.cursor.relists = w.at.relists
	*w.elsewhere = here
}

// newWatcher returns watcher n of s.watchfan. Custom resources have no protobuf of their own, and come
// as metadata.
func (s *suite) newWatcher(n int, c *client, f form, sel filter, b beginning, m manner) *watcher {
	if sel.resource == "widgets" && f.name == protobufForm.name {
		lean := f.lean
		if f = protobufMetaForm; lean {
			f = f.dropping()
		}
	}
	if !s.modern {
		b = b.withList()
	}
	also := ""
	switch {
	case c.way.gzip:
		also = ", gzip"
	case c.way.socket:
		also = ", WebSocket"
	}
	if f.lean {
		also += ", lean"
	}
	if f.quiet {
		also += ", in the quiet view"
	}
	return &watcher{suite: s, client: c, at: s.watchfan, begin: b, manner: m,
		name:   fmt.Sprintf("watcher %d (%s, %s, %s%s)", n, c.way.name, f.name, m.name, also),
		rng:    rand.New(rand.NewPCG(*seed, uint64(100+n))),
		cursor: cursor{oracle: s.oracle, form: f, filter: sel, leaps: c.way.leaps, relists: s.watchfan.relists}}
}

// run follows the collection until ctx ends.
func (w *watcher) run(ctx context.Context) {
	defer func() {
		w.client.close()
		if w.elsewhere != nil {
			w.elsewhere.client.close()
		}
	}()
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
		if time.Since(began) > 2*time.Second { //testlint:allow elapsed a client's own pace
			wait = neverMoreThan
		}
		rest := wait/2 + time.Duration(w.rng.Int64N(int64(wait)))
		if w.manner.rests && !w.suite.calm.Load() && errors.Is(err, errLeft) {
			rest = time.Duration(w.rng.Int64N(int64(8 * time.Second)))
			if w.rng.IntN(4) == 0 {
				rest += 25 * time.Second // long enough for a lane to stop
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
		pause(ctx, rest)
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
		"timeoutSeconds": {strconv.Itoa(w.suite.work.lasts + w.rng.IntN(w.suite.work.longer))}}
	if w.manner.wanders {
		query.Set("timeoutSeconds", strconv.Itoa(1+w.rng.IntN(8)))
	}
	if w.elsewhere != nil && w.rng.IntN(3) > 0 {
		w.move()
	}
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
	w.suite.counts.add("watches asked for")
	f := w.cursor.filter
	f.ask(query)
	begin := moment()
	resp, err := w.client.open(ctx, http.MethodGet, collection(f.resource, f.namespace)+"?"+query.Encode(), w.cursor.form.accept, "")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return w.refused(resp.StatusCode, resp.Body)
	}
	if err := w.suite.kept(f, !proxytest.FromCache(resp.Header), begin); err != nil {
		return err
	}
	w.suite.counts.add("streams")
	w.opened = time.Now()
	w.suite.record.watch(w.name, begin, f.scope(w.cursor.form), query.Get("resourceVersion"),
		query.Get("sendInitialEvents") != "")
	body := proxytest.Uncompressed(resp)
	if resp.Header.Get("Content-Encoding") == "gzip" {
		w.suite.counts.add("streams with gzip")
	}
	if w.client.way.socket {
		w.suite.counts.add("streams over WebSockets")
	}
	if most := w.manner.leaves; most > 0 {
		leave := time.AfterFunc(time.Duration(1+w.rng.IntN(most))*time.Second, func() { //testlint:allow timer a client's own pace
			if !w.suite.calm.Load() {
				w.suite.counts.add("streams left")
				cancel(errLeft)
			}
		})
		defer leave.Stop()
	}
	in := newEventReader(w.cursor.form, body, w.cursor.form.lean && proxytest.FromCache(resp.Header))
	in.untold = in.lean && w.client.way.socket // a handshake has no such header
	err = w.read(ctx, in)
	switch {
	case in.untold || !w.cursor.form.lean:
	case in.lean:
		w.suite.counts.add("streams without managedFields")
	default:
		w.suite.counts.add("streams with managedFields, against the wish")
	}
	w.suite.record.end(w.name, err)
	return err
}

// refused returns the error for an answer other than 200. It is a violation only if watchfan calls
// the request wrong: a starting kube-apiserver may refuse clients that it does not know yet, and
// not know a custom resource.
func (w *watcher) refused(status int, body io.Reader) error {
	content, _ := io.ReadAll(io.LimitReader(body, 2000)) // only shown
	err := fmt.Errorf("%d: %s", status, content)
	switch {
	case status == http.StatusGone:
		w.suite.counts.add("answers and events 410")
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
	as, rv := jsonForm, "" // a list holds the same in each form
	if w.cursor.form.metadata() {
		as = jsonMetaForm
	}
	if w.cursor.form.lean {
		as = as.dropping()
	}
	as.quiet = w.cursor.form.quiet
	if w.begin == byStaleList {
		rv = "0"
	}
	l, err := w.suite.list(ctx, w.name, w.client, w.cursor.filter, as, rv, 0)
	if err != nil {
		return err
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
			w.suite.stalled.Add(1)
			w.suite.gate.RLock()
			w.suite.stalled.Add(-1)
			w.suite.gate.RUnlock()
		}
		if w.manner.pause > 0 && !w.suite.calm.Load() {
			pause(ctx, w.manner.pause)
		}
		e, err := in.next()
		var wrong *violation
		switch {
		case errors.As(err, &wrong):
			return wrong
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case err == io.EOF:
			w.suite.counts.add("streams ended")
			return err
		case err != nil:
			w.suite.counts.add("streams cut")
			return err
		}
		w.measure(e)
		if err := w.take(e, &initial); err != nil {
			return err
		}
	}
}

func (w *watcher) take(e event, initial *[]event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cursor.explained = 0
	defer func() { w.suite.record.event(w.name, e, w.cursor.form.lean, w.cursor.explained, w.cursor.leap != nil) }()
	if w.recent = append(w.recent, e); len(w.recent) > eventsReported {
		w.recent = w.recent[1:]
	}
	switch {
	case e.typ == "ERROR":
		w.suite.counts.add("ERROR events")
		if e.code == http.StatusGone {
			w.suite.counts.add("answers and events 410")
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
		if err := w.suite.oracle.state(w.cursor.form, w.cursor.filter, *initial, e.rv, w.cursor.leaps); err != nil {
			return &violation{fmt.Errorf("initial events: %w", err)}
		}
		w.cursor.begin(e.rv)
		w.synced, w.seen = true, e.rv
		return nil
	case e.end:
		return &violation{fmt.Errorf("%s, again", e)}
	}
	if w.resumes { // This stream did not begin with an ERROR.
		// If seen belongs to a difference of a list, a server that knows nothing of the list sends what
		// happened since: every removal before it was sent already.
		w.resumes = false
		w.cursor.begin(w.seen)
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

// began reports whether the watcher knows a state.
func (w *watcher) began() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.synced
}

// awaitBegun waits until all of them know a state, except those that come and go.
func awaitBegun(all []*watcher) error {
	for _, w := range all {
		if !w.manner.rests && !await(patience, w.began) {
			return fmt.Errorf("%s has not begun: %s", w.name, w.story())
		}
	}
	return nil
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
