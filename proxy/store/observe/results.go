package observe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/watchfan/watchfan/proxy/base/exposition"
)

// Kind is how a cache would have answered otherwise than kube-apiserver. It is a word for metrics and
// pages.
type Kind string

// The kinds of differences.
const (
	Lost      Kind = "lost"      // an event that kube-apiserver has sent
	Extra     Kind = "extra"     // an event that it has not sent, or not again
	Reordered Kind = "reordered" // an event behind a later one, or an object of a list elsewhere
	Bytes     Kind = "bytes"     // the same version in other bytes
	Early     Kind = "bookmark"  // an event behind a bookmark that promised it
	Stale     Kind = "stale"     // an object of a list, or of initial events, in another version, or missing
)

// Kinds lists all kinds.
var Kinds = []Kind{Lost, Extra, Reordered, Bytes, Early, Stale}

// What is not compared has a reason: one of request.Reason if no cache would answer, or one of these.
// It is a word for metrics and pages.
const (
	tooMany  = "too_many"  // watches or lists at a time, or lists take too much of a processor
	memory   = "memory"    // observations hold as much as they may
	behind   = "behind"    // the observer or the cache could not keep up
	relisted = "relist"    // the cache skipped history, and documents how it shows that
	before   = "before"    // events of before the cache could answer
	broken   = "broken"    // the answer was broken off, or can't be read
	unserved = "unserved"  // the cache can't follow the watch, or ends
	panicked = "panic"     // the observer has failed, and nothing else
	Get      = "get"       // its answer has no resourceVersion of its own
	Lean     = "lean"      // the client asks for fields to be left out, which kube-apiserver ignores
	Start    = "start"     // the watch begins at a resourceVersion that is not known
	Socket   = "websocket" // the watch is one of WebSocket's messages
	Form     = "form"      // the answer is in another form than the cache's
)

// reasons are those that have a series in the metrics. The others are counted as "other" there.
var reasons = []string{tooMany, memory, behind, relisted, before, broken, unserved, panicked,
	Get, Lean, Start, Socket, Form, "other"}

// Difference is one difference. It says nothing of an object but its name.
type Difference struct {
	Time     time.Time `json:"time"`
	Resource string    `json:"resource"` // as in logs: apps/v1/deployments
	Verb     string    `json:"verb"`
	Kind     Kind      `json:"kind"`
	Key      string    `json:"key,omitempty"` // name, or namespace/name; "" for the list as a whole
	// ResourceVersion is what kube-apiserver has sent, and CacheVersion what the cache would have; 0
	// for nothing.
	ResourceVersion uint64 `json:"resourceVersion"`
	CacheVersion    uint64 `json:"cacheResourceVersion"`
}

// mostRecent is how many differences are kept.
const mostRecent = 100

// ResourceReport is what was observed of one resource. The times are means.
type ResourceReport struct {
	Resource    string          `json:"resource"`
	Events      uint64          `json:"events"` // compared
	Lists       uint64          `json:"lists"`  // compared, initial events included
	Differences map[Kind]uint64 `json:"differences"`
	// LaterSeconds is how much later the cache's events came than kube-apiserver's; negative for sooner.
	LaterSeconds float64 `json:"laterSeconds"`
	// ListSeconds is how long kube-apiserver took for a list, and CacheListSeconds the cache.
	ListSeconds      float64 `json:"listSeconds"`
	CacheListSeconds float64 `json:"cacheListSeconds"`
}

// Report is what was observed since the process began, as the pages show it.
type Report struct {
	Since   time.Time `json:"since,omitzero"` // of the first observation
	Verdict string    `json:"verdict"`

	Events      uint64            `json:"events"`
	Lists       uint64            `json:"lists"`
	Differences map[Kind]uint64   `json:"differences"`
	Skipped     map[string]uint64 `json:"skipped"` // events, lists and watches, by reason

	Watches     int `json:"watches"` // observed now
	Lanes       int `json:"lanes"`   // that would serve these
	MostWatches int `json:"mostWatches"`
	MostLanes   int `json:"mostLanes"` // at that time

	Resources []ResourceReport `json:"resources"`
	// Recent are the latest differences, the newest first.
	Recent []Difference `json:"recent"`
}

var (
	observedEvents = exposition.Describe("counter", "watchfan_observed_events_total",
		"Events of passed-through watches that were compared with what a cache would have sent.")
	observedLists = exposition.Describe("counter", "watchfan_observed_lists_total",
		"Passed-through lists, and initial events of watches, that were compared with what a cache would have answered.")
	observedDifferences = exposition.Describe("counter", "watchfan_observed_differences_total",
		"Differences between kube-apiserver's answers and those of a cache, by kind. Each is a bug.")
	observedSkipped = exposition.Describe("counter", "watchfan_observed_skipped_total",
		"Events, lists and watches of observed clients that were not compared, by reason.")
	observedWatches = exposition.Describe("gauge", "watchfan_observed_watches",
		"Open watches that are passed through and compared.")
	observedLanes = exposition.Describe("gauge", "watchfan_observed_lanes",
		"Upstream watches that would serve the observed watches.")
	observedBytes = exposition.Describe("gauge", "watchfan_observed_held_bytes",
		"Memory that observations hold.")
	observedListSeconds = exposition.Describe("counter", "watchfan_observed_list_seconds_total",
		"Time that the compared lists took, by who answered.")
	observedLaterSeconds = exposition.Describe("counter", "watchfan_observed_event_seconds_total",
		"Time by which compared events came later from one than from the other, by the later one.")
)

// Who answers, in metrics.
var (
	byServer = `{by="kube-apiserver"}`
	byCache  = `{by="watchfan"}`
)

// results are all that is known of observations. Its methods may be called from any goroutine.
type results struct {
	events, lists *metrics.Counter
	differences   map[Kind]*metrics.Counter
	skips         map[string]*metrics.Counter
	seconds       map[string]*metrics.FloatCounter // of lists, and of later events

	mu        sync.Mutex
	report    Report                     // without Resources, Recent, Lanes and Verdict
	resources map[string]*ResourceReport // with sums in place of means
	recent    []Difference               // the oldest first
	lanes     map[any]int                // observed watches of each
}

func newResults(set *metrics.Set, held func() float64) *results {
	r := &results{
		events:      set.NewCounter(observedEvents),
		lists:       set.NewCounter(observedLists),
		differences: make(map[Kind]*metrics.Counter),
		skips:       make(map[string]*metrics.Counter),
		seconds:     make(map[string]*metrics.FloatCounter),
		report:      Report{Differences: make(map[Kind]uint64), Skipped: make(map[string]uint64)},
		resources:   make(map[string]*ResourceReport),
		lanes:       make(map[any]int),
	}
	for _, k := range Kinds {
		r.differences[k] = set.NewCounter(observedDifferences + `{kind="` + string(k) + `"}`)
	}
	for _, why := range reasons {
		r.skips[why] = set.NewCounter(observedSkipped + `{reason="` + why + `"}`)
	}
	for _, name := range []string{observedListSeconds, observedLaterSeconds} {
		r.seconds[name+byServer] = set.NewFloatCounter(name + byServer)
		r.seconds[name+byCache] = set.NewFloatCounter(name + byCache)
	}
	set.NewGauge(observedWatches, func() float64 { return float64(r.all().Watches) })
	set.NewGauge(observedLanes, func() float64 { return float64(r.all().Lanes) })
	set.NewGauge(observedBytes, held)
	return r
}

// mostResources bounds the resources of a report. Clients choose the names, but only of resources that
// kube-apiserver has let them read.
const mostResources = 1000

// ofLocked returns the sums of a resource.
func (r *results) ofLocked(resource string) *ResourceReport {
	s := r.resources[resource]
	if s == nil {
		s = &ResourceReport{Resource: resource, Differences: make(map[Kind]uint64)}
		if len(r.resources) < mostResources {
			r.resources[resource] = s
		}
	}
	return s
}

// event counts n events that were equal, and by how much later they came from the cache in all.
func (r *results) event(resource string, n int, later time.Duration) {
	if n == 0 {
		return
	}
	r.events.Add(n)
	by := byCache
	if later < 0 {
		by = byServer
	}
	r.seconds[observedLaterSeconds+by].Add(later.Abs().Seconds())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Events += uint64(n)
	s := r.ofLocked(resource)
	s.Events += uint64(n)
	s.LaterSeconds += later.Seconds()
}

// list counts a list that was compared, and how long it took.
func (r *results) list(resource string, server, cache time.Duration) {
	r.lists.Inc()
	r.seconds[observedListSeconds+byServer].Add(server.Seconds())
	r.seconds[observedListSeconds+byCache].Add(cache.Seconds())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Lists++
	s := r.ofLocked(resource)
	s.Lists++
	s.ListSeconds += server.Seconds()
	s.CacheListSeconds += cache.Seconds()
}

// skip counts n events, lists or watches that are not compared.
func (r *results) skip(why string, n int) {
	if n == 0 {
		return
	}
	counter := r.skips[why]
	if counter == nil {
		counter = r.skips["other"]
	}
	counter.Add(n)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Skipped[why] += uint64(n)
}

// differ notes a difference. It returns how many there are of its kind.
func (r *results) differ(d Difference) (n uint64) {
	d.Time = time.Now()
	r.differences[d.Kind].Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Differences[d.Kind]++
	r.ofLocked(d.Resource).Differences[d.Kind]++
	if len(r.recent) == mostRecent {
		r.recent = slices.Delete(r.recent, 0, 1)
	}
	r.recent = append(r.recent, d)
	return r.report.Differences[d.Kind]
}

// watch counts an observed watch of a lane until the caller calls over.
func (r *results) watch(lane any) (over func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lanes[lane]++
	r.report.Watches++
	if r.report.Watches > r.report.MostWatches {
		r.report.MostWatches, r.report.MostLanes = r.report.Watches, len(r.lanes)
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.report.Watches--
		if r.lanes[lane]--; r.lanes[lane] == 0 {
			delete(r.lanes, lane)
		}
	}
}

// begin notes that something is observed.
func (r *results) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.report.Since.IsZero() {
		r.report.Since = time.Now()
	}
}

// all returns the whole report.
func (r *results) all() Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	report := r.report
	report.Differences, report.Skipped = maps.Clone(report.Differences), maps.Clone(report.Skipped)
	report.Lanes = len(r.lanes)
	report.Resources, report.Recent = []ResourceReport{}, append([]Difference{}, r.recent...)
	for _, s := range r.resources {
		of := *s
		of.Differences = maps.Clone(of.Differences)
		of.LaterSeconds /= float64(max(of.Events, 1))
		of.ListSeconds /= float64(max(of.Lists, 1))
		of.CacheListSeconds /= float64(max(of.Lists, 1))
		report.Resources = append(report.Resources, of)
	}
	slices.SortFunc(report.Resources, func(a, b ResourceReport) int { return cmp.Compare(a.Resource, b.Resource) })
	slices.Reverse(report.Recent)
	report.Verdict = report.verdict(time.Now())
	return report
}

// verdict says in words what was found.
func (r *Report) verdict(now time.Time) string {
	if r.Since.IsZero() {
		return "No client is observed."
	}
	var found []string
	for _, k := range Kinds {
		if n := r.Differences[k]; n > 0 {
			found = append(found, grouped(n)+" "+string(k))
		}
	}
	outcome := "no difference"
	switch {
	case len(found) > 0:
		outcome = "DIFFERENCES: " + strings.Join(found, ", ")
	case r.Events+r.Lists == 0:
		outcome = "nothing to judge by yet"
	}
	text := fmt.Sprintf("%s events and %s lists compared over %s, %s", grouped(r.Events), grouped(r.Lists),
		duration.HumanDuration(now.Sub(r.Since)), outcome)
	if r.MostWatches > 0 {
		watches := plural(r.MostLanes, "watch", "watches")
		text += fmt.Sprintf("; kube-apiserver would have had %s in place of %d", watches, r.MostWatches)
	}
	return text + "."
}

func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + more
}

// grouped returns n with a comma between each three digits.
func grouped(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
