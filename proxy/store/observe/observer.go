package observe

import (
	"context"
	"errors"
	"hash/maphash"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/gate/remember"
	"github.com/watchfan/watchfan/proxy/gate/view"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Config holds the dependencies of an Observer.
type Config struct {
	Options *Options
	Views   *view.Views // in which rules may have clients read; nil for none
	Short   func() bool // reports whether memory is short; nil is never
	// OnDifference is called with the resource of each difference, and its kind; nil for nothing. It is
	// called from any goroutine, and must not wait.
	OnDifference func(schema.GroupVersionResource, Kind)
	Metrics      *metrics.Set
	Guard        *exchange.Guard
}

// Observer knows the rules, the reads that pass through because of one, and what was found. Its
// methods may be called from any goroutine.
type Observer struct {
	Config
	results *results
	held    held
	ruling  atomic.Pointer[ruling]
	// late are clients that kube-apiserver has told more, after a ruling, in the form before.
	late remember.TTLCache[uint64, form]
	// listed is which clients have listed, although they might know as much in another form, by a hash of the
	// client and what it reads.
	listed  remember.TTLCache[uint64, list]
	seed    maphash.Seed
	ctx     context.Context
	running sync.WaitGroup // the observations
	watches atomic.Int64   // observations of watches
	lists   pace

	mu    sync.Mutex
	moved map[*following]struct{} // the open watches that pass through because of a rule
}

// New returns an Observer whose observations end with ctx. Wait returns after them.
func New(ctx context.Context, cfg Config) *Observer {
	o := &Observer{Config: cfg, ctx: ctx, seed: maphash.MakeSeed(), moved: make(map[*following]struct{})}
	o.late.Most, o.listed.Most = mostListed, mostListed
	o.ruling.Store(&ruling{terms: terms{rules: cfg.Options.Clients, views: cfg.Views.All()}})
	o.results = newResults(cfg.Metrics, func() float64 { return float64(o.held.bytes.Load()) })
	return o
}

// Wait waits for the observations, once the context of New has ended.
func (o *Observer) Wait() { o.running.Wait() }

// Report returns what was observed.
func (o *Observer) Report() Report { return o.results.all() }

// Mode returns the mode of the reads of a client. Without rules it is Serve.
func (o *Observer) Mode(c Client) Mode { return o.ruling.Load().mode(c) }

// View returns the view in which a client reads; nil for none.
func (o *Observer) View(c Client) *view.View { return o.ruling.Load().view(c) }

// NamesViews reports whether any rule names a view.
func (o *Observer) NamesViews() bool { return o.ruling.Load().viewed() }

// Changed reports whether rules or views have ever changed.
func (o *Observer) Changed() bool { return len(o.ruling.Load().past) > 0 }

// AsksNamespaces reports whether any rule has the namespaces of clients name their views.
func (o *Observer) AsksNamespaces() bool {
	return slices.ContainsFunc(o.ruling.Load().rules, func(r Rule) bool { return r.ViewOf != "" })
}

// Ruled reports whether there is any rule.
func (o *Observer) Ruled() bool { return len(o.ruling.Load().rules) > 0 }

// Progress returns up to which resourceVersion clients may have been told of each resource. It is called once a
// change counts, and first ends the open watches that tell clients on the terms before.
type Progress func() map[schema.GroupResource]uint64

// SetRules makes rules, and the views that there are now, count from now on. It returns how to end each open watch
// that passes through and whose client reads in another way now.
func (o *Observer) SetRules(rules Rules, progress Progress) (ends []func()) {
	return o.set(func(t *terms) { t.rules = rules }, progress)
}

// SetNamespaces makes the views that namespaces name by their labels count, as SetRules. It reports whether
// they name others than before. A name of no view is logged once. One goroutine at a time calls it.
func (o *Observer) SetNamespaces(all map[string]labels.Set, progress Progress) (changed bool, ends []func()) {
	named, before := make(map[string]string), o.ruling.Load().named
	for namespace, set := range all {
		if name := set[view.Label]; name != "" {
			named[namespace] = name
		}
	}
	if maps.Equal(named, before) {
		return false, nil
	}
	said := make(map[string]bool)
	for _, name := range before {
		said[name] = true
	}
	for namespace, name := range named {
		if !said[name] && o.Views.Get(name) == nil && o.AsksNamespaces() {
			o.Guard.Log.Warn("A namespace names a view that there is not: its clients read without", "namespace", namespace, "view", name)
		}
		said[name] = true
	}
	return true, o.set(func(t *terms) { t.named = named }, progress)
}

// set changes the terms.
func (o *Observer) set(change func(*terms), progress Progress) (ends []func()) {
	o.mu.Lock()
	before := o.ruling.Load()
	t := before.terms
	change(&t)
	t.views = o.Views.All()
	now, was := before.next(t)
	for f := range o.moved {
		if f.isMoved(now) {
			ends = append(ends, f.recall)
		}
	}
	o.ruling.Store(now)
	o.mu.Unlock()
	until := progress() // until then the terms before cover all that anybody resumes from
	was.until.Store(&until)
	return ends
}

// form is the view in which a client was told more. mixed says that it was told so in others too.
type form struct {
	view  *view.View
	mixed bool
}

// isMoved reports whether a watch that passes through has to end, because its client reads in another way now.
// It goes on for a while, and what it tells its client is not of the client's view.
func (f *following) isMoved(now *ruling) bool {
	other := now.view(f.client) != f.read.View
	if other {
		f.late = true
		late, who := &f.observer.late, f.observer.who(f.client, "")
		before, ok := late.Get(who)
		late.Put(who, form{f.read.View, ok && (before.mixed || before.view != f.read.View)}, time.Now(), forever)
	}
	return other || now.mode(f.client) != f.mode
}

const (
	// mostHeld bounds the bytes that all observations hold.
	mostHeld = 64 << 20
	// mostWatches and mostLists bound the watches and lists that are compared at a time.
	mostWatches = 1000
	mostLists   = 8
)

// held counts the bytes that observations hold.
type held struct{ bytes atomic.Int64 }

// take counts n more bytes, and reports whether they may be held.
func (h *held) take(n int) bool {
	if h.bytes.Add(int64(n)) > mostHeld {
		h.give(n)
		return false
	}
	return true
}

func (h *held) give(n int) { h.bytes.Add(-int64(n)) }

// pace lets the comparison of lists take a tenth of a processor.
type pace struct {
	mu    sync.Mutex
	under int
	next  time.Time
}

// begin reports whether another list may be compared. Then the caller calls end with the time that
// it has taken.
func (p *pace) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.under >= mostLists || time.Now().Before(p.next) {
		return false
	}
	p.under++
	return true
}

func (p *pace) end(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.under--
	if now := time.Now(); p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(9 * took)
}

// Read is a read that passes through because of a rule, and how a cache would answer it.
type Read struct {
	GVR      schema.GroupVersionResource
	Resource string // as in logs
	Watch    bool
	Unlike   string // why it can't be compared; "" if it can
	View     *view.View
	Scope    string // what it reads of its resource

	// Initial says that the watch begins with initial events, which a bookmark ends. Otherwise it
	// begins behind ResourceVersion.
	Initial         bool
	ResourceVersion uint64

	// Open returns what would answer, for kube-apiserver's answer of this media type. It may wait. why
	// is a reason if nothing would. It is called once kube-apiserver has allowed the read.
	Open func(ctx context.Context, contentType string) (s Side, why string)
}

// Side is a cache in the place of kube-apiserver. One goroutine uses it at a time.
type Side interface {
	Encoding() framing.Encoding
	Cache() *fanout.Cache
	// Wanted is the subscription of the client's filter and form, without its start.
	Wanted() fanout.Request
	Start(*fanout.Subscription, fanout.Sink)
	// List returns the body of the read's list as of resourceVersion rv, or why there is none.
	List(rv uint64) (body [][]byte, why string)
	// State calls f for each object that the client's filter selects, as of rv, or returns why not.
	State(rv uint64, f func(*framing.Object)) (why string)
	Close()
}

// following follows one read that passes through because of a rule. It implements
// [exchange.Follower]. What it does for the client's goroutine is bounded, and never waits. An answer that is
// compared has a goroutine beside that.
type following struct {
	observer *Observer
	client   Client
	mode     Mode
	read     Read
	arrived  time.Time
	moved    chan struct{} // closed by recall
	recall   func()

	tee    *tee // nil if nothing is compared
	anew   *tee // nil if it does not matter as of when the client begins anew
	late   bool // it tells its client more in another form than that of the client's view; guarded by observer.mu
	header http.Header
}

// Follow returns what follows a read that passes through because of mode.
func (o *Observer) Follow(c Client, mode Mode, read Read) exchange.Follower {
	f := &following{observer: o, client: c, mode: mode, read: read, arrived: time.Now(), moved: make(chan struct{})}
	f.recall = sync.OnceFunc(func() { close(f.moved) })
	return f
}

// Began implements exchange.Follower.
func (f *following) Began(h http.Header) (recall <-chan struct{}) {
	o := f.observer
	defer o.Guard.Caught("observer", f.drop)
	if f.mode == Observe {
		f.observe(h)
	}
	f.note(h)
	if !f.read.Watch {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.moved[f] = struct{}{}
	if f.isMoved(o.ruling.Load()) { // the rules have changed since the read was sent
		f.recall()
	}
	return f.moved
}

// observe begins the observation, unless it may not begin.
func (f *following) observe(h http.Header) {
	o := f.observer
	o.results.begin()
	if why := f.admit(); why != "" {
		o.results.skip(why, 1)
		return
	}
	f.header, f.tee = h.Clone(), newTee(&o.held)
	o.running.Go(func() {
		defer o.Guard.Caught("observer", func() {
			f.drop()
			o.results.skip(panicked, 1)
		})
		if f.read.Watch {
			defer o.watches.Add(-1)
			f.watch()
		} else {
			f.list()
		}
	})
}

// admit counts the observation, or returns why there is none.
func (f *following) admit() (why string) {
	o := f.observer
	switch {
	case f.read.Unlike != "":
		return f.read.Unlike
	case o.Short != nil && o.Short(), o.ctx.Err() != nil:
		return memory
	case !f.read.Watch:
		if !o.lists.begin() {
			return tooMany
		}
	case o.watches.Add(1) > mostWatches:
		o.watches.Add(-1)
		return tooMany
	}
	return ""
}

// drop ends the observation. The client goes on.
func (f *following) drop() {
	if f.tee != nil {
		f.tee.fail(errBehind)
	}
}

// Write implements exchange.Follower.
func (f *following) Write(p []byte) {
	defer f.observer.Guard.Caught("observer", f.drop)
	for _, t := range []*tee{f.tee, f.anew} {
		if t != nil {
			t.write(p)
		}
	}
}

// End implements exchange.Follower.
func (f *following) End(whole bool) {
	for _, t := range []*tee{f.tee, f.anew} {
		if t != nil {
			t.end(whole)
		}
	}
	if f.read.Watch {
		f.observer.mu.Lock()
		defer f.observer.mu.Unlock()
		delete(f.observer.moved, f)
		if f.late { // one that no name tells apart from it may have listed meanwhile
			f.observer.listed.Put(f.observer.who(f.client, f.read.Scope), list{none: true}, time.Now(), forever)
		}
	}
}

func (f *following) skip(why string, n int) { f.observer.results.skip(why, n) }

// mostLogged is how many differences of one kind are logged.
const mostLogged = 100

// differ notes a difference.
func (f *following) differ(k Kind, key string, server, cache uint64) {
	verb := "list"
	if f.read.Watch {
		verb = "watch"
	}
	o := f.observer
	n := o.results.differ(Difference{
		Resource: f.read.Resource, Verb: verb, Kind: k, Key: key, ResourceVersion: server, CacheVersion: cache})
	if n <= mostLogged {
		o.Guard.Log.Warn("The cache would have answered otherwise than kube-apiserver", "resource", f.read.Resource,
			"verb", verb, "reason", k, "resourceVersion", server, "cacheResourceVersion", cache)
	}
	if o.OnDifference != nil {
		o.OnDifference(f.read.GVR, k)
	}
}

// whyNot returns the reason for an error of the tee, or of what it holds.
func whyNot(err error) string {
	switch {
	case errors.Is(err, errBehind):
		return behind
	case errors.Is(err, errMemory):
		return memory
	}
	return broken
}
