package diagnose

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/lane"
)

// DebugState is the answer of /debug/lanes, which the status page shows: the process and each lane.
// Counters begin with the process or the lane. Two answers show how fast they grow.
type DebugState struct {
	Version   string        `json:"version"`
	Time      time.Time     `json:"time"` // of this answer, on the same clock as all other times in it
	StartTime time.Time     `json:"startTime"`
	Checks    []DebugCheck  `json:"checks"` // as /readyz lists them
	Totals    DebugTotals   `json:"totals"`
	Lanes     []lane.Status `json:"lanes"` // by resource and encoding
}

type DebugCheck struct {
	Name  string `json:"name"`
	Error string `json:"error,omitempty"` // "" is ok
}

type DebugTotals struct {
	Clients         int               `json:"clients"`       // watches that are served from caches now
	ParkedClients   int               `json:"parkedClients"` // watches that wait for their client to read
	Parks           uint64            `json:"parks"`
	DeliveredEvents uint64            `json:"deliveredEvents"` // by all lanes, those that have ended included
	DeliveredBytes  uint64            `json:"deliveredBytes"`
	Flushes         uint64            `json:"flushes"`      // writes to clients
	EndedWatches    map[string]uint64 `json:"endedWatches"` // by reason
	Delivery        DebugDelivery     `json:"delivery"`

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

// LanesPage answers /debug/lanes with what state returns. It answers JSON for ?format=json and to
// clients that accept application/json, and a table to all others.
func LanesPage(state func() DebugState) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		asJSON, err := parseLanesQuery(r)
		if err != nil {
			WriteText(w, http.StatusBadRequest, err.Error()+"\n")
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		d := state()
		respond(w, asJSON, d, d.write)
	}
}

// parseLanesQuery reports whether r asks for JSON. The only parameter is format.
func parseLanesQuery(r *http.Request) (asJSON bool, err error) {
	query, err := parameters(r, []string{"format"})
	if err != nil || len(query) == 0 {
		return acceptsJSON(r), err
	}
	if asJSON, err = parseFormat(query[0].value); err != nil {
		return false, fmt.Errorf("format=%.50q: %w", query[0].value, err)
	}
	return asJSON, nil
}

// write writes d as a table, with ages as kubectl shows them.
func (d DebugState) write(w io.Writer) {
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
	fmt.Fprintf(w, "\nclients    %d, %d of them parked (%d parks), %d evicted\n",
		t.Clients, t.ParkedClients, t.Parks, t.EndedWatches[string(fanout.Evicted)])
	fmt.Fprintf(w, "delivered  %d events, %d bytes, in %d writes\n", t.DeliveredEvents, t.DeliveredBytes, t.Flushes)
	fmt.Fprintf(w, "passed on  %d requests, %d of them not answered; %d streams now\n\n",
		t.PassthroughRequests, t.PassthroughErrors, t.PassthroughStreams)

	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "RESOURCE\tENCODING\tSTATE\tSINCE\tCLIENTS\tFILTERS\tOBJECTS\tBYTES\tVERSION\tOLDEST\t"+
		"HISTORY\tHISTORY BYTES\tLAST CHANGE\tLAST HEARD\tWATCH\tEVENTS\tSERVED\tBREAKS\tRELISTS\tPROOFS\tUNPROVEN\tLAST ERROR")
	for _, l := range d.Lanes {
		lastError := "-"
		if l.LastError != nil {
			lastError = fmt.Sprintf("%s, %s ago", l.LastError.Kind, age(&l.LastError.Time))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n",
			strings.TrimPrefix(l.Group+"/"+l.Version+"/"+l.Resource, "/"), l.Encoding, l.State, age(&l.Since),
			l.Clients, l.Filters, l.Objects, l.Bytes, l.ResourceVersion, l.OldestResourceVersion,
			l.HistoryEvents, l.HistoryBytes, age(l.LastChange), age(l.LastHeard), age(l.WatchBegan),
			l.Events, l.Served, l.Breaks, l.Relists, l.Proofs, l.Unproven, lastError)
	}
	table.Flush()
}
