package diagnose

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/gate/request"
)

// AccountsPath is the page that says who makes the proxy hold most memory.
const AccountsPath = "/debug/accounts"

const mostHolders = 20

// DebugAccounts is the answer of /debug/accounts. All bytes are by kind; see package account. What is
// being cut is held until it ends.
type DebugAccounts struct {
	Time      time.Time        `json:"time"`
	Sources   int              `json:"sources"`        // that something is held for
	Held      map[string]int64 `json:"heldBytes"`      // now
	Strangers int64            `json:"strangersBytes"` // now, for clients whom kube-apiserver has not accepted, without connections
	Cut       map[string]int64 `json:"cutBytes"`       // in all
	Refused   map[string]int64 `json:"refused"`        // times, in all
	Limits    account.Limits   `json:"limits"`
	Largest   []DebugHolder    `json:"largest"` // at most 20, the largest first
}

// DebugHolder is what one source holds.
type DebugHolder struct {
	Source   string           `json:"source,omitempty"` // only for clients on this host
	Stranger bool             `json:"stranger"`         // then the source is an address
	Bytes    int64            `json:"bytes"`
	Held     map[string]int64 `json:"heldBytes"`
	Things   int              `json:"things"` // bodies, answers, watches, connections, caches
}

func accounts(l *account.Ledger, names bool) DebugAccounts {
	totals := l.Totals()
	d := DebugAccounts{
		Time: time.Now(), Sources: totals.Sources, Strangers: totals.Strangers,
		Held: byKind(totals.Held[:]), Cut: byKind(totals.Cut[:]), Refused: byKind(totals.Refused[:]),
		Limits: l.Limits(), Largest: []DebugHolder{},
	}
	for _, h := range l.Largest(mostHolders) {
		shown := DebugHolder{Stranger: h.Source.Stranger, Bytes: h.Total(), Held: byKind(h.Held[:]), Things: h.Things}
		if names {
			shown.Source = request.Shown(h.Source.Name)
		}
		d.Largest = append(d.Largest, shown)
	}
	return d
}

func byKind(values []int64) map[string]int64 {
	m := make(map[string]int64)
	for _, k := range account.Kinds() {
		m[k.String()] = values[k]
	}
	return m
}

// AccountsPage answers /debug/accounts. Without names it leaves the sources' names out.
func AccountsPage(l *account.Ledger) NamedPage {
	return named(func(names bool) DebugAccounts { return accounts(l, names) })
}

func (d DebugAccounts) writeText(w io.Writer) {
	fmt.Fprintf(w, "Held for %d sources; %s of it for strangers.\n\n", d.Sources, heldSize(d.Strangers))
	kinds := account.Kinds()
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "KIND\tHELD\tCUT\tREFUSED")
	for _, k := range kinds {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\n", k, heldSize(d.Held[k.String()]), heldSize(d.Cut[k.String()]), d.Refused[k.String()])
	}
	table.Flush()
	fmt.Fprintf(w, "\nBounds: %s of each source, %s of all strangers, %s of all; copies %s of each source.\n\n",
		bound(d.Limits.Each), bound(d.Limits.Strangers), bound(d.Limits.All), bound(d.Limits.Copies))
	titles := []string{"SOURCE", "BYTES", "THINGS"}
	for _, k := range kinds {
		titles = append(titles, strings.ToUpper(k.String()))
	}
	fmt.Fprintln(table, strings.Join(titles, "\t"))
	for _, h := range d.Largest {
		cells := []string{h.name(), heldSize(h.Bytes), strconv.Itoa(h.Things)}
		for _, k := range kinds {
			cells = append(cells, heldSize(h.Held[k.String()]))
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	table.Flush()
}

func (h *DebugHolder) name() string {
	name := h.Source
	if name == "" {
		name = "(shown on this host only)"
	}
	if h.Stranger {
		name += ", a stranger"
	}
	return name
}

func heldSize(bytes int64) string { return size(uint64(max(bytes, 0))) }

func bound(bytes int64) string {
	if bytes == 0 {
		return "any"
	}
	return heldSize(bytes)
}

// size writes a number of bytes in at most six characters.
func size(n uint64) string {
	if n < 1000 {
		return strconv.FormatUint(n, 10) + "B"
	}
	f := float64(n)
	for _, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if f /= 1024; f < 9.95 {
			return fmt.Sprintf("%.1f%s", f, unit)
		} else if f < 999.5 {
			return fmt.Sprintf("%.0f%s", f, unit)
		}
	}
	return strconv.FormatFloat(f/1024, 'f', 0, 64) + "PiB"
}
