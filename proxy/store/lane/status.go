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
	FormBytes             int64  `json:"formBytes"` // of objects and history, as views and clients without managedFields get them
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

	Filled    *reflector.Filled `json:"filled,omitempty"`
	SelfCheck *Checked          `json:"selfCheck,omitempty"`
	LastError *reflector.Break  `json:"lastError,omitempty"` // upstream's own words are in the log only
}

// Status describes all lanes, ordered by resource and encoding.
func (ls *Lanes) Status() []Status {
	lanes := make([]Status, 0)
	for _, l := range ls.all() {
		lanes = append(lanes, l.status())
	}
	slices.SortFunc(lanes, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource),
			cmp.Compare(a.Version, b.Version), cmp.Compare(a.Encoding, b.Encoding))
	})
	return lanes
}

// form returns the lane's representation, and which one it is of those with a selection. The selector
// itself is not shown, because clients choose it.
func (l *Lane) form() string {
	if l.selects() {
		return fmt.Sprintf("%s selection %d", l.Representation, l.order)
	}
	return l.Representation.String()
}

// status describes the lane. It holds the lanes' mutex only for what that guards.
func (l *Lane) status() Status {
	l.lanes.mu.Lock()
	users, idleSince, kept := l.users, l.idleSince, l.keptAs()
	l.lanes.mu.Unlock()
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
		FormBytes:             s.FormBytes,
		Clients:               s.Subscriptions,
		Filters:               s.Groups,
		KeptAs:                kept,
		LastChange:            shownOrNil(now, up.LastChange),
		LastHeard:             shownOrNil(now, up.LastHeard),
		Events:                up.Changes,
		DeliveredEvents:       events,
		DeliveredBytes:        bytes,
		Breaks:                up.Breaks,
		Relists:               up.Relists,
		Resets:                up.Resets,
	}
	d.State, d.Since, d.WatchBegan = l.state(now, up, users, idleSince)
	d.Proofs, d.Unproven = l.Freshness.Attempts()
	for _, n := range l.metrics.served {
		d.Served += n.Get()
	}
	if f := up.Filled; f != nil {
		d.Filled = new(*f)
		d.Filled.Time = ShownAt(now, f.Time)
	}
	if c := l.checked.Load(); c != nil {
		d.SelfCheck = new(*c)
		d.SelfCheck.Time = ShownAt(now, c.Time)
	}
	if b := up.LastBreak; b != nil {
		d.LastError = new(*b)
		d.LastError.Time = ShownAt(now, b.Time)
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
		if last != nil && last.Relist && !last.Time.Before(broken) {
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
	reflector.Status
	Resource    string
	Unreachable bool // kube-apiserver fails its readiness check
	NoBookmarks bool // upstream has no bookmarks for the resource
}

// HealthOf returns how the lane is doing. unreachable says whether kube-apiserver fails its
// readiness check.
func HealthOf(l *Lane, unreachable bool) Health {
	return Health{l.reflector.Status(), l.Resource(), unreachable, l.Collection.Uncached()}
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
func (l *Lane) Changes() uint64 { return l.reflector.Status().Changes }

// CheckResult is the result of a comparison of a lane with upstream.
type CheckResult string

const (
	CheckEqual     CheckResult = "equal"
	CheckDifferent CheckResult = "different"
	CheckFailed    CheckResult = "failed" // the two could not be compared
)

// Checked is a comparison of a lane with upstream (package selfcheck), as /debug/lanes shows it. The
// last three fields are those of the last comparison that did not fail.
type Checked struct {
	Result  CheckResult `json:"result"`
	Time    time.Time   `json:"time"`    // when it ended
	Seconds float64     `json:"seconds"` // that it took, rests included

	ResourceVersion uint64 `json:"resourceVersion,omitempty,string"` // that the digest is of
	Digest          string `json:"digest,omitempty"`                 // of all objects' keys, uids and resourceVersions
	Objects         int    `json:"objects"`                          // in the digest
}

// NoteChecked notes a comparison of the lane with upstream, and counts it. If it found a difference, the
// collection is listed again. If it was listed again for that, and differs still, the resource is
// mistrusted. One goroutine at a time calls it.
func (l *Lane) NoteChecked(c Checked) {
	if last := l.checked.Load(); c.Result == CheckFailed && last != nil {
		c.ResourceVersion, c.Digest, c.Objects = last.ResourceVersion, last.Digest, last.Objects
	}
	l.checked.Store(&c)
	l.metrics.checks[c.Result].Inc()
	switch relists := l.reflector.Status().Relists; {
	case c.Result == CheckEqual:
		l.different = nil
	case c.Result != CheckDifferent:
	case l.different != nil && relists > *l.different:
		l.lanes.Mistrust(l.GVR, "self-checks find it different, and listing it again has not repaired it")
	default:
		l.different = &relists
		l.reflector.RequireRelist(c.ResourceVersion)
	}
}
