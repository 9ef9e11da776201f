package diagnose

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/pass/passthrough"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/store/watchers"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
)

// PassedList is the watches that are passed through, as /debug/watchers shows them.
type PassedList struct {
	Total    int                    `json:"total"`    // passed through now
	Matching int                    `json:"matching"` // of these, match the query
	Reasons  map[request.Reason]int `json:"reasons"`  // how many of these have each reason
	Watchers []PassedStatus         `json:"watchers"` // the first of these, the oldest first
}

// PassedStatus is one watch that is passed through. It holds nothing of any object and no credentials.
type PassedStatus struct {
	Reason request.Reason `json:"reason"`
	Asker
	TLS        bool               `json:"tls"`
	Started    time.Time          `json:"started"`
	AgeSeconds downstream.Seconds `json:"ageSeconds"`
}

// passedList returns the passed-through watches that q selects. A query for a state, a verdict or a
// lag selects none, because watchfan does not know those of a watch that it passes through.
func passedList(open []*passthrough.Watch, q watchersQuery, now time.Time) PassedList {
	ofServed := q.state != "" || q.reason != "" || q.minLagEvents > 0 || q.minLagBytes > 0
	list := PassedList{Total: len(open), Reasons: make(map[request.Reason]int), Watchers: []PassedStatus{}}
	for _, w := range open {
		s := passedStatus(w, now)
		if ofServed || !q.matches(s.Asker, s.AgeSeconds.Duration()) {
			continue
		}
		list.Matching++
		list.Reasons[s.Reason]++
		if len(list.Watchers) < q.limit {
			list.Watchers = append(list.Watchers, s)
		}
	}
	return list
}

func passedStatus(w *passthrough.Watch, now time.Time) PassedStatus {
	return PassedStatus{
		Reason: w.Why,
		Asker: Asker{
			User:          request.Shown(w.User),
			UserAgent:     request.Shown(w.UserAgent),
			Client:        w.Client,
			Resource:      request.Shown(w.Resource),
			Namespace:     request.Shown(w.Namespace),
			Name:          request.Shown(w.Name),
			LabelSelector: request.Shown(w.LabelSelector),
			FieldSelector: request.Shown(w.FieldSelector),
		},
		TLS:        w.TLS,
		Started:    lane.ShownAt(now, w.Started),
		AgeSeconds: downstream.InSeconds(now.Sub(w.Started)),
	}
}

// Counts lists how many watches have each reason, the most first.
func (l *PassedList) Counts() string {
	var parts []string
	reasons := slices.SortedFunc(maps.Keys(l.Reasons), func(a, b request.Reason) int {
		return cmp.Or(cmp.Compare(l.Reasons[b], l.Reasons[a]), cmp.Compare(a, b))
	})
	for _, r := range reasons {
		parts = append(parts, fmt.Sprintf("%d %s", l.Reasons[r], r))
	}
	return strings.Join(parts, ", ")
}

func (l *PassedList) writeText(w io.Writer) {
	if l.Total == 0 {
		return
	}
	fmt.Fprintf(w, "\n%d watches pass through, %d matching, %d shown: %s\n\n", l.Total, l.Matching, len(l.Watchers), l.Counts())
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "REASON\tAGE\tRESOURCE\tUSER\tUSER AGENT\tCLIENT\tSELECTOR\tWHY")
	for i := range l.Watchers {
		s := &l.Watchers[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Reason, watchers.Short(s.AgeSeconds.Duration()),
			s.Resource, s.User, s.UserAgent, s.Client, s.Selector(), passedBecause[s.Reason])
	}
	_ = table.Flush() // writes to memory
}

// PassedCount says how many watches of a resource are passed through for one reason. It names no
// client, so everybody may see it who may see the lanes.
type PassedCount struct {
	Resource string         `json:"resource"`
	Reason   request.Reason `json:"reason"`
	Message  string         `json:"message"` // the reason in words
	Watches  int            `json:"watches"`
}

// mostPassedCounts bounds the resources and reasons that are shown. Clients choose the names.
const mostPassedCounts = 50

// PassedCounts counts watches by resource and reason, the most first.
func PassedCounts(open []*passthrough.Watch) []PassedCount {
	watches := make(map[PassedCount]int)
	for _, w := range open {
		watches[PassedCount{Resource: request.Shown(w.Resource), Reason: w.Why, Message: passedBecause[w.Why]}]++
	}
	counts := make([]PassedCount, 0, len(watches))
	for c, n := range watches {
		c.Watches = n
		counts = append(counts, c)
	}
	slices.SortFunc(counts, func(a, b PassedCount) int {
		return cmp.Or(cmp.Compare(b.Watches, a.Watches), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Reason, b.Reason))
	})
	return counts[:min(len(counts), mostPassedCounts)]
}

// passedBecause says each reason for which a watch is passed through in words.
var passedBecause = map[request.Reason]string{
	request.Path:           "the path has more than letters, digits and -._~:@, or does not lead to objects",
	request.Headers:        "the request has a body, or a header such as Origin that asks for more than a plain response",
	request.Parameters:     "kube-apiserver refuses a parameter, or it is not read here",
	request.Form:           "the client asks for YAML, or for a form that is not served here",
	request.Probe:          "another watchfan asks how far kube-apiserver is",
	request.TableRows:      "the client wants Tables that begin with the objects, whose ages only kube-apiserver computes",
	request.TableNoObjects: "the client wants Tables without the objects' metadata",
	request.Anonymous:      "the client has no credentials",
	request.Off:            "a rule of the configuration keeps the client from the caches",
	request.Observed:       "a rule of the configuration compares kube-apiserver's answers with the caches' first",
	request.Excluded:       "--exclude names the resource, or Secrets are asked for with watchfan's own rights",
	request.NotAllowed:     "kube-apiserver had not allowed it when it was asked",
	request.Aggregated:     "another API server answers for the resource",
	request.Resource:       "kube-apiserver has no such resource, or no watch of it",
	request.Definition:     "the custom resource was being redefined",
	request.Selector:       "the selector is costly, or has a field that is not known here",
	request.LaneBound:      "the resource has too many caches, or those that only this client uses hold too much",
	request.Fallback:       "this watchfan is a fall-back, and caches nothing",
	request.Mistrusted:     "the cache differed from kube-apiserver again after it had been listed again",
	request.NoLane:         "the resource can't be cached, or memory is short",
	request.LaneFilling:    "the resource was being listed for the first time, or watchfan may not list it",
	request.History:        "the events from there on were not known, or not new enough",
	request.Freshness:      "the cache was not proved to be new enough in time",
}
