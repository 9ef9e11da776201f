package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// reader is a person with a client that reads at random.
type reader struct {
	person
	how          string
	ours, theirs *target
	header       http.Header // with each request

	mu   sync.Mutex
	seen []*observation
}

func (r *reader) String() string { return r.how + " " + r.name }

// observation is one request through watchfan and its outcome.
type observation struct {
	reader     *reader
	demand     demand
	uri        string
	begin, end int // in the ledger's time; end is when the response head, and for a get or list the body, was there
	status     int // 0 if the client left before there was an answer
	cached     bool

	// Of a watch.
	open   atomic.Bool // and cached
	events int
	ended  int          // when the stream was over
	left   bool         // the client ended it
	next   *observation // the same demand once more, if the server ended it

	wrong error // a fault whatever the rights were
}

func (o *observation) String() string {
	return fmt.Sprintf("%s: %s (cached: %v)", o.reader, o.uri, o.cached)
}

// rbacReading is shared by all readers.
type rbacReading struct {
	ledger
	all      []demand
	refusals atomic.Int64 // compared with kube-apiserver's
	requests atomic.Int64 // that have been answered
}

// more waits until n more requests have been answered.
func (w *rbacReading) more(t *testing.T, n int) {
	t.Helper()
	count := func() int { return int(w.requests.Load()) }
	reach(t, "request", count()+n, count)
}

// change has the rights change. It returns when watchfan refuses each of the requests that readers have lost the right
// to, and has ended their watches, and when some more requests have been answered after that.
func (w *rbacReading) change(t *testing.T, readers []*reader, after rights, apply func()) {
	t.Helper()
	before := w.begin(after)
	apply()
	for _, r := range readers {
		lost := slices.DeleteFunc(slices.Clone(w.all), func(d demand) bool {
			return !before.allow(r.person, d) || after.allow(r.person, d)
		})
		steady.Until(t, "refusal of "+r.String(), func() error {
			for len(lost) > 0 {
				if status, err := r.glance(lost[0]); err != nil || status == http.StatusOK {
					return fmt.Errorf("%+v: %d, %v", lost[0], status, err)
				}
				lost = lost[1:]
			}
			return nil
		})
		steady.Until(t, "end of the watches of "+r.String(), func() error {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, o := range r.seen {
				if o.open.Load() && !after.allow(r.person, o.demand) {
					return fmt.Errorf("%s is open", o)
				}
			}
			return nil
		})
	}
	w.settle()
	w.more(t, 100)
}

// glance makes a request, and returns the status of its answer.
func (r *reader) glance(d demand) (status int, err error) {
	resp, err := r.ours.look(d.uri("resourceVersion=0"), r.header)
	return resp.status, err
}

// draw returns a demand, in three of four cases one that is allowed, if there is any.
func (w *rbacReading) draw(rng *rand.Rand, r *reader, watch bool) demand {
	_, rights := w.now()
	wish := rng.IntN(4) > 0
	for try := 0; ; try++ {
		d := w.all[rng.IntN(len(w.all))]
		if (d.verb == "watch") == watch && (!wish || try > 500 || rights.allow(r.person, d)) {
			return d
		}
	}
}

// ask begins an observation.
func (r *reader) ask(w *rbacReading, d demand, query string) *observation {
	o := &observation{reader: r, demand: d, uri: d.uri(query)}
	o.begin, _ = w.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, o)
	return o
}

// get makes one get or list.
func (r *reader) get(w *rbacReading, d demand, query string) {
	o := r.ask(w, d, query)
	resp, err := r.ours.try(http.MethodGet, o.uri, r.header, "")
	o.end, _ = w.now()
	o.status, o.cached = resp.status, proxytest.FromCache(resp.header)
	switch {
	case err != nil:
		o.wrong = err
	case resp.status == http.StatusOK:
		o.wrong = o.foreign(resp.body)
	default:
		o.wrong = r.refused(w, o, resp.body)
	}
	w.requests.Add(1)
}

// foreign returns an error if a body has an object that was not asked for.
func (o *observation) foreign(body []byte) error {
	var found struct {
		metav1.PartialObjectMetadata
		Items []metav1.PartialObjectMetadata
	}
	if err := json.Unmarshal(body, &found); err != nil {
		return err
	}
	if o.demand.verb == "get" {
		found.Items = []metav1.PartialObjectMetadata{found.PartialObjectMetadata}
	}
	for _, item := range found.Items {
		if key := item.Namespace + "/" + item.Name; !o.demand.covers(key) {
			return fmt.Errorf("shows %s", key)
		}
	}
	return nil
}

// refused compares a refusal with kube-apiserver's own, if kube-apiserver refuses too by then.
func (r *reader) refused(w *rbacReading, o *observation, body []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), steady.Patience)
	defer cancel()
	resp, err := r.theirs.open(ctx, http.MethodGet, o.uri, r.header, "")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != o.status {
		return nil // the rights have changed meanwhile
	}
	want, err := io.ReadAll(resp.Body)
	if err == nil && !bytes.Equal(body, want) {
		err = fmt.Errorf("is refused with\n%s\nkube-apiserver says\n%s", body, want)
	}
	w.refusals.Add(1)
	return err
}

// watch watches until the server ends it or ctx does, or until it has brought so many events, if most is
// positive.
func (r *reader) watch(ctx context.Context, w *rbacReading, way *target, d demand, query string, most int) *observation {
	o := r.ask(w, d, query)
	resp, err := way.open(ctx, http.MethodGet, o.uri, r.header, "")
	o.end, _ = w.now()
	if err == nil {
		defer resp.Body.Close()
		o.status, o.cached = resp.StatusCode, proxytest.FromCache(resp.Header)
		if o.status == http.StatusOK {
			o.open.Store(o.cached)
			err = o.read(resp, most)
		} else if body, failed := io.ReadAll(resp.Body); failed == nil {
			err = r.refused(w, o, body)
		} else {
			err = failed
		}
	}
	o.ended, _ = w.now()
	o.open.Store(false)
	if o.left = o.left || ctx.Err() != nil; err != nil && !o.left {
		o.wrong = err
	}
	return o
}

// read reads the events of a watch, most of them if that is positive.
func (o *observation) read(resp *http.Response, most int) error {
	for in := proxytest.NewEventReader(proxytest.Uncompressed(resp), false); most == 0 || o.events < most; o.events++ {
		line, err := in.Next()
		if err == io.EOF {
			return nil
		}
		var e event
		if err == nil {
			e, err = parseEvent(line)
		}
		if err != nil {
			return err
		}
		if e.typ != "BOOKMARK" && !o.demand.covers(e.key) {
			o.wrong = fmt.Errorf("shows %s", e)
		}
	}
	o.left = true
	return nil
}

// readAll makes gets and lists until stop is closed. Two of three differ little from the one
// before: a right that was just confirmed must not allow anything else.
func (r *reader) readAll(stop <-chan struct{}, w *rbacReading, rng *rand.Rand) {
	var d demand
	for i := 0; pace(stop, time.Duration(30+rng.IntN(60))*time.Millisecond); i++ {
		if d = d.near(rng); i%3 == 0 {
			d = w.draw(rng, r, false)
		}
		r.get(w, d, []string{"resourceVersion=0", "resourceVersion=0", "resourceVersion=0", ""}[rng.IntN(4)])
	}
}

// watchAll watches one thing after another until ctx ends. Half of the watches last until then, unless the
// server ends them, and the others for some events.
func (r *reader) watchAll(ctx context.Context, w *rbacReading, rng *rand.Rand) {
	for pace(ctx.Done(), 100*time.Millisecond) {
		way, most := r.ours, 0
		if rng.IntN(3) == 0 {
			way = way.zipped()
		}
		query := []string{"resourceVersion=0", "allowWatchBookmarks=1",
			"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1"}[rng.IntN(3)]
		if rng.IntN(2) == 0 {
			most = 1 + rng.IntN(40)
		}
		o := r.watch(ctx, w, way, w.draw(rng, r, true), query, most)
		if o.status == http.StatusOK && !o.left {
			next := &observation{reader: r, demand: o.demand}
			next.status, _ = r.glance(o.demand)
			next.end, _ = w.now()
			o.next = next
		}
	}
}
