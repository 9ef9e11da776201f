package proxy

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/valyala/fasthttp"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/watchfan/watchfan/fanout"
)

// debugState is what /debug/lanes answers and the status page shows: the process, and each lane. Counters count from when the process or
// the lane began; whoever reads twice can tell how fast they grow.
type debugState struct {
	Version   string       `json:"version"`
	Time      time.Time    `json:"time"` // of this answer, on the clock of all the others
	StartTime time.Time    `json:"startTime"`
	Checks    []debugCheck `json:"checks"` // as /readyz lists them
	Totals    debugTotals  `json:"totals"`
	Lanes     []debugLane  `json:"lanes"` // by resource and encoding
}

type debugCheck struct {
	Name  string `json:"name"`
	Error string `json:"error,omitempty"` // "" is ok
}

type debugTotals struct {
	Clients         int               `json:"clients"`       // watches that are served from caches now
	ParkedClients   int               `json:"parkedClients"` // those that wait for their client to read
	Parks           uint64            `json:"parks"`
	DeliveredEvents uint64            `json:"deliveredEvents"` // by the lanes that there are now
	DeliveredBytes  uint64            `json:"deliveredBytes"`
	Flushes         uint64            `json:"flushes"`      // writes that this took
	EndedWatches    map[string]uint64 `json:"endedWatches"` // by reason
	Delivery        debugDelivery     `json:"delivery"`

	PassthroughRequests uint64 `json:"passthroughRequests"`
	PassthroughStreams  int64  `json:"passthroughStreams"` // watches, logs and upgrades that are passed through now
	PassthroughErrors   uint64 `json:"passthroughErrors"`  // upstream did not answer
}

// debugDelivery is a histogram of the time from an event's arrival to its first writes.
type debugDelivery struct {
	Buckets []debugBucket `json:"buckets"` // cumulative, ascending
	Count   uint64        `json:"count"`   // with those above all buckets
	Seconds float64       `json:"seconds"` // the sum
}

type debugBucket struct {
	Le    float64 `json:"le"` // seconds
	Count uint64  `json:"count"`
}

// laneState says whether a lane is served, and whether it is up to date.
type laneState string

const (
	stateSyncing   laneState = "Syncing"   // it is being filled for the first time
	stateSynced    laneState = "Synced"    // its upstream watch is open
	stateIdle      laneState = "Idle"      // so it is, and nobody uses the lane: it stops after --idle-timeout
	stateBroken    laneState = "Broken"    // its upstream watch is to begin again where it was; clients are served what there is
	stateRelisting laneState = "Relisting" // the same, but the collection has to be listed
)

// debugLane is one lane. Times are absent if what they are of has not happened.
type debugLane struct {
	Group    string    `json:"group"`
	Version  string    `json:"version"`
	Resource string    `json:"resource"`
	Encoding string    `json:"encoding"`
	State    laneState `json:"state"`
	Since    time.Time `json:"since"` // of the state

	ResourceVersion       string `json:"resourceVersion"`
	OldestResourceVersion string `json:"oldestResourceVersion"` // that a watch can go on from without asking upstream
	Objects               int    `json:"objects"`
	Bytes                 int64  `json:"bytes"`
	HistoryEvents         int    `json:"historyEvents"`
	HistoryBytes          int64  `json:"historyBytes"`
	Clients               int    `json:"clients"`
	Filters               int    `json:"filters"` // that clients have and that differ

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

	LastError *debugError `json:"lastError,omitempty"`
}

// debugError is why the upstream watch, or an attempt at one, last broke. What upstream said is in the log only.
type debugError struct {
	Kind string    `json:"kind"`
	Time time.Time `json:"time"`
}

// debugState may be called from any goroutine. It costs a few microseconds for each lane, whatever is in it.
func (s *Server) debugState() debugState {
	now := time.Now()
	d := debugState{Version: s.opts.Version, Time: now, StartTime: s.started, Totals: currentTotals(), Lanes: s.cached.lanes.debug()}
	for _, l := range d.Lanes {
		d.Totals.DeliveredEvents += l.DeliveredEvents
		d.Totals.DeliveredBytes += l.DeliveredBytes
	}
	for _, check := range s.health.readiness() {
		c := debugCheck{Name: check.name}
		if err := check.ok(); err != nil {
			c.Error = err.Error()
		}
		d.Checks = append(d.Checks, c)
	}
	return d
}

func currentTotals() debugTotals {
	t := fanout.CurrentTotals()
	d := debugTotals{
		Clients:             t.Subscriptions,
		ParkedClients:       t.Parked,
		Parks:               t.Parks,
		Flushes:             t.Flushes,
		EndedWatches:        make(map[string]uint64),
		Delivery:            debugDelivery{Seconds: t.DeliverySeconds},
		PassthroughRequests: passedThrough.Load(),
		PassthroughStreams:  passthroughStreams.Load(),
		PassthroughErrors:   passthroughErrors.Get(),
	}
	for reason, n := range t.Ended {
		d.EndedWatches[string(reason)] = n
	}
	for _, b := range t.Delivery {
		if d.Delivery.Count = b.Count; !math.IsInf(b.LE, 1) {
			d.Delivery.Buckets = append(d.Delivery.Buckets, debugBucket{b.LE, b.Count})
		}
	}
	return d
}

// debug describes all lanes. It holds the lanes' mutex to copy their names only.
func (ls *lanes) debug() []debugLane {
	type used struct {
		*lane
		users     int
		idleSince time.Time
	}
	ls.mu.Lock()
	all := make([]used, 0, len(ls.byKey))
	for _, l := range ls.byKey {
		all = append(all, used{l, l.users, l.idleSince})
	}
	ls.mu.Unlock()
	lanes := make([]debugLane, 0, len(all))
	for _, l := range all {
		lanes = append(lanes, l.debug(l.users, l.idleSince))
	}
	slices.SortFunc(lanes, func(a, b debugLane) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Encoding, b.Encoding))
	})
	return lanes
}

// debug describes the lane, which has users, or has had none since idleSince.
func (l *lane) debug(users int, idleSince time.Time) debugLane {
	s := l.cache.Stats()
	events, bytes := l.cache.Delivered()
	now := time.Now()
	d := debugLane{
		Group:                 l.gvr.Group,
		Version:               l.gvr.Version,
		Resource:              l.gvr.Resource,
		Encoding:              l.representation.String(),
		ResourceVersion:       strconv.FormatUint(s.ResourceVersion, 10),
		OldestResourceVersion: strconv.FormatUint(s.Oldest, 10),
		Objects:               s.Objects,
		Bytes:                 s.Bytes,
		HistoryEvents:         s.HistoryEvents,
		HistoryBytes:          s.HistoryBytes,
		Clients:               s.Subscriptions,
		Filters:               s.Groups,
		LastChange:            shownInstant(now, l.lastChange.Load()),
		LastHeard:             shownInstant(now, l.heard.Load()),
		Events:                l.metrics.events.Get(),
		DeliveredEvents:       events,
		DeliveredBytes:        bytes,
		Breaks:                l.metrics.breaks.Get(),
		Relists:               l.metrics.relists.Get(),
		Resets:                l.metrics.resets.Get(),
		Served:                l.metrics.sum(cachedRequests+"{", ""),
		Proofs:                l.metrics.sum(freshnessProofs+"{", `result="ok"`),
		Unproven:              l.metrics.sum(freshnessProofs+"{", `result="failed"`),
	}
	lastError, broken, began := l.lastError.Load(), instant(l.brokenSince.Load()), shownInstant(now, l.watchBegan.Load())
	switch {
	case !l.synced():
		d.State, d.Since = stateSyncing, shownAt(now, l.started)
	case !broken.IsZero():
		d.State, d.Since = stateBroken, shownAt(now, broken)
		if lastError != nil && lastError.relist && !lastError.at.Before(broken) {
			d.State = stateRelisting
		}
	case began == nil:
		d.State, d.Since = stateBroken, shownAt(now, l.started) // listed, and never yet watched
	case users == 0:
		d.State, d.Since, d.WatchBegan = stateIdle, shownAt(now, idleSince), began
	default:
		d.State, d.Since, d.WatchBegan = stateSynced, *began, began
	}
	if lastError != nil {
		d.LastError = &debugError{lastError.kind, shownAt(now, lastError.at)}
	}
	return d
}

// shownInstant is shownAt for a [fanout.Instant] that is stored atomically; nil for 0.
func shownInstant(now time.Time, ns int64) *time.Time {
	if ns == 0 {
		return nil
	}
	t := shownAt(now, instant(ns))
	return &t
}

// debugLanes answers /debug/lanes: JSON for ?format=json and for who accepts application/json, else a table.
func (s *Server) debugLanes(ctx *fasthttp.RequestCtx) {
	asJSON, err := debugFormat(ctx)
	if err != nil {
		ctx.Error(err.Error()+"\n", http.StatusBadRequest)
		return
	}
	ctx.Response.Header.Set("Cache-Control", "no-store")
	d := s.debugState()
	respond(ctx, asJSON, d, d.write)
}

// debugFormat reports whether JSON is asked for. The only parameter is format, json or text.
func debugFormat(ctx *fasthttp.RequestCtx) (asJSON bool, err error) {
	asJSON = acceptsJSON(ctx)
	for key, value := range ctx.QueryArgs().All() {
		switch {
		case string(key) != "format":
			return false, fmt.Errorf("parameter %.50q is unknown: there is format", key)
		case string(value) != "json" && string(value) != "text":
			return false, fmt.Errorf("format=%.50q is unknown: give json or text", value)
		}
		asJSON = string(value) == "json"
	}
	return asJSON, nil
}

// write writes d as a table, with ages as kubectl shows them.
func (d debugState) write(w io.Writer) {
	age := func(t *time.Time) string {
		if t == nil {
			return "-"
		}
		return duration.HumanDuration(d.Time.Sub(*t))
	}
	fmt.Fprintf(w, "watchfan %s, up %s\n\n", d.Version, age(&d.StartTime))
	for _, check := range d.Checks {
		if check.Error == "" {
			fmt.Fprintf(w, "[+]%s ok\n", check.Name)
		} else {
			fmt.Fprintf(w, "[-]%s failed: %s\n", check.Name, check.Error)
		}
	}
	t := d.Totals
	fmt.Fprintf(w, "\nclients    %d, %d of them parked (%d parks), %d evicted\n", t.Clients, t.ParkedClients, t.Parks, t.EndedWatches[string(fanout.Evicted)])
	fmt.Fprintf(w, "delivered  %d events, %d bytes, in %d writes\n", t.DeliveredEvents, t.DeliveredBytes, t.Flushes)
	fmt.Fprintf(w, "passed on  %d requests, %d of them not answered; %d streams now\n\n", t.PassthroughRequests, t.PassthroughErrors, t.PassthroughStreams)

	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "RESOURCE\tENCODING\tSTATE\tSINCE\tCLIENTS\tFILTERS\tOBJECTS\tBYTES\tVERSION\tOLDEST\tHISTORY\tHISTORY BYTES\t"+
		"LAST CHANGE\tLAST HEARD\tWATCH\tEVENTS\tSERVED\tBREAKS\tRELISTS\tPROOFS\tUNPROVEN\tLAST ERROR")
	for _, l := range d.Lanes {
		lastError := "-"
		if l.LastError != nil {
			lastError = fmt.Sprintf("%s, %s ago", l.LastError.Kind, age(&l.LastError.Time))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n",
			strings.TrimPrefix(l.Group+"/"+l.Version+"/"+l.Resource, "/"), l.Encoding, l.State, age(&l.Since), l.Clients, l.Filters,
			l.Objects, l.Bytes, l.ResourceVersion, l.OldestResourceVersion, l.HistoryEvents, l.HistoryBytes, age(l.LastChange), age(l.LastHeard),
			age(l.WatchBegan), l.Events, l.Served, l.Breaks, l.Relists, l.Proofs, l.Unproven, lastError)
	}
	table.Flush()
}
