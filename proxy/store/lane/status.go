package lane

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/watchfan/watchfan/proxy/store/reflector"
)

// laneState says whether a lane is served, and whether it is up to date.
type laneState string

const (
	stateSyncing   laneState = "Syncing"   // its cache is being filled for the first time
	stateSynced    laneState = "Synced"    // its upstream watch is open
	stateIdle      laneState = "Idle"      // like synced, without clients: it stops after --idle-timeout
	stateBroken    laneState = "Broken"    // its upstream watch will resume; clients get what the cache has
	stateRelisting laneState = "Relisting" // its collection will be listed again; clients get what the cache has
)

// Status is one lane as /debug/lanes shows it. The time of an event that has not happened is
// absent.
type Status struct {
	Group    string    `json:"group"`
	Version  string    `json:"version"`
	Resource string    `json:"resource"`
	Encoding string    `json:"encoding"`
	Table    bool      `json:"table,omitempty"` // it keeps rows of events, and no objects that could be compared
	State    laneState `json:"state"`
	Since    time.Time `json:"since"` // of the state

	ResourceVersion       string `json:"resourceVersion"`
	OldestResourceVersion string `json:"oldestResourceVersion"` // from which a watch can resume without asking upstream
	Objects               int    `json:"objects"`
	Bytes                 int64  `json:"bytes"`
	HistoryEvents         int    `json:"historyEvents"`
	HistoryBytes          int64  `json:"historyBytes"`
	Clients               int    `json:"clients"`
	Filters               int    `json:"filters"`          // of the clients, each counted once
	KeptAs                string `json:"keptAs,omitempty"` // "lane" or "copy" if it counts for one source, which alone uses it

	LastChange *time.Time `json:"lastChange,omitempty"`
	LastHeard  *time.Time `json:"lastHeard,omitempty"`  // when the upstream watch last brought anything, or began
	WatchBegan *time.Time `json:"watchBegan,omitempty"` // the upstream watch that is open
	Events     uint64     `json:"events"`               // changes that upstream has sent

	DeliveredEvents uint64 `json:"deliveredEvents"`
	DeliveredBytes  uint64 `json:"deliveredBytes"`

	Breaks   uint64 `json:"breaks"`
	Relists  uint64 `json:"relists"`
	Resets   uint64 `json:"resets"`
	Served   uint64 `json:"served"` // gets, lists and watches
	Proofs   uint64 `json:"proofs"` // of freshness
	Unproven uint64 `json:"unproven"`

	Filled    *filledStatus    `json:"filled,omitempty"`
	SelfCheck *CheckedStatus   `json:"selfCheck,omitempty"`
	LastError *laneErrorStatus `json:"lastError,omitempty"`
}

// filledStatus says how the lane's cache was filled for the first time.
type filledStatus struct {
	Source    string    `json:"source"`              // upstream, or sibling
	Address   string    `json:"address,omitempty"`   // of the sibling
	NoSibling string    `json:"noSibling,omitempty"` // why upstream was asked after siblings had been
	Time      time.Time `json:"time"`
	Seconds   float64   `json:"seconds"` // that it took
	Objects   int       `json:"objects"`
}

// From names the source: kube-apiserver, or the sibling's address.
func (s *filledStatus) From() string {
	if s.Address != "" {
		return "sibling " + s.Address
	}
	return "kube-apiserver"
}

// filled describes how a cache was filled, nil for one that has not been filled.
func filled(now time.Time, f *reflector.Filled) *filledStatus {
	if f == nil {
		return nil
	}
	s := &filledStatus{
		Source: "upstream", NoSibling: string(f.NoSibling), Time: ShownAt(now, f.At), Seconds: f.Took.Seconds(), Objects: f.Objects,
	}
	if f.Sibling != "" {
		s.Source, s.Address = "sibling", f.Sibling
	}
	return s
}

// laneErrorStatus says why the upstream watch, or an attempt at one, last broke. Upstream's own
// words are in the log only.
type laneErrorStatus struct {
	Kind string    `json:"kind"`
	Time time.Time `json:"time"`
}

// Status describes all lanes, ordered by resource and encoding. It holds the lanes' mutex only to
// copy the list of them.
func (ls *Lanes) Status() []Status {
	type used struct {
		*Lane
		users     int
		idleSince time.Time
		kept      string
	}
	ls.mu.Lock()
	all := make([]used, 0, len(ls.byKey))
	for _, l := range ls.byKey {
		all = append(all, used{l, l.users, l.idleSince, l.keptAs()})
	}
	ls.mu.Unlock()
	lanes := make([]Status, 0, len(all))
	for _, l := range all {
		status := l.status(l.users, l.idleSince)
		status.KeptAs = l.kept
		lanes = append(lanes, status)
	}
	slices.SortFunc(lanes, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource),
			cmp.Compare(a.Version, b.Version), cmp.Compare(a.Encoding, b.Encoding))
	})
	return lanes
}

// form returns the lane's representation, and the number of a lane with a selection. The selector
// itself is not shown, because clients choose it.
func (l *Lane) form() string {
	if l.selects() {
		return fmt.Sprintf("%s selection %d", l.Representation, l.number)
	}
	return l.Representation.String()
}

// status describes the lane, which has users, or has had none since idleSince.
func (l *Lane) status(users int, idleSince time.Time) Status {
	s := l.Cache.Stats()
	events, bytes := l.Cache.Delivered()
	now, up := time.Now(), l.reflector.Status()
	d := Status{
		Group:                 l.GVR.Group,
		Version:               l.GVR.Version,
		Resource:              l.GVR.Resource,
		Encoding:              l.form(),
		Table:                 l.Table != "",
		ResourceVersion:       strconv.FormatUint(s.ResourceVersion, 10),
		OldestResourceVersion: strconv.FormatUint(s.Oldest, 10),
		Objects:               s.Objects,
		Bytes:                 s.Bytes,
		HistoryEvents:         s.HistoryEvents,
		HistoryBytes:          s.HistoryBytes,
		Clients:               s.Subscriptions,
		Filters:               s.Groups,
		LastChange:            shownOrNil(now, up.LastChange),
		LastHeard:             shownOrNil(now, up.LastHeard),
		Events:                up.Changes,
		DeliveredEvents:       events,
		DeliveredBytes:        bytes,
		Breaks:                up.Breaks,
		Relists:               up.Relists,
		Resets:                up.Resets,
		Served:                l.metrics.sum(cachedRequests+"{", ""),
		Proofs:                l.metrics.sum(freshnessProofs+"{", `result="ok"`),
		Unproven:              l.metrics.sum(freshnessProofs+"{", `result="failed"`),
		Filled:                filled(now, up.Filled),
		SelfCheck:             l.checkedStatus(now),
	}
	d.State, d.Since, d.WatchBegan = l.state(now, up, users, idleSince)
	if last := up.LastBreak; last != nil {
		d.LastError = &laneErrorStatus{last.Kind, ShownAt(now, last.At)}
	}
	return d
}

// state returns the lane's state, since when it has that state, and when the open upstream watch
// began, nil if there is none.
func (l *Lane) state(now time.Time, up reflector.Status, users int, idleSince time.Time) (
	state laneState, since time.Time, watchBegan *time.Time,
) {
	broken, last, began := up.BrokenSince, up.LastBreak, shownOrNil(now, up.WatchBegan)
	switch {
	case !l.Synced():
		return stateSyncing, ShownAt(now, l.started), nil
	case !broken.IsZero():
		state = stateBroken
		if last != nil && last.Relist && !last.At.Before(broken) {
			state = stateRelisting
		}
		return state, ShownAt(now, broken), nil
	case began == nil:
		return stateBroken, ShownAt(now, l.started), nil // listed, but not watched yet
	case users == 0:
		return stateIdle, ShownAt(now, idleSince), began
	}
	return stateSynced, *began, began
}

// shownOrNil is ShownAt, and nil for the zero time.
func shownOrNil(now, t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = ShownAt(now, t)
	return &t
}

// ShownAt returns t, which has a reading of the monotonic clock, by the wall clock of now. The wall
// clock may have been set between t and now.
func ShownAt(now, t time.Time) time.Time { return now.Add(t.Sub(now)).UTC() }

// Health is how a lane is doing, as far as the verdict on a watch needs it.
type Health struct {
	Resource    string
	BrokenSince time.Time // zero while there is a watch upstream
	Heard       time.Time // when the upstream watch last brought anything
	LastChange  time.Time // zero for never
	Changes     uint64    // that upstream has sent
	Unreachable bool      // kube-apiserver fails its readiness check
	NoBookmarks bool      // upstream has no bookmarks for the resource
}

// HealthOf returns how the lane is doing. unreachable says whether kube-apiserver fails its
// readiness check.
func HealthOf(l *Lane, unreachable bool) Health {
	up := l.reflector.Status()
	return Health{
		Resource:    l.Resource(),
		BrokenSince: up.BrokenSince,
		Heard:       up.LastHeard,
		LastChange:  up.LastChange,
		Changes:     l.Changes(),
		Unreachable: unreachable,
		NoBookmarks: l.Uncached(),
	}
}

// BrokenFor returns for how long the lane has had no upstream watch.
func (l *Lane) BrokenFor() time.Duration {
	since := l.reflector.Status().BrokenSince
	if since.IsZero() {
		return 0
	}
	return time.Since(since)
}

// Changes returns how many changes upstream has sent.
func (l *Lane) Changes() uint64 { return l.reflector.Changes() }
