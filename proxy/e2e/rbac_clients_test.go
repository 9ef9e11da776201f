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
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// reader is a person with a client that reads at random.
type reader struct {
	person
	how          string
	ours, theirs *target
	header       http.Header // with each request
	nobody       bool        // it has a token without an owner
	never        bool        // nothing is served to it from a cache

	goneSent, goneSeen time.Time // when its account was deleted; zero if it was not

	mu   sync.Mutex
	seen []*observation
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
	events []sight
	ended  time.Time    // when the stream was over
	broken error        // why it broke; nil if it ended properly or by the client
	left   bool         // the client ended it
	next   *observation // the same request once more, if the server ended it

	wrong error // a fault whatever the rights were
}

// sight is one event at a client.
type sight struct {
	rv uint64
	at time.Time
}

func (o *observation) String() string {
	return fmt.Sprintf("%s: %s (cached: %v)", o.reader, o.uri, o.cached)
}

// during returns whether the reader may have been allowed, and whether it may have been refused,
// between from and to.
func (o *observation) during(l ledger, from, to time.Time) (yes, no bool) {
	yes, no = l.during(o.reader.person, o.demand, from, to)
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
	if o.status != http.StatusForbidden && o.status != http.StatusUnauthorized {
		return fmt.Errorf("%d: %s", o.status, body)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
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

// watch watches until the server ends it or ctx does, and records it.
func (r *reader) watch(ctx context.Context, w *rbacReading, way *target, d demand, query string) *observation {
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
	var body io.Reader = resp.Body
	if resp.Header.Get("Content-Encoding") == "gzip" {
		body = proxytest.NewMemberReader(resp.Body)
	}
	o.read(ctx, proxytest.NewEventReader(body, false))
	return o
}

// read records the events of a watch.
func (o *observation) read(ctx context.Context, in *proxytest.EventReader) {
	for {
		line, err := in.Next()
		var e event
		if err == nil {
			e, err = parseEvent(line)
		}
		switch {
		case err == nil && e.typ != "BOOKMARK" && !o.demand.covers(e.key):
			o.wrong = fmt.Errorf("shows %s", e)
		case err == nil:
			o.events = append(o.events, sight{e.rv, e.at})
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
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(30+rng.IntN(60)) * time.Millisecond):
			if d = d.near(rng); i%3 == 0 {
				d = w.draw(rng, r, false)
			}
			r.get(w, d, []string{"resourceVersion=0", "resourceVersion=0", "resourceVersion=0", ""}[rng.IntN(4)])
		}
	}
}

// watchAll watches one thing after another until ctx ends. Half of the watches last until then,
// unless the server ends them.
func (r *reader) watchAll(ctx context.Context, w *rbacReading, rng *rand.Rand) {
	for ctx.Err() == nil {
		this, leave := context.WithCancel(ctx)
		way := r.ours
		if rng.IntN(3) == 0 {
			way = way.zipped()
		}
		query := []string{"resourceVersion=0", "allowWatchBookmarks=1",
			"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1"}[rng.IntN(3)]
		if rng.IntN(2) == 0 {
			time.AfterFunc(time.Duration(500+rng.IntN(6000))*time.Millisecond, leave)
		}
		o := r.watch(this, w, way, w.draw(rng, r, true), query)
		if o.status == http.StatusOK && !o.left {
			again, leave := context.WithTimeout(ctx, time.Second)
			o.next = r.watch(again, w, way, o.demand, query)
			leave()
		}
		leave()
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(100+rng.IntN(200)) * time.Millisecond):
		}
	}
}
