package diagnose

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/store/observe"
	"github.com/watchfan/watchfan/proxy/store/watchers"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
)

// DebugState is the answer of /debug/lanes, which the status page shows: the process and each lane.
// Counters begin with the process or the lane. Two answers show how fast they grow.
type DebugState struct {
	Version   string    `json:"version"`
	Time      time.Time `json:"time"` // of this answer, on the same clock as all other times in it
	StartTime time.Time `json:"startTime"`
	Upstream  string    `json:"upstream"` // address of kube-apiserver: scheme, host and port

	Processors       int   `json:"processors"`       // that the process may use at a time
	MemoryLimitBytes int64 `json:"memoryLimitBytes"` // 0 is no limit

	Checks  []DebugCheck  `json:"checks"` // as /readyz lists them
	Totals  DebugTotals   `json:"totals"`
	Now     *Sample       `json:"now,omitempty"` // the newest of /debug/history
	Watches DebugWatches  `json:"watches"`
	Lanes   []DebugLane   `json:"lanes"` // by resource and encoding
	Passed  []PassedCount `json:"passedWatches"`

	Mistrusted []lane.Mistrusted `json:"mistrusted,omitempty"` // resources whose caches were wrong

	// Observed is the answer of /debug/observed without objects; nil if no client is observed.
	Observed *observe.Report `json:"observed,omitempty"`

	// SelfCheckSeconds is the longest time between two self-checks of a lane; 0 is off.
	SelfCheckSeconds float64 `json:"selfCheckSeconds"`
}

// DebugLane is one lane, and when it is compared with kube-apiserver next.
type DebugLane struct {
	lane.Status
	SelfCheckDue *time.Time `json:"selfCheckDue,omitempty"`
}

// DebugWatches says how the watches that are served from caches reach their clients.
type DebugWatches struct {
	Protocols map[string]int `json:"protocols"` // HTTP/1.1, HTTP/2, WebSocket
	Gzip      int            `json:"gzip"`      // of all of them
}

// Check is a condition of /readyz, which says whether a new watch would be served now.
type Check struct {
	Name string
	OK   func() error // may be called from any goroutine, and must not block
}

// DebugCheck is the outcome of a Check.
type DebugCheck struct {
	Name  string `json:"name"`
	Error string `json:"error,omitempty"` // "" is ok
}

// RunChecks returns the outcomes of checks, in their order.
func RunChecks(checks []Check) (outcomes []DebugCheck) {
	for _, check := range checks {
		outcome := DebugCheck{Name: check.Name}
		if err := check.OK(); err != nil {
			outcome.Error = err.Error()
		}
		outcomes = append(outcomes, outcome)
	}
	return outcomes
}

// String returns the outcome as a line, as kube-apiserver's health endpoints write it.
func (c DebugCheck) String() string {
	if c.Error == "" {
		return "[+]" + c.Name + " ok\n"
	}
	return "[-]" + c.Name + " failed: " + c.Error + "\n"
}

type DebugTotals struct {
	Clients         int               `json:"clients"`       // watches that are served from caches now
	ParkedClients   int               `json:"parkedClients"` // watches that wait for their client to read
	Connections     int               `json:"connections"`   // of clients, open now
	HTTP2           int               `json:"http2Connections"`
	Parks           uint64            `json:"parks"`
	DeliveredEvents uint64            `json:"deliveredEvents"` // by all lanes, those that have ended included
	DeliveredBytes  uint64            `json:"deliveredBytes"`
	Flushes         uint64            `json:"flushes"`      // writes to clients
	EndedWatches    map[string]uint64 `json:"endedWatches"` // by reason
	Delivery        DebugDelivery     `json:"delivery"`

	UpstreamEvents uint64 `json:"upstreamEvents"` // changes that kube-apiserver has sent to all lanes

	ProcessorSeconds float64 `json:"processorSeconds"` // that the process has used
	MemoryBytes      int64   `json:"memoryBytes"`      // in use; 0 if unknown
	HeldBytes        int64   `json:"heldBytes"`        // of these, for clients; /debug/accounts says for whom

	PassthroughRequests uint64 `json:"passthroughRequests"`
	PassthroughStreams  int64  `json:"passthroughStreams"` // watches, logs and upgrades that are passed through now
	PassthroughErrors   uint64 `json:"passthroughErrors"`  // requests that upstream did not answer
}

// DebugDelivery is a histogram of the time from an event's arrival to its first writes.
type DebugDelivery struct {
	Buckets []DebugBucket `json:"buckets"` // cumulative, ascending
	Count   uint64        `json:"count"`   // includes deliveries above all buckets
	Seconds float64       `json:"seconds"` // sum
}

type DebugBucket struct {
	Le    float64 `json:"le"` // seconds
	Count uint64  `json:"count"`
}

// LanesPage answers /debug/lanes with what state returns.
func LanesPage(state func() DebugState) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { page(w, r, state) }
}

func (d *DebugState) age(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return duration.HumanDuration(d.Time.Sub(*t))
}

func (d DebugState) writeText(w io.Writer) {
	fmt.Fprintf(w, "watchfan %s, up %s, in front of %s\n\n", d.Version, d.age(&d.StartTime), d.Upstream)
	for _, check := range d.Checks {
		fmt.Fprint(w, check)
	}
	d.writeTotals(w)
	d.writeLanes(w)
	for _, m := range d.Mistrusted {
		fmt.Fprintf(w, "\n%s is passed through, for %s yet: %s\n", m.Resource, duration.HumanDuration(m.Until.Sub(d.Time)), m.Why)
	}
	if d.Observed != nil {
		fmt.Fprintf(w, "\nObserved clients: %s\n", d.Observed.Verdict)
	}
	if len(d.Passed) == 0 {
		return
	}
	fmt.Fprintln(w, "\nWatches that pass through:")
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "RESOURCE\tWATCHES\tREASON\tWHY")
	for _, p := range d.Passed {
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", p.Resource, p.Watches, p.Reason, p.Message)
	}
	table.Flush()
}

func (d *DebugState) writeTotals(w io.Writer) {
	t := d.Totals
	fmt.Fprintf(w, "\nclients    %d, %d of them parked (%d parks), %d evicted\n",
		t.Clients, t.ParkedClients, t.Parks, t.EndedWatches[string(fanout.Evicted)])
	fmt.Fprintf(w, "delivered  %d events, %d bytes, in %d writes\n", t.DeliveredEvents, t.DeliveredBytes, t.Flushes)
	fmt.Fprintf(w, "passed on  %d requests, %d of them not answered; %d streams now\n",
		t.PassthroughRequests, t.PassthroughErrors, t.PassthroughStreams)
	var watches []string
	for _, p := range slices.Sorted(maps.Keys(d.Watches.Protocols)) {
		watches = append(watches, fmt.Sprintf("%d watches over %s", d.Watches.Protocols[p], p))
	}
	fmt.Fprintf(w, "reached    %d connections, %d of them HTTP/2; %s, %d of them compressed\n",
		t.Connections, t.HTTP2, strings.Join(watches, ", "), d.Watches.Gzip)
	fmt.Fprintf(w, "process    %.1f s of processor time, %d processors, %d bytes of memory, limit %d, %d held for clients\n\n",
		t.ProcessorSeconds, d.Processors, t.MemoryBytes, d.MemoryLimitBytes, t.HeldBytes)
}

func (d *DebugState) writeLanes(w io.Writer) {
	age := d.age
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "RESOURCE\tENCODING\tSTATE\tSINCE\tCLIENTS\tFILTERS\tOBJECTS\tBYTES\tVERSION\tOLDEST\t"+
		"HISTORY\tHISTORY BYTES\tFORM BYTES\tLAST CHANGE\tLAST HEARD\tWATCH\tEVENTS\tSERVED\tBREAKS\tRELISTS\tPROOFS\tUNPROVEN\tFILLED FROM\tSELF-CHECK\tNEXT\tKEPT AS\tLAST ERROR")
	for _, l := range d.Lanes {
		lastError := "-"
		if l.LastError != nil {
			lastError = fmt.Sprintf("%s, %s ago", l.LastError.Kind, age(&l.LastError.Time))
		}
		selfCheck := "-"
		if l.SelfCheck != nil {
			selfCheck = fmt.Sprintf("%s, %s ago", l.SelfCheck.Result, age(&l.SelfCheck.Time))
		}
		from, next := "-", "-"
		if l.Filled != nil {
			from = fmt.Sprintf("%s in %s", l.Filled.From(), watchers.Short(downstream.Seconds(l.Filled.Seconds).Duration()))
		}
		if l.SelfCheckDue != nil {
			next = "in " + duration.HumanDuration(max(l.SelfCheckDue.Sub(d.Time), 0))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\n",
			strings.TrimPrefix(l.Group+"/"+l.Version+"/"+l.Resource, "/"), l.Encoding, l.State, age(&l.Since),
			l.Clients, l.Filters, l.Objects, l.Bytes, l.ResourceVersion, l.OldestResourceVersion,
			l.HistoryEvents, l.HistoryBytes, l.FormBytes, age(l.LastChange), age(l.LastHeard), age(l.WatchBegan),
			l.Events, l.Served, l.Breaks, l.Relists, l.Proofs, l.Unproven, from, selfCheck, next, cmp.Or(l.KeptAs, "-"), lastError)
	}
	table.Flush()
}
