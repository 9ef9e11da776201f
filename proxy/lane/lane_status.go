package lane

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// laneState says whether a lane is served, and whether it is up to date.
type laneState string

const (
	stateSyncing   laneState = "Syncing"   // it is being filled for the first time
	stateSynced    laneState = "Synced"    // its upstream watch is open
	stateIdle      laneState = "Idle"      // its upstream watch is open, and nobody uses the lane: it stops after --idle-timeout
	stateBroken    laneState = "Broken"    // its upstream watch is about to resume where it was; clients get what there is
	stateRelisting laneState = "Relisting" // its collection is about to be listed anew; clients get what there is
)

// Status is one lane as /debug/lanes shows it. The time of what has not happened is absent.
type Status struct {
	Group    string    `json:"group"`
	Version  string    `json:"version"`
	Resource string    `json:"resource"`
	Encoding string    `json:"encoding"`
	State    laneState `json:"state"`
	Since    time.Time `json:"since"` // of the state

	ResourceVersion       string `json:"resourceVersion"`
	OldestResourceVersion string `json:"oldestResourceVersion"` // from which a watch can resume without asking upstream
	Objects               int    `json:"objects"`
	Bytes                 int64  `json:"bytes"`
	HistoryEvents         int    `json:"historyEvents"`
	HistoryBytes          int64  `json:"historyBytes"`
	Clients               int    `json:"clients"`
	Filters               int    `json:"filters"` // different ones of the clients

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

	LastError *laneErrorStatus `json:"lastError,omitempty"`
}

// laneErrorStatus is why the upstream watch, or an attempt at one, last broke. What upstream said
// is in the log only.
type laneErrorStatus struct {
	Kind string    `json:"kind"`
	Time time.Time `json:"time"`
}

// Status describes all lanes, by resource and encoding. It holds the lanes' mutex only to copy
// which there are.
func (ls *Lanes) Status() []Status {
	type used struct {
		*Lane
		users     int
		idleSince time.Time
	}
	ls.mu.Lock()
	all := make([]used, 0, len(ls.byKey))
	for _, l := range ls.byKey {
		all = append(all, used{l, l.users, l.idleSince})
	}
	ls.mu.Unlock()
	lanes := make([]Status, 0, len(all))
	for _, l := range all {
		lanes = append(lanes, l.status(l.users, l.idleSince))
	}
	slices.SortFunc(lanes, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Encoding, b.Encoding))
	})
	return lanes
}

// status describes the lane, which has users, or has had none since idleSince.
func (l *Lane) status(users int, idleSince time.Time) Status {
	s := l.Cache.Stats()
	events, bytes := l.Cache.Delivered()
	now := time.Now()
	d := Status{
		Group:                 l.GVR.Group,
		Version:               l.GVR.Version,
		Resource:              l.GVR.Resource,
		Encoding:              l.Representation.String(),
		ResourceVersion:       strconv.FormatUint(s.ResourceVersion, 10),
		OldestResourceVersion: strconv.FormatUint(s.Oldest, 10),
		Objects:               s.Objects,
		Bytes:                 s.Bytes,
		HistoryEvents:         s.HistoryEvents,
		HistoryBytes:          s.HistoryBytes,
		Clients:               s.Subscriptions,
		Filters:               s.Groups,
		LastChange:            shownMoment(now, &l.Health.lastChange),
		LastHeard:             shownMoment(now, &l.Health.lastHeard),
		Events:                l.Changes(),
		DeliveredEvents:       events,
		DeliveredBytes:        bytes,
		Breaks:                l.Metrics.breaks.Get(),
		Relists:               l.Metrics.relists.Get(),
		Resets:                l.Metrics.resets.Get(),
		Served:                l.Metrics.sum(cachedRequests+"{", ""),
		Proofs:                l.Metrics.sum(freshnessProofs+"{", `result="ok"`),
		Unproven:              l.Metrics.sum(freshnessProofs+"{", `result="failed"`),
	}
	lastError := l.Health.lastError.Load()
	d.State, d.Since, d.WatchBegan = l.state(now, lastError, users, idleSince)
	if lastError != nil {
		d.LastError = &laneErrorStatus{lastError.kind, ShownAt(now, lastError.at)}
	}
	return d
}

// state returns the lane's state, since when it has it, and when the upstream watch began that is
// open, nil for none.
func (l *Lane) state(now time.Time, lastError *laneError, users int, idleSince time.Time) (
	state laneState, since time.Time, watchBegan *time.Time,
) {
	broken, began := l.Health.brokenSince.time(), shownMoment(now, &l.Health.watchBegan)
	switch {
	case !l.Synced():
		return stateSyncing, ShownAt(now, l.started), nil
	case !broken.IsZero():
		state = stateBroken
		if lastError != nil && lastError.relist && !lastError.at.Before(broken) {
			state = stateRelisting
		}
		return state, ShownAt(now, broken), nil
	case began == nil:
		return stateBroken, ShownAt(now, l.started), nil // listed, and never yet watched
	case users == 0:
		return stateIdle, ShownAt(now, idleSince), began
	}
	return stateSynced, *began, began
}

// shownMoment is shownAt for a moment; nil for no time.
func shownMoment(now time.Time, m *moment) *time.Time {
	t := m.time()
	if t.IsZero() {
		return nil
	}
	t = ShownAt(now, t)
	return &t
}

// ShownAt returns t, which has a reading of the monotonic clock, as the wall clock of now has it.
// The wall clock may have been set since t.
func ShownAt(now, t time.Time) time.Time { return now.Add(t.Sub(now)).UTC() }
