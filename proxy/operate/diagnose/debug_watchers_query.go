package diagnose

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/base/option"
	"github.com/watchfan/watchfan/proxy/store/watchers"
)

const (
	defaultShown = 100
	mostShown    = 10_000
)

// watchersQuery is the query of /debug/watchers: which watches to show, and how.
type watchersQuery struct {
	json  bool
	limit int
	sort  string

	user, userAgent, resource, namespace, selector string
	state, reason                                  string
	minLagEvents, minLagBytes                      uint64
	minAge                                         time.Duration
}

// A watcherParameter is a parameter of a list, and the flag of watchfan top that sets it.
type watcherParameter struct {
	key, flag, usage string
	set              func(value string) error
}

// parameters returns the parameters, which set q, in the order in which messages name them. A single
// watch has only the first.
func (q *watchersQuery) parameters() []watcherParameter {
	text := func(to *string, known ...string) func(string) error {
		return func(value string) error {
			if *to = value; len(known) == 0 {
				return nil
			}
			return oneOf(value, known)
		}
	}
	var causes []string
	for _, c := range watchers.Causes {
		causes = append(causes, string(c))
	}
	return []watcherParameter{
		{"format", "", "", func(value string) (err error) { q.json, err = parseFormat(value); return err }},
		{"limit", "limit", "print at most so many `WATCHES` (default 100, on a terminal what fits)", q.setLimit},
		{"sort", "sort", "`ORDER` of the watches: " + strings.Join(watcherSorts, ", ") + " (default slowest)", text(&q.sort, watcherSorts...)},
		{"user", "user", "only watches of the user `NAME`", text(&q.user)},
		{"userAgent", "user-agent", "only watches whose user agent contains `TEXT`", text(&q.userAgent)},
		{"resource", "resource", "only watches of `RESOURCE`: pods, v1/pods, apps/v1/deployments", text(&q.resource)},
		{"namespace", "namespace", "only watches of `NAMESPACE`", text(&q.namespace)},
		{"selector", "selector", "only watches whose label or field selector contains `TEXT`", text(&q.selector)},
		{"state", "state", "only watches in `STATE`: " + strings.Join(watcherStates, ", "), text(&q.state, watcherStates...)},
		{"reason", "reason", "only watches with the verdict `REASON`: top shows the reasons", text(&q.reason, causes...)},
		{"minLagEvents", "min-lag-events", "only watches that are at least `EVENTS` behind", q.setMinLagEvents},
		{"minLagBytes", "min-lag-bytes", "only watches that are at least `BYTES` behind, for example 1Mi", q.setMinLagBytes},
		{"minAge", "min-age", "only watches that are at least `DURATION` old, for example 10m", q.setMinAge},
	}
}

// parseWatchersQuery reads the query of r, which asks for one watch or for a list.
func parseWatchersQuery(r *http.Request, one bool) (q watchersQuery, err error) {
	q = watchersQuery{limit: defaultShown, sort: "slowest", json: acceptsJSON(r)}
	known := q.parameters()
	if one {
		known = known[:1]
	}
	var keys []string
	for _, p := range known {
		keys = append(keys, p.key)
	}
	query, err := parameters(r, keys)
	if err != nil {
		return q, err
	}
	for _, p := range query {
		if err := known[slices.Index(keys, p.key)].set(p.value); err != nil {
			return q, fmt.Errorf("%s=%.50q: %w", p.key, p.value, err)
		}
	}
	return q, nil
}

func (q *watchersQuery) setLimit(value string) (err error) {
	if q.limit, err = strconv.Atoi(value); err != nil || q.limit < 1 || q.limit > mostShown {
		return fmt.Errorf("give a number from 1 to %d", mostShown)
	}
	return nil
}

func (q *watchersQuery) setMinLagEvents(value string) (err error) {
	if q.minLagEvents, err = strconv.ParseUint(value, 10, 64); err != nil {
		return errors.New("give a number")
	}
	return nil
}

func (q *watchersQuery) setMinLagBytes(value string) error {
	size, err := option.ParseSize(value)
	if err != nil || size < 0 {
		return errors.New("give a number of bytes, for example 1048576 or 1Mi")
	}
	q.minLagBytes = uint64(size)
	return nil
}

func (q *watchersQuery) setMinAge(value string) (err error) {
	if q.minAge, err = time.ParseDuration(value); err != nil {
		return errors.New("give a duration as 30s or 10m")
	}
	return nil
}

var watcherStates = []string{"InitialEvents", "Replaying", "Live", "Parked", "Ending", "Unknown"}

func stateName(st *fanout.State) string {
	switch {
	case st.Phase == fanout.Stopping:
		return "Ending"
	case !st.ParkedSince.IsZero():
		return "Parked"
	case st.Phase == fanout.InitialEvents:
		return "InitialEvents"
	case st.Phase == fanout.Replaying:
		return "Replaying"
	case st.Phase == fanout.Live:
		return "Live"
	}
	return "Unknown"
}

// matches reports whether a watch that is so old, its client, and what that asks for, are as the query says. The
// other parameters need an inspection of the watch; see list.
func (q *watchersQuery) matches(a Asker, age time.Duration) bool {
	return (q.user == "" || q.user == a.User) &&
		strings.Contains(a.UserAgent, q.userAgent) &&
		(q.resource == "" || q.resource == a.Resource || q.resource == path.Base(a.Resource)) &&
		(q.namespace == "" || q.namespace == a.Namespace) &&
		(strings.Contains(a.LabelSelector, q.selector) || strings.Contains(a.FieldSelector, q.selector) ||
			strings.Contains(a.ShardSelector, q.selector)) && age >= q.minAge
}

// watcherSorts are the orders of a list. Each begins with the worst, the most or the longest. Words
// are sorted from a to z.
var watcherSorts = []string{"slowest", "lag", "lagBytes", "age", "events", "bytes",
	"user", "userAgent", "resource", "selector", "state", "id"}

// watcherOrders compare watches by each of watcherSorts but id.
var watcherOrders = map[string]func(a, b watched) int{
	"slowest": func(a, b watched) int {
		return cmp.Or(
			cmp.Compare(slices.Index(watchers.Causes, a.why), slices.Index(watchers.Causes, b.why)),
			cmp.Compare(b.e.Lag(), a.e.Lag()),
			cmp.Compare(b.e.Queued(), a.e.Queued()))
	},
	"lag":       func(a, b watched) int { return cmp.Compare(b.e.State.LagEvents, a.e.State.LagEvents) },
	"lagBytes":  func(a, b watched) int { return cmp.Compare(b.e.State.LagBytes, a.e.State.LagBytes) },
	"age":       func(a, b watched) int { return cmp.Compare(a.w.Started, b.w.Started) },
	"events":    func(a, b watched) int { return cmp.Compare(b.e.State.Events, a.e.State.Events) },
	"bytes":     func(a, b watched) int { return cmp.Compare(b.e.State.Bytes, a.e.State.Bytes) },
	"user":      func(a, b watched) int { return cmp.Compare(a.w.User.Value(), b.w.User.Value()) },
	"userAgent": func(a, b watched) int { return cmp.Compare(a.w.UserAgent.Value(), b.w.UserAgent.Value()) },
	"resource":  func(a, b watched) int { return cmp.Compare(a.e.Lane.Resource, b.e.Lane.Resource) },
	"selector": func(a, b watched) int {
		x, y := a.w.Scope.Value(), b.w.Scope.Value()
		return cmp.Or(cmp.Compare(x.Labels, y.Labels), cmp.Compare(x.Fields, y.Fields), cmp.Compare(x.Shard, y.Shard))
	},
	"state": func(a, b watched) int { return cmp.Compare(stateName(&a.e.State), stateName(&b.e.State)) },
}

func compareWatched(by string, a, b watched) int {
	if order := watcherOrders[by]; order != nil {
		return cmp.Or(order(a, b), cmp.Compare(a.w.ID, b.w.ID))
	}
	return cmp.Compare(a.w.ID, b.w.ID)
}
