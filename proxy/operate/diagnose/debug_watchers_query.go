package diagnose

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/base/option"
	"github.com/watchfan/watchfan/proxy/store/watchers"
)

// Bounds of a list of watches.
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

// watcherParameters are the parameters of a list, in the order in which messages name them. A single
// watch has only the first.
var watcherParameters = []string{"format", "limit", "sort",
	"user", "userAgent", "resource", "namespace", "selector", "state", "reason",
	"minLagEvents", "minLagBytes", "minAge"}

// parseWatchersQuery reads the query of r, which asks for one watch or for a list.
func parseWatchersQuery(r *http.Request, one bool) (q watchersQuery, err error) {
	known := watcherParameters
	if one {
		known = known[:1]
	}
	q = watchersQuery{limit: defaultShown, sort: "slowest", json: acceptsJSON(r)}
	query, err := parameters(r, known)
	if err != nil {
		return q, err
	}
	for _, p := range query {
		if err := q.set(p.key, p.value); err != nil {
			return q, fmt.Errorf("%s=%.50q: %w", p.key, p.value, err)
		}
	}
	return q, nil
}

func (q *watchersQuery) set(key, value string) (err error) {
	switch key {
	case "format":
		q.json, err = parseFormat(value)
	case "limit":
		q.limit, err = strconv.Atoi(value)
		if err != nil || q.limit < 1 || q.limit > mostShown {
			err = fmt.Errorf("give a number from 1 to %d", mostShown)
		}
	case "sort":
		q.sort = value
		err = oneOf(value, watcherSorts)
	case "user":
		q.user = value
	case "userAgent":
		q.userAgent = value
	case "resource":
		q.resource = value
	case "namespace":
		q.namespace = value
	case "selector":
		q.selector = value
	case "state":
		q.state = value
		err = oneOf(value, watcherStates)
	case "reason":
		q.reason = value
		err = oneOf(value, causeNames())
	case "minLagEvents":
		if q.minLagEvents, err = strconv.ParseUint(value, 10, 64); err != nil {
			err = errors.New("give a number")
		}
	case "minLagBytes":
		var size int64
		if size, err = option.ParseSize(value); err != nil || size < 0 {
			err = errors.New("give a number of bytes, for example 1048576 or 1Mi")
		}
		q.minLagBytes = uint64(size)
	case "minAge":
		if q.minAge, err = time.ParseDuration(value); err != nil {
			err = errors.New("give a duration as 30s or 10m")
		}
	}
	return err
}

func causeNames() (names []string) {
	for _, c := range watchers.Causes {
		names = append(names, string(c))
	}
	return names
}

// watcherStates are the states of watches.
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

// matches reports whether w matches the parameters that the register can answer. The others need an
// inspection of the watch; see list.
func (q *watchersQuery) matches(w *watchers.Watcher, now time.Time) bool {
	scope := w.Scope.Value()
	return (q.user == "" || q.user == w.User.Value()) &&
		strings.Contains(w.UserAgent.Value(), q.userAgent) &&
		(q.resource == "" || q.resource == w.Lane.GVR.Resource || q.resource == w.Lane.Resource()) &&
		(q.namespace == "" || q.namespace == scope.Namespace) &&
		(strings.Contains(scope.Labels, q.selector) || strings.Contains(scope.Fields, q.selector) ||
			strings.Contains(scope.Shard, q.selector)) &&
		now.Sub(w.Started.Time()) >= q.minAge
}

// watcherSorts are the orders of a list. Each begins with the worst, the most or the longest. Words
// are sorted from a to z.
var watcherSorts = []string{"slowest", "lag", "lagBytes", "age", "events", "bytes",
	"user", "userAgent", "resource", "selector", "state", "id"}

func compareWatched(by string, a, b watched) int {
	switch by {
	case "slowest":
		return cmp.Or(
			cmp.Compare(slices.Index(watchers.Causes, a.why), slices.Index(watchers.Causes, b.why)),
			cmp.Compare(b.e.Lag(), a.e.Lag()),
			cmp.Compare(b.e.Queued(), a.e.Queued()))
	case "lag":
		return cmp.Compare(b.e.State.LagEvents, a.e.State.LagEvents)
	case "lagBytes":
		return cmp.Compare(b.e.State.LagBytes, a.e.State.LagBytes)
	case "age":
		return cmp.Compare(a.w.Started, b.w.Started)
	case "events":
		return cmp.Compare(b.e.State.Events, a.e.State.Events)
	case "bytes":
		return cmp.Compare(b.e.State.Bytes, a.e.State.Bytes)
	case "user":
		return strings.Compare(a.w.User.Value(), b.w.User.Value())
	case "userAgent":
		return strings.Compare(a.w.UserAgent.Value(), b.w.UserAgent.Value())
	case "resource":
		return strings.Compare(a.e.Lane.Resource, b.e.Lane.Resource)
	case "selector":
		a, b := a.w.Scope.Value(), b.w.Scope.Value()
		return cmp.Or(strings.Compare(a.Labels, b.Labels), strings.Compare(a.Fields, b.Fields),
			strings.Compare(a.Shard, b.Shard))
	case "state":
		return strings.Compare(stateName(&a.e.State), stateName(&b.e.State))
	}
	return 0 // by id
}
