package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// reader is a person with a client that reads at random.
type reader struct {
	person
	how          string
	ours, theirs *target
	header       http.Header // with each request
	nobody       bool        // it has a token without an owner
	never        bool        // nothing is served to it from a cache

	goneSent, goneSeen time.Time // when its account was deleted, and when all noticed; zero if it was not

	mu   sync.Mutex
	seen []*observation
	live map[*observation]struct{} // watches from the cache that are open
}

func (r *reader) String() string { return r.how + " " + r.name }

// observation is one request through watchfan and its outcome.
type observation struct {
	reader     *reader
	demand     demand
	uri        string
	begin, end time.Time // end is when the response head, and for a get or list the body, was there
	status     int
	cached     bool

	// Of a watch.
	events int
	ended  time.Time    // when the stream was over
	broken error        // why it broke; nil if it ended properly or by the client
	left   bool         // the client ended it
	next   *observation // the same request once more, if the server ended it

	wrong error // a fault whatever the rights were
}

func (o *observation) String() string {
	return fmt.Sprintf("%s: %s (cached: %v)", o.reader, o.uri, o.cached)
}

// during returns whether the reader may have been allowed, and whether it may have been refused,
// between from and to.
func (o *observation) during(l ledger, from, to time.Time) (yes, no bool) {
	yes, no = l.during(o.reader.person, o.demand, from, to, o.cached)
	if gone := o.reader.goneSent; !gone.IsZero() {
		yes = yes && !from.After(o.reader.goneSeen)
		no = no || !to.Before(gone)
	}
	return yes && !o.reader.nobody, no || o.reader.nobody
}

// rbacReading is shared by all readers.
type rbacReading struct {
	all      []demand
	rights   atomic.Pointer[rights] // in force, or about to be
	refusals atomic.Int64           // compared with kube-apiserver's
	requests atomic.Int64           // that have been answered
}

// more waits until n more requests have been answered.
func (w *rbacReading) more(t *testing.T, n int) {
	t.Helper()
	count := func() int { return int(w.requests.Load()) }
	reach(t, "request", count()+n, count)
}

// enforce waits until watchfan refuses each of the requests that readers have lost the right to, and has
// ended their watches.
func (w *rbacReading) enforce(t *testing.T, readers []*reader, before, after rights) {
	t.Helper()
	for _, r := range readers {
		var lost []demand
		for _, d := range w.all {
			if before.allow(r.person, d) && !after.allow(r.person, d) && !r.nobody {
				lost = append(lost, d)
			}
		}
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
			for o := range r.live {
				if !after.allow(r.person, o.demand) {
					return fmt.Errorf("%s is open", o)
				}
			}
			return nil
		})
	}
}

// glance makes a request, and returns the status of its answer.
func (r *reader) glance(d demand) (status int, err error) {
	resp, err := r.ours.look(d.uri("resourceVersion=0"), r.header)
	return resp.status, err
}

// draw returns a demand, in three of four cases one that is allowed, if there is any.
func (w *rbacReading) draw(rng *rand.Rand, r *reader, watch bool) demand {
	now, wish := w.rights.Load(), rng.IntN(4) > 0
	for try := 0; ; try++ {
		d := w.all[rng.IntN(len(w.all))]
		if (d.verb == "watch") == watch && (!wish || try > 500 || now.allow(r.person, d)) {
			return d
		}
	}
}

// get makes one get or list, and records it.
func (r *reader) get(w *rbacReading, d demand, query string) *observation {
	o := &observation{reader: r, demand: d, uri: d.uri(query), begin: time.Now()}
	resp, err := r.ours.try(http.MethodGet, o.uri, r.header, "")
	o.end, o.status, o.cached = time.Now(), resp.status, proxytest.FromCache(resp.header)
	switch {
	case err != nil:
		o.wrong = err
	case resp.status == http.StatusOK:
		o.wrong = o.foreign(resp.body)
	default:
		o.wrong = r.refused(w, o, resp.body)
	}
	r.keep(o)
	w.requests.Add(1)
	return o
}

func (r *reader) keep(o *observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, o)
}

// foreign returns an error if a body has an object that was not asked for.
func (o *observation) foreign(body []byte) error {
	type object struct {
		Metadata struct{ Namespace, Name string }
	}
	var found struct {
		object
		Items []object
	}
	if err := json.Unmarshal(body, &found); err != nil {
		return err
	}
	if o.demand.verb == "get" {
		found.Items = []object{found.object}
	}
	for _, item := range found.Items {
		if key := item.Metadata.Namespace + "/" + item.Metadata.Name; !o.demand.covers(key) {
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
	if err != nil {
		return err
	}
	w.refusals.Add(1)
	if !bytes.Equal(body, want) {
		return fmt.Errorf("is refused with\n%s\nkube-apiserver says\n%s", body, want)
	}
	return nil
}

// watch watches until the server ends it or ctx does, or until it has brought so many events, if most is
// positive, and records it.
func (r *reader) watch(ctx context.Context, w *rbacReading, way *target, d demand, query string, most int) *observation {
	o := &observation{reader: r, demand: d, uri: d.uri(query), begin: time.Now()}
	r.keep(o)
	resp, err := way.open(ctx, http.MethodGet, o.uri, r.header, "")
	o.end = time.Now()
	if err != nil {
		if o.left = ctx.Err() != nil; !o.left {
			o.wrong = err
		}
		return o
	}
	defer resp.Body.Close()
	o.status, o.cached = resp.StatusCode, proxytest.FromCache(resp.Header)
	if o.status != http.StatusOK {
		body, err := io.ReadAll(resp.Body)
		if err == nil {
			err = r.refused(w, o, body)
		}
		if o.left = ctx.Err() != nil; !o.left {
			o.wrong = err
		}
		return o
	}
	body := resp.Body
	if resp.Header.Get("Content-Encoding") == "gzip" {
		body = proxytest.NewMemberReader(body)
	}
	if o.cached {
		r.mu.Lock()
		r.live[o] = struct{}{}
		r.mu.Unlock()
	}
	o.read(ctx, proxytest.NewEventReader(body, false), most)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, o)
	return o
}

// read records the events of a watch.
func (o *observation) read(ctx context.Context, in *proxytest.EventReader, most int) {
	for {
		if most > 0 && o.events >= most {
			o.left, o.ended = true, time.Now()
			return
		}
		line, err := in.Next()
		var e event
		if err == nil {
			e, err = parseEvent(line)
		}
		switch {
		case err == nil && e.typ != "BOOKMARK" && !o.demand.covers(e.key):
			o.wrong = fmt.Errorf("shows %s", e)
		case err == nil:
			o.events++
			continue
		case ctx.Err() != nil:
			o.left = true
		case err != io.EOF:
			o.broken = err
		}
		o.ended = time.Now()
		return
	}
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
		this, leave := context.WithCancel(ctx)
		way, most := r.ours, 0
		if rng.IntN(3) == 0 {
			way = way.zipped()
		}
		query := []string{"resourceVersion=0", "allowWatchBookmarks=1",
			"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1"}[rng.IntN(3)]
		if rng.IntN(2) == 0 {
			most = 1 + rng.IntN(40)
		}
		o := r.watch(this, w, way, w.draw(rng, r, true), query, most)
		if o.status == http.StatusOK && !o.left {
			next := &observation{reader: r, demand: o.demand, begin: time.Now()}
			next.status, _ = r.glance(o.demand)
			next.end = time.Now()
			o.next = next
		}
		leave()
	}
}
