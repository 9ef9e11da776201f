package proxytest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Event is one watch event as a client received it.
type Event struct {
	Type string
	Key  string // namespace/name
	RV   uint64
	End  bool // the bookmark that ends the initial events
	Code int  // of an ERROR event's Status
	Raw  string
}

// String returns the event in a form for comparisons: "ADDED ns/a 7", "END 9", "ERROR 410".
func (e Event) String() string {
	switch {
	case e.End:
		return fmt.Sprintf("END %d", e.RV)
	case e.Type == "BOOKMARK":
		return fmt.Sprintf("BOOKMARK %d", e.RV)
	case e.Type == "ERROR":
		return fmt.Sprintf("ERROR %d", e.Code)
	}
	return fmt.Sprintf("%s %s %d", e.Type, e.Key, e.RV)
}

// ParseEvent reads one line of a watch.
func ParseEvent(line string) (Event, error) {
	type metadata struct {
		Namespace, Name, ResourceVersion string
		Annotations                      map[string]string
	}
	var ev struct {
		Type   string
		Object struct {
			Code     int
			Metadata metadata
			Rows     []struct {
				Object struct{ Metadata metadata }
			}
		}
	}
	if err := json.Unmarshal([]byte(line), &ev); err != nil {
		return Event{}, fmt.Errorf("%w: %.200q", err, line)
	}
	m := ev.Object.Metadata
	if rows := ev.Object.Rows; len(rows) == 1 { // a Table
		m = rows[0].Object.Metadata
	}
	e := Event{Type: ev.Type, Code: ev.Object.Code, Raw: line,
		End: m.Annotations["k8s.io/initial-events-end"] == "true"}
	if m.Name != "" {
		e.Key = m.Namespace + "/" + m.Name
	}
	e.RV, _ = strconv.ParseUint(m.ResourceVersion, 10, 64)
	return e, nil
}

// Watcher is a watch client that records. Its methods may be called from any goroutine.
type Watcher struct {
	Code   int
	Header http.Header
	t      testing.TB
	cancel func()

	mu      sync.Mutex
	events  []Event
	changed chan struct{} // closed and replaced with every event
	donec   chan struct{} // closed at the end
	err     error         // why the stream ended; nil for a proper end
}

// Open starts a watch, or any other GET, with pairs of header names and values, and returns when
// the head of the response is there. A body in gzip must be one member. The watch ends with the
// test.
func Open(t testing.TB, url string, header ...string) *Watcher {
	t.Helper()
	client := HTTPClient(&http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}})
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	req.Header.Set("User-Agent", ClientAgent)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	return NewWatcher(t, resp, cancel)
}

// NewWatcher reads the events of a response. cancel makes its body end.
func NewWatcher(t testing.TB, resp *http.Response, cancel func()) *Watcher {
	w := &Watcher{Code: resp.StatusCode, Header: resp.Header, t: t, cancel: cancel, changed: make(chan struct{}),
		donec: make(chan struct{})}
	go w.read(Uncompressed(resp))
	t.Cleanup(w.Close)
	return w
}

func (w *Watcher) read(body io.ReadCloser) {
	defer close(w.donec)
	defer body.Close()
	r := NewEventReader(body, false)
	for {
		line, err := r.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			w.err = err
			return
		}
		ev, err := ParseEvent(string(line))
		if err != nil {
			w.err = err
			return
		}
		w.mu.Lock()
		w.events = append(w.events, ev)
		close(w.changed)
		w.changed = make(chan struct{})
		w.mu.Unlock()
	}
}

// Close ends the watch and waits for its goroutine.
func (w *Watcher) Close() {
	w.cancel()
	<-w.donec
}

// Events returns all events so far.
func (w *Watcher) Events() []Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events[:len(w.events):len(w.events)]
}

// Strings returns all events so far as strings.
func (w *Watcher) Strings() []string { return Strings(w.Events()) }

// Strings returns events as strings.
func Strings(events []Event) []string {
	s := make([]string, len(events))
	for i, e := range events {
		s[i] = e.String()
	}
	return s
}

// WantStrings fails the test unless got is want.
func WantStrings(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// Want waits for as many events as want has, and fails the test unless these have come, and no others.
func (w *Watcher) Want(want ...string) {
	w.t.Helper()
	WantStrings(w.t, "watch", Strings(w.Await(len(want))), want...)
}

// Await waits until n events have come, and returns all.
func (w *Watcher) Await(n int) []Event {
	w.t.Helper()
	return w.Until(fmt.Sprintf("%d events", n), func(events []Event) bool { return len(events) >= n })
}

// AwaitVersion waits for an event or bookmark with at least resourceVersion rv.
func (w *Watcher) AwaitVersion(rv uint64) []Event {
	w.t.Helper()
	return w.Until(fmt.Sprintf("event at %d", rv), func(events []Event) bool {
		return len(events) > 0 && events[len(events)-1].RV >= rv
	})
}

// Until waits until wanted accepts the events so far, and returns them.
func (w *Watcher) Until(what string, wanted func([]Event) bool) []Event {
	w.t.Helper()
	deadline := time.After(Patience) //testlint:allow timer it only ends what hangs
	for {
		w.mu.Lock()
		events, changed := w.events[:len(w.events):len(w.events)], w.changed
		w.mu.Unlock()
		if wanted(events) {
			return events
		}
		select {
		case <-changed:
		case <-w.donec:
			if events = w.Events(); wanted(events) {
				return events
			}
			w.t.Fatalf("stream ended (%v) before %s; got %s", w.err, what, strings.Join(Strings(events), ", "))
		case <-deadline:
			w.t.Fatalf("no %s within %s; got %s", what, Patience, strings.Join(Strings(events), ", "))
		}
	}
}

// Ended waits until the stream ends and returns nil for a proper end.
func (w *Watcher) Ended() error {
	w.t.Helper()
	select {
	case <-w.donec:
		return w.err
	case <-time.After(Patience): //testlint:allow timer it only ends what hangs
		w.t.Fatalf("stream did not end within %s; got %s", Patience, strings.Join(w.Strings(), ", "))
		return nil
	}
}

// WantEnd fails the test unless the stream ends properly.
func (w *Watcher) WantEnd() {
	w.t.Helper()
	if err := w.Ended(); err != nil {
		w.t.Errorf("the stream ended with %v behind %s", err, strings.Join(w.Strings(), ", "))
	}
}

// Open reports whether the stream is still open.
func (w *Watcher) Open() bool {
	select {
	case <-w.donec:
		return false
	default:
		return true
	}
}

// Fold returns the state of a client after events: each object's resourceVersion by key.
func Fold(events []Event) map[string]uint64 {
	state := make(map[string]uint64)
	for _, e := range events {
		switch e.Type {
		case "ADDED", "MODIFIED":
			state[e.Key] = e.RV
		case "DELETED":
			delete(state, e.Key)
		}
	}
	return state
}
