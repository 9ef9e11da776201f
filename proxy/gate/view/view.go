package view

import (
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/VictoriaMetrics/metrics"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/base/exposition"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
)

// Lean is the name of the view that every server has. It leaves out metadata.managedFields.
const Lean = "lean"

// Label of a namespace names the view in which its service accounts read, where a rule of clients says so.
const Label = "watchfan.io/view"

// View is one view. It may be used from any goroutine.
type View struct {
	// Immutable.
	config   Config
	drops    []drop // at most mostDrops
	parts    []part
	account  fanout.Account
	requests map[string]*metrics.Counter // by verb
	writes   *metrics.Counter            // that were rejected

	// The forms in which the view serves objects. They are made when they are first wanted. Their number
	// is bounded by that of the resources that there are: nobody asks for the form of another.
	mu   sync.Mutex
	made map[form]made

	outdated atomic.Bool // another view has its name now, or none
}

// newView returns the view of a valid configuration. set may have its metrics already.
func newView(set *metrics.Set, c Config) *View {
	label := c.label()
	v := &View{
		config: c,
		account: fanout.Account{
			Subscriptions: set.GetOrCreateGauge(watchers+"{"+label+"}", nil),
			Bytes:         set.GetOrCreateCounter(sentBytes + "{" + label + "}"),
			Quiet:         set.GetOrCreateCounter(quietEvents + "{" + label + "}"),
		},
		requests: make(map[string]*metrics.Counter),
		writes:   apistatus.Rejections(set, "view_read_only"),
		made:     make(map[form]made),
	}
	for _, d := range c.Drop {
		v.drops = append(v.drops, parseDrop(d))
	}
	for _, p := range c.Resources {
		v.parts = append(v.parts, parsePart(p))
	}
	for _, verb := range verbs {
		v.requests[verb] = set.GetOrCreateCounter(c.requests(verb))
	}
	return v
}

var verbs = []string{"get", "list", "watch", "other"}

// label and requests are parts of names of the view's metrics.
func (c Config) label() string { return fmt.Sprintf("view=%q", c.Name) }
func (c Config) requests(verb string) string {
	return fmt.Sprintf("%s{%s,verb=%q}", requests, c.label(), verb)
}

// forget removes the metrics of a view that there is no longer.
func (v *View) forget(set *metrics.Set) {
	for _, name := range []string{watchers, sentBytes, quietEvents} {
		set.UnregisterMetric(name + "{" + v.config.label() + "}")
	}
	for _, verb := range verbs {
		set.UnregisterMetric(v.config.requests(verb))
	}
}

// Name returns the view's name; "" for none. v may be nil.
func (v *View) Name() string {
	if v == nil {
		return ""
	}
	return string(v.config.Name)
}

// Count counts a request of a verb in kube-apiserver's metrics: get, list, watch or other.
func (v *View) Count(verb string) { v.requests[verb].Inc() }

// ReadOnly returns the Status for a request that may change something.
func (v *View) ReadOnly() *metav1.Status {
	v.writes.Inc()
	return apistatus.Failure(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, fmt.Sprintf(
		"the view %s is read-only, because its objects lack fields: write to this server's URL without %s/%s",
		v.Name(), root, v.Name()))
}

// Outdated reports whether another view has the name of v now, or none. v may be nil, for no view.
func (v *View) Outdated() bool { return v != nil && v.outdated.Load() }

// retire makes v outdated. Objects let go of their forms in it when they are asked for others.
func (v *View) retire() {
	v.outdated.Store(true)
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, m := range v.made {
		m.retire()
	}
}

// SameFor reports whether both views have the same form of a resource. Either may be nil.
func (v *View) SameFor(other *View, of schema.GroupResource) bool {
	return reflect.DeepEqual(v.formOf(of), other.formOf(of))
}

// formOf returns the configuration of what the view has of a resource.
func (v *View) formOf(of schema.GroupResource) (c Config) {
	if v == nil {
		return c
	}
	c.Quiet = v.config.Quiet
	if i := v.partOf(of); i >= 0 {
		c.Resources = v.config.Resources[i : i+1]
	}
	for _, d := range v.config.Drop {
		if d.concerns(of) {
			c.Drop = append(c.Drop, d)
		}
	}
	return c
}

var (
	requests = exposition.Describe("counter", "watchfan_view_requests_total",
		"Requests in a view, by verb, served from a cache or passed through.")
	watchers = exposition.Describe("gauge", "watchfan_view_watchers",
		"Watches in a view that are served from the cache.")
	quietEvents = exposition.Describe("counter", "watchfan_view_quiet_events_total",
		"Events that watches in a quiet view were not sent, because the view shows nothing of them.")
	sentBytes = exposition.Describe("counter", "watchfan_view_sent_bytes_total",
		"Bytes of answers from caches to clients in a view, compressed if they are sent as gzip.")
)
