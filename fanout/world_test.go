package fanout_test

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http/httputil"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/sharding"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// The selectable fields of the kind that the tests use.
var (
	fieldLabels = []string{"spec.node", "spec.on"}
	fieldPaths  = []framing.Field{
		{Label: "spec.node", Paths: [][]string{{"spec", "node"}}},
		{Label: "spec.on", Paths: [][]string{{"spec", "on"}}, Default: "false"},
	}
)

// thing is one version of an object in the tests: the simple twin of framing.Object. A thing is not
// changed once made.
type thing struct {
	namespace, name string
	rv              uint64
	uid             string
	labels          map[string]string
	node            string
	on              bool
	data            string
	managed         string // the manager of its managedFields; "" for none
}

func (o *thing) key() string {
	if o.namespace == "" {
		return o.name
	}
	return o.namespace + "/" + o.name
}

// at returns the same thing with another resourceVersion.
func (o *thing) at(rv uint64) *thing {
	c := *o
	c.rv = rv
	return &c
}

func (o *thing) json() string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"kind":"Thing","apiVersion":"v1","metadata":{"name":%q,`, o.name)
	if o.namespace != "" {
		fmt.Fprintf(&b, `"namespace":%q,`, o.namespace)
	}
	if o.uid != "" {
		fmt.Fprintf(&b, `"uid":%q,`, o.uid)
	}
	fmt.Fprintf(&b, `"resourceVersion":"%d"`, o.rv)
	if o.labels != nil {
		b.WriteString(`,"labels":{`)
		for i, k := range slices.Sorted(maps.Keys(o.labels)) {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "%q:%q", k, o.labels[k])
		}
		b.WriteByte('}')
	}
	if o.managed != "" {
		b.WriteString(managedFields(o.managed))
	}
	fmt.Fprintf(&b, `},"spec":{"node":%q,"on":%v},"data":%q}`, o.node, o.on, o.data)
	return b.String()
}

// managedFields is the member of that name, with the comma before it. It is long enough to be packed.
func managedFields(manager string) string {
	return fmt.Sprintf(`,"managedFields":[{"manager":%q,"fieldsV1":{"f:data":{}%s}}]`, manager, strings.Repeat(`,"f:spec":{"f:node":{}}`, 10))
}

// managed finds that member in a line.
var managed = regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(managedFields("MANAGER")), "MANAGER", `\w+`))

// lean returns a line as a lean client gets it.
func lean(line string) string { return managed.ReplaceAllString(line, "") }

// dataless leaves out the data of things, and the annotations and managedFields that some have.
var dataless = framing.NewTrim(
	framing.Drop{Fields: []framing.Path{framing.Names("data")}},
	framing.Drop{Fields: []framing.Path{framing.Names("metadata", "managedFields")}, Selects: func(map[string]string) bool { return true }})

// withoutData are the clients of dataless.
var withoutData = &fanout.Variant{Trim: dataless}

// things' data is at their end.
var dataMember = regexp.MustCompile(`,"data":"[^"]*"`)

// trimmed returns a line as a client of a Variant gets it: nil, fanout.Lean or withoutData.
func trimmed(line string, v *fanout.Variant) string {
	switch v {
	case fanout.Lean:
		return lean(line)
	case withoutData:
		return dataMember.ReplaceAllString(lean(line), "")
	}
	return line
}

// line is a watch event as a client reads it.
func line(typ string, o *thing) string {
	return `{"type":"` + typ + `","object":` + o.json() + "}\n"
}

func bookmark(rv uint64, end bool) string {
	annotation := ""
	if end {
		annotation = `,"annotations":{"k8s.io/initial-events-end":"true"}`
	}
	return fmt.Sprintf(
		`{"type":"BOOKMARK","object":{"kind":"Thing","apiVersion":"v1","metadata":{"resourceVersion":"%d"%s},`+
			`"spec":{}}}`+"\n", rv, annotation)
}

// event returns what upstream would send.
func event(typ string, o *thing) framing.Event {
	ev, err := framing.NewScanner(framing.JSON, fieldPaths).Event([]byte(line(typ, o)))
	if err != nil {
		panic(err)
	}
	return ev
}

func object(o *thing) *framing.Object { return event("ADDED", o).Object }

// selector is the twin of a filter: the selectors of k8s.io/apimachinery, evaluated for each
// object.
type selector struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
	part      fanout.HashRanges // the zero value without a shard
	shards    sharding.Selector // its twin; nil without a shard
}

func (s selector) String() string {
	return fmt.Sprintf("%q, %q, %q, %v", s.namespace, s.labels, s.fields, s.shards)
}

// sel parses a namespace, a label selector and a field selector.
func sel(t testing.TB, namespace, ls, fs string) selector {
	t.Helper()
	l, err := labels.Parse(ls)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fields.ParseSelector(fs)
	if err != nil {
		t.Fatal(err)
	}
	return selector{namespace: namespace, labels: l, fields: f}
}

func (s selector) filter(t testing.TB) *fanout.Filter {
	t.Helper()
	f, ok := fanout.NewFilter(s.namespace, s.labels, s.fields, fieldLabels)
	if !ok {
		t.Fatalf("no filter for %v", s)
	}
	return f.Within(s.part)
}

func (s selector) matches(o *thing) bool {
	set := fields.Set{
		"metadata.name": o.name, "metadata.namespace": o.namespace,
		"spec.node": o.node, "spec.on": strconv.FormatBool(o.on),
	}
	return (s.namespace == "" || s.namespace == o.namespace) && s.labels.Matches(labels.Set(o.labels)) &&
		s.fields.Matches(set) && s.inShard(o)
}

// change is one event of the twin: the versions before and after.
type change struct {
	rv            uint64
	before, after *thing // nil for an object that is not there

	// For a relist's differences: sentVersion is the resourceVersion that a removal is sent with.
	// An object that changed first leaves selectors, and then comes to the others with its new
	// version.
	sentVersion      uint64
	leaving, staying bool
}

// line returns what a client with selector s gets of the change; "" for nothing.
func (c change) line(s selector) string {
	old := c.before != nil && s.matches(c.before)
	cur := c.after != nil && s.matches(c.after)
	switch {
	case c.leaving && cur, c.staying && !cur:
		return ""
	case cur && old:
		return line("MODIFIED", c.after)
	case cur:
		return line("ADDED", c.after)
	case old && c.sentVersion > 0:
		return line("DELETED", c.before.at(c.sentVersion))
	case old:
		return line("DELETED", c.before.at(c.rv))
	}
	return ""
}

// world is a cache with a running Flusher, and a twin that remembers everything.
type world struct {
	t       testing.TB
	cache   *fanout.Cache
	flusher *fanout.Flusher

	set *metrics.Set // of newWorld and newWorldEvery

	mu      sync.Mutex // held while several things must be consistent; guards the rest
	rv      uint64
	things  map[string]*thing
	history []change
	gaps    [][2]uint64 // of relists, both ends exclusive
	began   uint64      // the resourceVersion at which the cache last began anew; see reset
}

// roomy are limits that no test reaches by accident.
var roomy = fanout.Limits{HistoryEvents: 1 << 20, HistoryBytes: 1 << 30, ClientFrames: 1 << 20, ClientBytes: 1 << 30}

// newWorld returns an empty world at resourceVersion 100. The Flusher stops with the test.
func newWorld(t testing.TB, limits fanout.Limits) *world { return newWorldEvery(t, limits, 0) }

// newWorldEvery returns a world whose Flusher has an interval.
func newWorldEvery(t testing.TB, limits fanout.Limits, interval time.Duration) *world {
	set := metrics.NewSet()
	w := newWorldOf(t, limits, fanout.NewFlusher(2, interval, fanout.NewMetrics(set)))
	w.set = set
	return w
}

// newFlusher returns a Flusher whose metrics nobody reads.
func newFlusher(shards int) *fanout.Flusher {
	return fanout.NewFlusher(shards, 0, fanout.NewMetrics(metrics.NewSet()))
}

// newWorldOf returns a world with a given Flusher, and runs the Flusher.
func newWorldOf(t testing.TB, limits fanout.Limits, flusher *fanout.Flusher) *world {
	return newWorldWith(t, limits, flusher, nil)
}

// newWorldWith returns a world with a given Flusher, and an Indexer if x is not nil.
func newWorldWith(t testing.TB, limits fanout.Limits, flusher *fanout.Flusher, x *fanout.Indexer) *world {
	w := bareWorld(t, limits, flusher, 100)
	if x != nil {
		w.cache.IndexWith(x)
	}
	run(t, flusher)
	form, err := framing.NewScanner(framing.JSON, nil).Event([]byte(bookmark(1, true)))
	if err != nil {
		t.Fatal(err)
	}
	w.cache.SetBookmarkForm(form.Form)
	return w
}

// bareWorld returns an empty world at a resourceVersion, whose cache knows no form of bookmarks. It does
// not run the Flusher.
func bareWorld(t testing.TB, limits fanout.Limits, flusher *fanout.Flusher, rv uint64) *world {
	w := &world{t: t, cache: fanout.NewCache(limits, flusher), flusher: flusher, rv: rv, things: make(map[string]*thing)}
	if _, err := w.cache.Replace(nil, rv, time.Now()); err != nil {
		t.Fatal(err)
	}
	return w
}

// run runs a Flusher until the test ends.
func run(t testing.TB, f *fanout.Flusher) {
	cancel, done := begin(f)
	t.Cleanup(func() { cancel(); <-done })
}

// begin runs a Flusher until cancel is called.
func begin(f *fanout.Flusher) (cancel func(), stopped <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { f.Run(ctx); close(done) }()
	return cancel, done
}

// put creates or changes an object through the watch.
func (w *world) put(o thing) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rv++
	typ, before := "ADDED", w.things[o.key()]
	if before != nil {
		typ, o.uid = "MODIFIED", before.uid
	}
	after := o.at(w.rv)
	w.commit(change{rv: w.rv, before: before, after: after})
	if err := w.apply(event(typ, after)); err != nil {
		w.t.Error(err)
	}
	return w.rv
}

// apply applies a change, every other one as the last at hand.
func (w *world) apply(ev framing.Event) error {
	if w.rv%2 == 0 {
		return w.cache.ApplyLast(ev, time.Now())
	}
	return w.cache.Apply(ev, time.Now())
}

// del deletes an object through the watch.
func (w *world) del(key string) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rv++
	before := w.things[key]
	w.commit(change{rv: w.rv, before: before})
	if err := w.apply(event("DELETED", before.at(w.rv))); err != nil {
		w.t.Error(err)
	}
	return w.rv
}

func (w *world) commit(c change) {
	w.history = append(w.history, c)
	if c.leaving {
		return
	}
	if c.after != nil {
		w.things[c.after.key()] = c.after
	} else {
		delete(w.things, c.before.key())
	}
}

// advance is a bookmark from upstream.
func (w *world) advance(by uint64) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rv += by
	w.cache.Advance(w.rv)
	return w.rv
}

// relist lists the objects after changes that no watch has shown. It adds the differences to the
// history: the removals by key, with the resourceVersion before the list, and then the list's new
// versions by resourceVersion.
func (w *world) relist(mutate func(things map[string]*thing, rv uint64) uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, before := maps.Clone(w.things), w.rv
	w.rv = mutate(now, w.rv)
	w.gaps = append(w.gaps, [2]uint64{before, w.rv})
	var gone, changed []change
	leaving := 0
	for _, key := range slices.Sorted(maps.Keys(w.things)) {
		was, o := w.things[key], now[key]
		switch {
		case o == nil || o.uid != was.uid:
			gone = append(gone, change{rv: before + 1, sentVersion: before, before: was})
		case o.rv != was.rv && (!maps.Equal(o.labels, was.labels) || o.node != was.node || o.on != was.on):
			gone = append(gone, change{rv: before + 1, sentVersion: before, before: was, after: o, leaving: true})
			leaving++
		}
	}
	for _, o := range sorted(now) {
		was := w.things[o.key()]
		switch {
		case was == nil || was.uid != o.uid:
			changed = append(changed, change{rv: o.rv, after: o})
		case was.rv != o.rv:
			changed = append(changed, change{rv: o.rv, before: was, after: o, staying: true})
		}
	}
	slices.SortStableFunc(changed, func(a, b change) int { return cmp.Compare(a.rv, b.rv) })
	for _, c := range append(gone, changed...) {
		w.commit(c)
	}
	n, err := w.cache.Replace(objects(now), w.rv, time.Now())
	if want := len(changed) + len(gone) - leaving; err != nil || n != want {
		w.t.Errorf("Replace = %d, %v, want %d differences", n, err, want)
	}
}

// stateAt returns the things as of a resourceVersion, by key.
func (w *world) stateAt(rv uint64) []*thing {
	w.mu.Lock()
	defer w.mu.Unlock()
	state := make(map[string]*thing)
	for _, c := range w.history {
		switch {
		case c.rv > rv || c.leaving:
		case c.after != nil:
			state[c.after.key()] = c.after
		default:
			delete(state, c.before.key())
		}
	}
	return sorted(state)
}

// sorted returns things in the order of their keys.
func sorted(things map[string]*thing) (all []*thing) {
	for _, key := range slices.Sorted(maps.Keys(things)) {
		all = append(all, things[key])
	}
	return all
}

// objects returns things as a list has them.
func objects(things map[string]*thing) (list []*framing.Object) {
	for _, o := range sorted(things) {
		list = append(list, object(o))
	}
	return list
}

// initial returns the initial events of a watch as of a resourceVersion.
func (w *world) initial(s selector, rv uint64) []string {
	var lines []string
	for _, o := range w.stateAt(rv) {
		if s.matches(o) {
			lines = append(lines, line("ADDED", o))
		}
	}
	return lines
}

// since returns what a client with selector s gets after a resourceVersion.
func (w *world) since(s selector, rv uint64) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var lines []string
	for _, c := range w.history {
		if l := c.line(s); c.rv > rv && l != "" {
			lines = append(lines, l)
		}
	}
	return lines
}

// subscribe begins a subscription that does not time out in a test, unless r says so.
func (w *world) subscribe(s selector, r fanout.Request) *fanout.Subscription {
	w.t.Helper()
	r.Filter = s.filter(w.t)
	if r.Timeout == 0 {
		r.Timeout = 1000 * time.Hour
	}
	sub, err := w.cache.Subscribe(r)
	if err != nil {
		w.t.Fatalf("subscribe %v: %v", s, err)
	}
	return sub
}

// resume is a request from a resourceVersion on.
func resume(rv uint64) fanout.Request {
	return fanout.Request{Start: fanout.FromVersion, ResourceVersion: rv}
}

// begins checks whether a subscription begins, or is refused with an error.
func (w *world) begins(s selector, r fanout.Request, want error) {
	w.t.Helper()
	r.Filter, r.Timeout = s.filter(w.t), time.Hour
	sub, err := w.cache.Subscribe(r)
	if !errors.Is(err, want) {
		w.t.Errorf("%v, %+v: %v, want %v", s, r, err, want)
	}
	if err == nil {
		sub.Cancel()
	}
}

// client subscribes and starts with a recorder.
func (w *world) client(s selector, r fanout.Request) (*fanout.Subscription, *recorder) {
	w.t.Helper()
	sub, rec := w.subscribe(s, r), newRecorder()
	rec.gzip = r.Gzip
	w.flusher.Start(sub, rec)
	return sub, rec
}

// recorder is a Sink that accepts everything at once, and remembers it.
type recorder struct {
	gzip bool // as requested

	mu       sync.Mutex
	wire     bytes.Buffer
	at       []time.Time // of each write
	most     [2]int      // slices and bytes of the largest write
	endc     chan struct{}
	reason   fanout.Reason
	complete bool
	ends     int
}

func newRecorder() *recorder { return &recorder{endc: make(chan struct{})} }

func (r *recorder) Write(batch [][]byte) (blocked bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, b := range batch {
		r.wire.Write(b)
		n += len(b)
	}
	r.at = append(r.at, time.Now())
	r.most = [2]int{max(r.most[0], len(batch)), max(r.most[1], n)}
	return false, nil
}

func (r *recorder) Drain(func(error)) { panic("Drain of a sink that never blocks") }

func (r *recorder) End(reason fanout.Reason, complete bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reason, r.complete = reason, complete
	r.ends++
	close(r.endc) // panics if called twice
}

// lines returns the events received.
func (r *recorder) lines(t testing.TB) []string {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events(t, r.wire.Bytes())
}

// events returns the events in the received bytes. Compressed bytes must be one gzip member, which
// is whole if the stream has ended completely.
func (r *recorder) events(t testing.TB, wire []byte) []string {
	t.Helper()
	if r.gzip {
		return gunzip(t, wire, r.ended() && r.complete)
	}
	return unchunk(t, wire)
}

// gunzip returns the lines of a chunked gzip member without its beginning.
func gunzip(t testing.TB, wire []byte, whole bool) []string {
	t.Helper()
	body := bufio.NewReader(httputil.NewChunkedReader(io.MultiReader(strings.NewReader(framing.GzipStart),
		bytes.NewReader(wire), strings.NewReader(framing.LastChunk))))
	z, err := gzip.NewReader(body)
	if err != nil {
		t.Fatal(err)
	}
	z.Multistream(false)
	plain, err := io.ReadAll(z)
	switch {
	case whole && err != nil:
		t.Errorf("after %d plain bytes: %v", len(plain), err)
	case whole:
		if more, err := io.ReadAll(body); len(more) > 0 || err != nil {
			t.Errorf("%d bytes behind the member: %v", len(more), err)
		}
	case !errors.Is(err, io.ErrUnexpectedEOF):
		t.Errorf("after %d plain bytes: %v, and the stream has not ended", len(plain), err)
	}
	lines := strings.SplitAfter(string(plain), "\n")
	return lines[:len(lines)-1]
}

// unchunk returns the lines of a chunked body without its end.
func unchunk(t testing.TB, wire []byte) []string {
	t.Helper()
	body, err := io.ReadAll(httputil.NewChunkedReader(io.MultiReader(bytes.NewReader(wire),
		strings.NewReader(framing.LastChunk))))
	if err != nil {
		t.Errorf("not whole chunks: %v", err)
	}
	lines := strings.SplitAfter(string(body), "\n")
	return lines[:len(lines)-1]
}

// wantEnd waits for the end of a subscription.
func (r *recorder) wantEnd(t testing.TB, reason fanout.Reason, complete bool) {
	t.Helper()
	steady.Receive(t, fmt.Sprintf("end: %s", reason), r.endc)
	if r.reason != reason || r.complete != complete {
		t.Errorf("ended with %s, complete=%v, want %s, %v", r.reason, r.complete, reason, complete)
	}
}

func (r *recorder) ended() bool {
	select {
	case <-r.endc:
		return true
	default:
		return false
	}
}

// wantLines waits until as many lines have come as are wanted, and compares them.
func (r *recorder) wantLines(t testing.TB, want ...string) {
	t.Helper()
	var got []string
	steady.Until(t, "last line", func() error {
		if got = r.lines(t); len(got) < len(want) {
			return fmt.Errorf("got %q, want %q", got, want)
		}
		return nil
	})
	diff(t, got, want)
}

// diff reports the first difference between two sequences.
func diff(t testing.TB, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		g, w := "nothing", "nothing"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("event %d of %d, want %d:\n got %s\nwant %s", i, len(got), len(want), g, w)
			return
		}
	}
}

// everything selects everything.
func everything(t testing.TB) selector { return sel(t, "", "", "") }

// named returns a thing in namespace a.
func named(name string, labels ...string) thing {
	o := thing{namespace: "a", name: name}
	for i := 0; i < len(labels); i += 2 {
		if o.labels == nil {
			o.labels = make(map[string]string)
		}
		o.labels[labels[i]] = labels[i+1]
	}
	return o
}
