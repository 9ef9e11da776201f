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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// event is one line of a watch.
type event struct {
	typ  string
	rv   uint64
	key  string // namespace/name, or name
	uid  string
	line string // the bytes, newline included
	end  bool   // the bookmark that ends the initial events
}

func parseEvent(line []byte) (event, error) {
	var e struct {
		Type   string
		Object metav1.PartialObjectMetadata
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return event{}, fmt.Errorf("event %.300q: %w", line, err)
	}
	return newEvent(e.Type, e.Object.ObjectMeta, string(line))
}

func decodeFrame(frame []byte) (event, error) {
	var e metav1.WatchEvent
	var body runtime.Unknown
	var object metav1.PartialObjectMetadata // others have more fields
	err := e.Unmarshal(frame)
	if err == nil {
		err = body.Unmarshal(bytes.TrimPrefix(e.Object.Raw, []byte("k8s\x00")))
	}
	if err == nil {
		err = object.Unmarshal(body.Raw)
	}
	if err != nil {
		return event{}, fmt.Errorf("event %.300q: %w", frame, err)
	}
	return newEvent(e.Type, object.ObjectMeta, string(frame))
}

func newEvent(typ string, meta metav1.ObjectMeta, line string) (ev event, err error) {
	ev = event{typ: typ, key: meta.Name, uid: string(meta.UID), line: line, end: meta.Annotations["k8s.io/initial-events-end"] == "true"}
	if meta.Namespace != "" {
		ev.key = meta.Namespace + "/" + meta.Name
	}
	if typ != "ERROR" {
		if ev.rv, err = strconv.ParseUint(meta.ResourceVersion, 10, 64); err != nil {
			return event{}, fmt.Errorf("event %.300q: %w", line, err)
		}
	}
	return ev, nil
}

// eventsOf returns a function that reads the next event of a watch. One in CBOR, whose maps have any order, becomes JSON.
func eventsOf(contentType string, body io.Reader) (next func() (event, error)) {
	if contentType == "application/cbor-seq" {
		in := cbor.NewDecoder(body)
		return func() (event, error) {
			var item cbor.RawMessage
			var v any
			err := in.Decode(&item)
			if err == nil {
				err = direct.Unmarshal(item, &v)
			}
			if err != nil {
				return event{}, err
			}
			line, err := json.Marshal(v)
			if err != nil {
				return event{}, err
			}
			return parseEvent(line)
		}
	}
	protobuf := strings.HasPrefix(contentType, protoType)
	in := proxytest.NewEventReader(body, protobuf)
	return func() (event, error) {
		line, err := in.Next()
		switch {
		case err != nil:
			return event{}, err
		case protobuf:
			return decodeFrame(line)
		}
		return parseEvent(line)
	}
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

	mu      sync.Mutex
	events  []event
	changed chan struct{} // closed and replaced with each event
	err     error         // nil after a proper end
}

// watch begins a watch and records it until it or the test ends. It returns when the response head
// is there.
func (d *target) watch(t testing.TB, uri string, accepts ...string) *recording {
	t.Helper()
	return d.begin(t, uri, false, accepts...)
}

// follow is watch for a watch of kube-apiserver that others are compared with. kube-apiserver may end a
// watch that it finds slow. Then the recording continues from its last resourceVersion, as clients do.
func (d *target) follow(t testing.TB, uri string) *recording {
	t.Helper()
	return d.begin(t, uri, true)
}

func (d *target) begin(t testing.TB, uri string, follow bool, accepts ...string) *recording {
	t.Helper()
	var header http.Header
	if accepts != nil {
		header = accept(accepts...)
	}
	r, err := d.record(t.Context(), uri, header, follow)
	if err != nil {
		t.Fatalf("watch %s at %s: %v", uri, d.name, err)
	}
	return r
}

func (d *target) record(ctx context.Context, uri string, header http.Header, follow bool) (*recording, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &recording{target: d, uri: uri, cancel: cancel, done: make(chan struct{}), changed: make(chan struct{})}
	resp, err := d.open(ctx, http.MethodGet, uri, header, "")
	if err != nil {
		cancel()
		return nil, err
	}
	r.status, r.header = resp.StatusCode, resp.Header
	go func() {
		defer close(r.done)
		defer cancel()
		err := r.read(resp)
		for err == nil && follow {
			if resp, err = d.open(ctx, http.MethodGet, r.rest(), header, ""); err == nil {
				err = r.read(resp)
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.err = err
	}()
	return r, nil
}

// read records the events of an answer. It returns nil after a proper end.
func (r *recording) read(resp *http.Response) error {
	defer resp.Body.Close()
	body := io.Reader(resp.Body)
	if r.target.gzip {
		body = proxytest.Uncompressed(resp)
	}
	if r.status != http.StatusOK {
		return nil
	}
	for next := eventsOf(resp.Header.Get("Content-Type"), body); ; {
		ev, err := next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		r.mu.Lock()
		r.events = append(r.events, ev)
		close(r.changed)
		r.changed = make(chan struct{})
		r.mu.Unlock()
	}
}

// rest returns the URI by which a client continues.
func (r *recording) rest() string {
	path, query, _ := strings.Cut(r.uri, "?")
	q, _ := url.ParseQuery(query) // it was sent before
	if events := r.all(); len(events) > 0 {
		q.Set("resourceVersion", strconv.FormatUint(events[len(events)-1].rv, 10))
		q.Del("sendInitialEvents")
		q.Del("resourceVersionMatch")
	}
	return path + "?" + q.Encode()
}

// all returns what has come so far.
func (r *recording) all() []event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// withoutBookmarks returns events without bookmarks, whose times differ.
func withoutBookmarks(events []event) (rest []event) {
	for _, e := range events {
		if e.typ != "BOOKMARK" {
			rest = append(rest, e)
		}
	}
	return rest
}

func (r *recording) open() bool {
	select {
	case <-r.done:
		return false
	default:
		return true
	}
}

// await waits until have accepts the events so far, and returns them. A bookmark does not renew its patience.
func (r *recording) await(t testing.TB, what string, have func([]event) bool) []event {
	t.Helper()
	deadline := time.Now().Add(steady.Patience)
	for open, hangs, seen := true, false, 0; ; {
		r.mu.Lock()
		events, changed := r.events[:len(r.events):len(r.events)], r.changed
		r.mu.Unlock()
		if have(events) {
			return events
		}
		if !open || hangs {
			t.Fatalf("%s %s: no %s among %d events; ended: %v, err: %v\n%s", r.target.name, r.uri, what, len(events),
				!open, r.err, format(events))
		}
		if slices.ContainsFunc(events[seen:], func(e event) bool { return e.typ != "BOOKMARK" }) {
			deadline = time.Now().Add(steady.Patience)
		}
		seen = len(events)
		patience, cancel := context.WithDeadline(context.Background(), deadline)
		select {
		case <-changed:
		case <-r.done:
			open = false
		case <-patience.Done():
			hangs = true
		}
		cancel()
	}
}

// wait waits for n events.
func (r *recording) wait(t testing.TB, n int) []event {
	t.Helper()
	return r.await(t, fmt.Sprintf("event %d", n), func(events []event) bool { return len(events) >= n })
}

// until waits for the resourceVersion last, ends the watch, and returns the events up to there.
func (r *recording) until(t testing.TB, last uint64) []event {
	t.Helper()
	events := r.await(t, fmt.Sprintf("resourceVersion %d", last), func(events []event) bool {
		return len(events) > 0 && events[len(events)-1].rv >= last
	})
	r.stop()
	return slices.DeleteFunc(slices.Clone(events), func(e event) bool { return e.rv > last })
}

// behind waits for an event behind resourceVersion rv, and returns the first.
func (r *recording) behind(t testing.TB, rv uint64) event {
	t.Helper()
	newer := func(e event) bool { return e.typ != "BOOKMARK" && e.rv > rv }
	events := r.await(t, fmt.Sprintf("event behind %d", rv), func(events []event) bool { return slices.ContainsFunc(events, newer) })
	return events[slices.IndexFunc(events, newer)]
}

// initial waits for the bookmark that ends the initial events, and returns all of them.
func (r *recording) initial(t testing.TB) []event {
	t.Helper()
	end := func(e event) bool { return e.end }
	events := r.await(t, "end of the initial events", func(events []event) bool { return slices.ContainsFunc(events, end) })
	return events[:slices.IndexFunc(events, end)+1]
}

// finish waits until the stream has ended, and fails the test unless it ended properly.
func (r *recording) finish(t testing.TB) []event {
	t.Helper()
	patience, cancel := context.WithTimeout(context.Background(), steady.Patience)
	defer cancel()
	select {
	case <-r.done:
	case <-patience.Done():
		t.Fatalf("%s %s has not ended after %s; %d events", r.target.name, r.uri, steady.Patience, len(r.all()))
	}
	if r.status != http.StatusOK {
		t.Fatalf("%s %s: status %d", r.target.name, r.uri, r.status)
	}
	if r.err != nil {
		t.Fatalf("%s %s did not end properly: %v", r.target.name, r.uri, r.err)
	}
	return r.all()
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

// checkOrder checks what a model does not know: "After initial events, RVs on one stream never decrease; bookmarks
// included. Events of one resource are strictly increasing" (contract.md 3.13), a bookmark comes behind every event up
// to its resourceVersion (3.3), and the initial events end once.
func checkOrder(events []event, initial int) error {
	last := uint64(0)
	for i, e := range events[initial:] {
		if e.rv < last || e.rv == last && e.typ != "BOOKMARK" || e.end && i > 0 {
			return fmt.Errorf("event %d, %s, comes behind resourceVersion %d", initial+i, e, last)
		}
		last = e.rv
	}
	return nil
}

// compare returns how got differs from want, byte for byte.
func compare(got, want []event) error { return same(lines(got), lines(want)) }
