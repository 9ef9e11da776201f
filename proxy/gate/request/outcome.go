package request

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Reason is why a request is passed through and not answered from a cache. It is a word for
// metrics and pages.
type Reason string

// The reasons. Those up to Anonymous are seen in the request itself.
const (
	Path           Reason = "path"             // the path does not lead to objects, can be read in two ways, or is too long
	Headers        Reason = "headers"          // a body, a header that asks for more than a plain response, or a long token
	Parameters     Reason = "parameters"       // parameters that kube-apiserver refuses, or that are not read here
	Form           Reason = "representation"   // YAML, a Table that is not shared, a form that kube-apiserver lacks, or other fields to drop
	Probe          Reason = "probe"            // another watchfan asks how far kube-apiserver is
	TableRows      Reason = "table_rows"       // Tables that begin with rows, whose ages would be old
	TableNoObjects Reason = "table_no_objects" // Tables whose rows do not name their objects
	Anonymous      Reason = "anonymous"        // the client has no credentials

	Off      Reason = "off"      // a rule of the configuration says so
	Observed Reason = "observed" // the same, and the answer is compared with a cache's

	Fallback    Reason = "fallback"     // this watchfan is a fall-back, and caches nothing
	Excluded    Reason = "excluded"     // --exclude, or Secrets for a client with the proxy's rights
	NotAllowed  Reason = "not_allowed"  // kube-apiserver has not allowed it, and words the denial
	Aggregated  Reason = "aggregated"   // another API server answers for the resource, or may do so
	Resource    Reason = "resource"     // kube-apiserver has no such resource, or no watch of it
	Definition  Reason = "definition"   // the custom resource is being redefined
	Selector    Reason = "selector"     // a field that is not known here, or too costly
	Mistrusted  Reason = "mistrusted"   // the cache has been wrong, and listing again did not repair it
	NoLane      Reason = "no_lane"      // quarantine, short memory, or the proxy stops
	LaneBound   Reason = "lane_bound"   // the resource has as many caches as it may, or the client's own ones hold too much
	LaneFilling Reason = "lane_filling" // the collection is being listed for the first time
	History     Reason = "history"      // the events that it asks for are not known, or no longer new
	Freshness   Reason = "freshness"    // the cache was not proved to be new enough in time
	Cheaper     Reason = "cheaper"      // kube-apiserver answers it as easily; gets and lists only
)

// Reasons lists all reasons for which a watch is passed through.
var Reasons = []Reason{Path, Headers, Parameters, Form, Probe, TableRows, TableNoObjects, Anonymous, Off, Observed,
	Fallback, Excluded, NotAllowed, Aggregated, Resource, Definition, Selector, Mistrusted, NoLane, LaneBound, LaneFilling, History, Freshness}

// Outcome is how a part of the proxy ends a request: its response is there, it is refused, or it
// passes through to kube-apiserver. The zero Outcome is none of these, and the next part goes on. A
// refusal is written and recorded in one place only, which is the server's.
type Outcome struct {
	answered bool
	refusal  *metav1.Status
	why      Reason
}

// Answered is the outcome of a request whose response is there.
func Answered() Outcome { return Outcome{answered: true} }

// Refuse is the outcome of a request that is answered with st.
func Refuse(st *metav1.Status) Outcome { return Outcome{refusal: st} }

// PassThrough is the outcome of a request that kube-apiserver answers itself. why is not "".
func PassThrough(why Reason) Outcome { return Outcome{why: why} }

// Open reports whether nothing is decided yet.
func (o Outcome) Open() bool { return o == Outcome{} }

// Answered reports whether the response is there.
func (o Outcome) Answered() bool { return o.answered }

// Refusal returns the response to a refused request, nil if the request is not refused.
func (o Outcome) Refusal() *metav1.Status { return o.refusal }

// Why returns why the request passes through, "" if it does not.
func (o Outcome) Why() Reason { return o.why }
