package fanout_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// rows is an events-only cache of Tables with a running Flusher, and what upstream has sent.
type rows struct {
	*world
	sent []row
}

// row is one event of a watch in Tables.
type row struct {
	typ, namespace, name string
	rv                   uint64
}

const columnDefinitions = `[{"name":"Name"},{"name":"Age"}]`

// line returns the event as a client reads it. The first event of a client has columns.
func (e row) line(columns string) string {
	own, meta := fmt.Sprintf(`"resourceVersion":"%d"`, e.rv), ""
	if e.name != "" {
		meta = fmt.Sprintf(`"name":%q,"namespace":%q,`, e.name, e.namespace)
	}
	return fmt.Sprintf(`{"type":%q,"object":{"kind":"Table","metadata":{%s},"columnDefinitions":%s,"rows":[{"cells":[%q,"5s"],"object":{"metadata":{%s%s}}}]}}`+"\n",
		e.typ, own, columns, e.name, meta, own)
}

// newRows returns an events-only cache that begins at resourceVersion 100.
func newRows(t *testing.T, limits fanout.Limits) *rows {
	flusher := newFlusher(2)
	w := &rows{world: &world{t: t, cache: fanout.NewEventsOnly(limits, flusher), flusher: flusher}}
	run(t, flusher)
	w.cache.Reset(nil, 100, fanout.Ending{})
	return w
}

// send applies an event of the upstream watch.
func (w *rows) send(typ, namespace, name string, rv uint64) error {
	w.t.Helper()
	columns := "null"
	if len(w.sent) == 0 {
		columns = columnDefinitions
	}
	e := row{typ, namespace, name, rv}
	ev := e.scan(w.t, columns)
	w.sent = append(w.sent, e)
	if ev.Columns.Known() && !w.cache.SetColumns(ev.Columns) {
		w.t.Fatal("columns were refused")
	}
	if ev.Type == framing.Bookmark {
		w.cache.SetBookmarkForm(ev.Form)
		w.cache.Advance(ev.ResourceVersion)
		return nil
	}
	return w.cache.Apply(ev, time.Now())
}

func (w *rows) mustSend(typ, namespace, name string, rv uint64) {
	w.t.Helper()
	if err := w.send(typ, namespace, name, rv); err != nil {
		w.t.Fatal(err)
	}
}

// scan reads an event of Tables.
func (e row) scan(t testing.TB, columns string) framing.Event {
	t.Helper()
	ev, err := framing.NewTableScanner().Event([]byte(e.line(columns)))
	if err != nil {
		t.Fatal(err)
	}
	return ev
}

// linesOf returns what a client gets of some events.
func linesOf(events ...row) (lines []string) {
	columns := columnDefinitions
	for _, e := range events {
		lines = append(lines, e.line(columns))
		columns = "null"
	}
	return lines
}

// A bookmark that is the first event has the columns, and the event after it does not.
func TestEventsOnlyBookmark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRows(t, roomy)
		_, r := w.client(everything(t), fanout.Request{Start: fanout.FromVersion, ResourceVersion: 100, Bookmarks: true})
		w.mustSend("BOOKMARK", "", "", 110)
		time.Sleep(time.Minute + time.Second)
		w.mustSend("ADDED", "a", "x", 111)
		r.wantLines(t, linesOf(w.sent[0], w.sent[1])...)
		sub, last := w.client(everything(t), fanout.Request{Start: fanout.FromNow, Bookmarks: true})
		sub.End(fanout.Ending{Reason: fanout.ShutDown, Graceful: true})
		last.wantEnd(t, fanout.ShutDown, true)
		last.wantLines(t, linesOf(row{"BOOKMARK", "", "", 111})...)
	})
}

// What a cache without objects can't answer is refused.
func TestEventsOnlyRefuses(t *testing.T) {
	w := newRows(t, roomy)
	f := func(s selector, start fanout.Start, want error) {
		t.Helper()
		w.begins(s, fanout.Request{Start: start, ResourceVersion: 100}, want)
	}
	f(everything(t), fanout.FromNow, nil)
	f(sel(t, "a", "", "metadata.name!=x"), fanout.FromVersion, nil)
	f(everything(t), fanout.FromSnapshot, fanout.ErrEventsOnly)
	f(sel(t, "", "l=1", ""), fanout.FromNow, fanout.ErrEventsOnly)
	f(sel(t, "", "", "spec.node=n"), fanout.FromVersion, fanout.ErrEventsOnly)
	if sel(t, "a", "l=1", "").filter(t).Fixed() || !sel(t, "a", "", "metadata.name=x").filter(t).Fixed() {
		t.Error("Fixed is wrong")
	}
}

// Rows have ages, so only new ones are replayed.
func TestEventsOnlyMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRows(t, roomy)
		f := func(s selector, rv uint64, want error) {
			t.Helper()
			w.begins(s, fanout.Request{Start: fanout.FromVersion, ResourceVersion: rv, MaxAge: time.Second}, want)
		}
		w.mustSend("ADDED", "a", "x", 101)
		time.Sleep(time.Second)
		f(everything(t), 100, nil)
		w.mustSend("ADDED", "b", "y", 102)
		time.Sleep(time.Millisecond)
		f(everything(t), 100, fanout.ErrStale)
		f(sel(t, "a", "", ""), 100, fanout.ErrStale)
		f(sel(t, "b", "", ""), 100, nil) // x is none of its objects
		f(everything(t), 101, nil)
		time.Sleep(time.Second)
		f(everything(t), 101, fanout.ErrStale)
		f(everything(t), 102, nil)

		if !w.cache.Extend([]framing.Event{row{"DELETED", "c", "z", 95}.scan(t, "null")}, 90, 100) {
			t.Fatal("history was not extended")
		}
		f(sel(t, "c", "", ""), 90, nil) // it has just been fetched
		time.Sleep(1001 * time.Millisecond)
		f(sel(t, "c", "", ""), 90, fanout.ErrStale)
	})
}

// Several objects may be deleted at one resourceVersion, each once. Everything else comes in order.
func TestEventsOnlySharedRevision(t *testing.T) {
	w := newRows(t, roomy)
	_, r := w.client(everything(t), fanout.Request{Start: fanout.FromNow})
	w.mustSend("DELETED", "a", "x", 101)
	w.mustSend("DELETED", "a", "y", 101)
	r.wantLines(t, linesOf(w.sent...)...)
	for _, e := range []row{{"DELETED", "a", "x", 101}, {"MODIFIED", "a", "z", 101}, {"ADDED", "a", "z", 99}} {
		if err := w.send(e.typ, e.namespace, e.name, e.rv); !errors.Is(err, fanout.ErrBackwards) {
			t.Errorf("%v: %v, want %v", e, err, fanout.ErrBackwards)
		}
	}
}

// Clients that begin at any place while events come miss nothing, get nothing twice, and get the
// columns once.
func TestEventsOnlyStress(t *testing.T) {
	const events, clients = 1000, 40
	w := newRows(t, roomy)
	names := []string{"x", "y", "z"}
	w.mustSend("ADDED", "a", "x", 101)
	type client struct {
		*recorder
		selector
		from uint64
	}
	var all []client
	for rv := uint64(102); rv < 102+events; rv++ {
		w.mustSend([]string{"ADDED", "MODIFIED", "DELETED"}[rv%3], string("ab"[rv%2]), names[rv%5%3], rv)
		if rv%(events/clients) != 0 {
			continue
		}
		c := client{selector: []selector{everything(t), sel(t, "a", "", ""), sel(t, "b", "", "metadata.name=x")}[len(all)%3]}
		r := resume(100 + uint64(len(all)*7)%(rv-90)) // some are in the future
		if c.from = r.ResourceVersion; len(all)%5 == 0 {
			r.Start, c.from = fanout.FromNow, rv
		}
		r.Gzip = len(all)%2 == 0
		_, c.recorder = w.client(c.selector, r)
		all = append(all, c)
	}
	if s := w.cache.Stats(); s.Objects != 0 || s.Bytes != 0 || s.HistoryEvents != len(w.sent) {
		t.Errorf("it keeps %d objects in %d bytes, and %d events", s.Objects, s.Bytes, s.HistoryEvents)
	}
	for _, c := range all {
		var want []row
		for _, e := range w.sent {
			if e.rv > c.from && c.selector.matches(&thing{namespace: e.namespace, name: e.name}) {
				want = append(want, e)
			}
		}
		c.wantLines(t, linesOf(want...)...)
	}
}

// Other columns end the subscriptions. Those that begin after that get the new ones.
func TestEventsOnlyColumns(t *testing.T) {
	w := newRows(t, roomy)
	_, old := w.client(everything(t), fanout.Request{Start: fanout.FromNow})
	w.mustSend("ADDED", "a", "x", 101)
	old.wantLines(t, linesOf(w.sent...)...)
	ev := row{"ADDED", "a", "y", 102}.scan(t, `[{"name":"Other"}]`)
	if w.cache.SetColumns(ev.Columns) {
		t.Fatal("other columns were accepted")
	}
	w.cache.ResetColumns(ev.Columns, 101, fanout.Ending{Reason: fanout.Redefined})
	old.wantEnd(t, fanout.Redefined, true)
	_, r := w.client(everything(t), resume(101))
	if err := w.cache.Apply(ev, time.Now()); err != nil {
		t.Fatal(err)
	}
	r.wantLines(t, row{"ADDED", "a", "y", 102}.line(`[{"name":"Other"}]`))
	if lines := old.lines(t); len(lines) != 1 || strings.Contains(lines[0], "Other") {
		t.Errorf("a client of the old columns got %s", lines)
	}
}
