package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// event is one line of a watch.
type event struct {
	typ  string
	rv   uint64
	key  string // namespace/name, or name
	uid  string
	line string // the bytes, newline included
	end  bool   // the bookmark that ends the initial events
	at   time.Time
}

// parsed are the events that any recording has read. Most recordings have the same lines as others.
var parsed = struct {
	sync.RWMutex
	events map[string]event
}{events: make(map[string]event)}

func parseEvent(line []byte) (event, error) {
	parsed.RLock()
	ev, ok := parsed.events[string(line)]
	parsed.RUnlock()
	if !ok {
		var err error
		if ev, err = decodeEvent(line); err != nil {
			return event{}, err
		}
		parsed.Lock()
		parsed.events[ev.line] = ev
		parsed.Unlock()
	}
	ev.at = time.Now()
	return ev, nil
}

func decodeEvent(line []byte) (event, error) {
	var e struct {
		Type   string
		Object struct {
			Metadata struct {
				Namespace, Name, UID, ResourceVersion string
				Annotations                           map[string]string
			}
		}
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return event{}, fmt.Errorf("event %.300q: %w", line, err)
	}
	meta := e.Object.Metadata
	ev := event{typ: e.Type, key: meta.Name, uid: meta.UID, line: string(line),
		end: meta.Annotations["k8s.io/initial-events-end"] == "true"}
	if meta.Namespace != "" {
		ev.key = meta.Namespace + "/" + meta.Name
	}
	if e.Type != "ERROR" {
		var err error
		if ev.rv, err = strconv.ParseUint(meta.ResourceVersion, 10, 64); err != nil {
			return event{}, fmt.Errorf("event %.300q: %w", line, err)
		}
	}
	return ev, nil
}

func (e event) String() string { return fmt.Sprintf("%s %s@%d", e.typ, e.key, e.rv) }

// recording is a watch and everything that it brought.
type recording struct {
	target *target
	uri    string
	cancel context.CancelFunc
	done   chan struct{} // closed when the stream has ended

	status int
	header http.Header
	opened time.Time
	headed time.Time // when the response head arrived

	mu     sync.Mutex
	events []event
	err    error // nil after a proper end
	ended  time.Time
}

// watch begins a watch and records it until it or the test ends. It returns when the response head
// is there.
func (d *target) watch(t testing.TB, uri string) *recording {
	t.Helper()
	r, err := d.tryWatch(t.Context(), uri, nil)
	if err != nil {
		t.Fatalf("watch %s at %s: %v", uri, d.name, err)
	}
	return r
}

func (d *target) tryWatch(ctx context.Context, uri string, header http.Header) (*recording, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &recording{target: d, uri: uri, cancel: cancel, done: make(chan struct{}), opened: time.Now()}
	resp, err := d.open(ctx, http.MethodGet, uri, header, "")
	if err != nil {
		cancel()
		return nil, err
	}
	r.headed = time.Now()
	r.status, r.header = resp.StatusCode, resp.Header
	body := resp.Body
	if d.gzip && resp.Header.Get("Content-Encoding") == "gzip" {
		body = proxytest.NewMemberReader(body)
	}
	go func() {
		defer body.Close()
		defer cancel()
		r.read(body)
	}()
	return r, nil
}

func (r *recording) read(body io.Reader) {
	defer close(r.done)
	in := proxytest.NewEventReader(body, false)
	for {
		line, err := in.Next()
		var ev event
		if err == nil && r.status == http.StatusOK {
			ev, err = parseEvent(line)
		}
		r.mu.Lock()
		switch {
		case err == nil:
			r.events = append(r.events, ev)
		case err == io.EOF:
			r.ended = time.Now()
		default:
			r.err, r.ended = err, time.Now()
		}
		r.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// all returns what has come so far.
func (r *recording) all() []event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// objects returns what has come so far, without bookmarks.
func (r *recording) objects() []event {
	return withoutBookmarks(r.all())
}

func (r *recording) open() bool {
	select {
	case <-r.done:
		return false
	default:
		return true
	}
}

// wait waits for n events.
func (r *recording) wait(t testing.TB, n int) []event {
	t.Helper()
	deadline := time.Now().Add(hangTime(15 * time.Second))
	for {
		events := r.all()
		if len(events) >= n {
			return events
		}
		if !r.open() || time.Now().After(deadline) {
			t.Fatalf("%s %s: %d events, want %d; ended: %v, err: %v\n%s", r.target.name, r.uri, len(events), n,
				!r.open(), r.err, format(events))
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// initial waits for the bookmark that ends the initial events, and returns all of them.
func (r *recording) initial(t testing.TB) []event {
	t.Helper()
	for n := 1; ; n++ {
		if events := r.wait(t, n)[:n]; events[n-1].end {
			return events
		}
	}
}

// finish waits until the stream has ended, and fails the test unless it ended properly. patience is
// how long that may take on a quiet machine.
func (r *recording) finish(t testing.TB, patience time.Duration) []event {
	t.Helper()
	patience = hangTime(patience)
	select {
	case <-r.done:
	case <-time.After(patience):
		t.Fatalf("%s %s has not ended within %s; %d events", r.target.name, r.uri, patience, len(r.all()))
	}
	if r.status != http.StatusOK {
		t.Fatalf("%s %s: status %d", r.target.name, r.uri, r.status)
	}
	if r.err != nil {
		t.Fatalf("%s %s did not end properly: %v", r.target.name, r.uri, r.err)
	}
	return r.all()
}

// lasted is how long the stream was open.
func (r *recording) lasted() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended.Sub(r.opened)
}

// complete adds the rest to a finished recording that kube-apiserver ended before its time, as
// kube-apiserver may end a watch that it finds slow. A client would come back with the last
// resourceVersion. It reports whether there was a rest.
func (r *recording) complete(t testing.TB, lasting time.Duration) bool {
	t.Helper()
	if r.lasted() > lasting-1500*time.Millisecond {
		return false
	}
	u, err := url.Parse(r.uri)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	if n := len(r.events); n > 0 {
		q.Set("resourceVersion", strconv.FormatUint(r.events[n-1].rv, 10))
	} else if q.Get("resourceVersion") == "" || q.Get("resourceVersion") == "0" {
		t.Fatalf("%s %s ended after %s and brought nothing", r.target.name, r.uri, r.lasted())
	}
	q.Del("sendInitialEvents")
	q.Del("resourceVersionMatch")
	q.Set("timeoutSeconds", "1")
	rest := r.target.watch(t, u.Path+"?"+q.Encode())
	r.events = append(r.events, rest.finish(t, 10*time.Second)...)
	return true
}

// stop ends the watch as a client does.
func (r *recording) stop() {
	r.cancel()
	<-r.done
}

func format(events []event) string {
	var b bytes.Buffer
	for i, e := range events {
		if i == 40 {
			fmt.Fprintf(&b, "… and %d more\n", len(events)-i)
			break
		}
		fmt.Fprintln(&b, e)
	}
	return b.String()
}

// checkOrder checks what holds for any stream: "After initial events, RVs on one stream never
// decrease; bookmarks included. Events of one resource are strictly increasing" (contract.md 3.13),
// and a bookmark comes behind every event up to its resourceVersion (3.3). initial is the number of
// initial events.
func checkOrder(events []event, initial int) error {
	last, bookmark := uint64(0), uint64(0)
	for i, e := range events {
		switch {
		case e.typ == "ERROR":
			if i != len(events)-1 {
				return fmt.Errorf("event %d is an ERROR and not the last of %d", i, len(events))
			}
		case i < initial:
			if e.typ != "ADDED" {
				return fmt.Errorf("initial event %d is %s", i, e)
			}
			if i > 0 && events[i-1].key >= e.key {
				return fmt.Errorf("initial events %s and %s are not in key order", events[i-1], e)
			}
		case e.typ == "BOOKMARK":
			if e.rv < last {
				return fmt.Errorf("bookmark %d at %d is behind the event %d before it", i, e.rv, last)
			}
			if e.end && i != initial {
				return fmt.Errorf("event %d ends the initial events, of which there are %d", i, initial)
			}
			bookmark, last = e.rv, e.rv
		default:
			if e.rv <= bookmark {
				return fmt.Errorf("event %d, %s, is not behind the bookmark %d before it", i, e, bookmark)
			}
			if e.rv <= last {
				return fmt.Errorf("event %d, %s, is not behind the event %d before it", i, e, last)
			}
			last = e.rv
		}
	}
	return nil
}

// compare returns how got differs from want, byte for byte.
func compare(got, want []event) error {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return fmt.Errorf("event %d is missing: %s (got %d, want %d)", i, want[i], len(got), len(want))
		case i >= len(want):
			return fmt.Errorf("event %d is too many: %s (got %d, want %d)", i, got[i], len(got), len(want))
		case got[i].line != want[i].line:
			return fmt.Errorf("event %d is\n%swant\n%s", i, got[i].line, want[i].line)
		}
	}
	return nil
}
