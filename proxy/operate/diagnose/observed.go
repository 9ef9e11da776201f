package diagnose

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/store/observe"
	"github.com/watchfan/watchfan/proxy/store/watchers"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
)

// ObservedPath is the page that says what was observed.
const ObservedPath = "/debug/observed"

// DebugObserved is the answer of /debug/observed.
type DebugObserved struct {
	Time time.Time `json:"time"`
	observe.Report
}

// ObservedPage answers /debug/observed. Without names it leaves the objects' names out.
func ObservedPage(report func() observe.Report) NamedPage {
	return named(func(names bool) DebugObserved {
		d := DebugObserved{time.Now(), report()}
		for i := range d.Recent {
			if key := &d.Recent[i].Key; names {
				*key = request.Shown(*key)
			} else {
				*key = ""
			}
		}
		return d
	})
}

func (d DebugObserved) writeText(w io.Writer) {
	fmt.Fprintln(w, d.Verdict)
	if d.Since.IsZero() {
		return
	}
	fmt.Fprintf(w, "Now: %d watches, of which caches would make %d. Not compared:", d.Watches, d.Lanes)
	for _, why := range slices.Sorted(maps.Keys(d.Skipped)) {
		fmt.Fprintf(w, " %d %s", d.Skipped[why], why)
	}
	fmt.Fprintln(w)
	if len(d.Resources) > 0 {
		fmt.Fprintln(w)
	}
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "RESOURCE\tEVENTS\tLATER\tLISTS\tKUBE-APISERVER\tCACHE\tDIFFERENCES")
	for _, r := range d.Resources {
		differences := uint64(0)
		for _, n := range r.Differences {
			differences += n
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%d\t%s\t%s\t%d\n", r.Resource, r.Events, signed(r.LaterSeconds), r.Lists,
			signed(r.ListSeconds), signed(r.CacheListSeconds), differences)
	}
	if len(d.Recent) > 0 {
		fmt.Fprintln(table, "\nDIFFERENCE\tAGE\tRESOURCE\tVERB\tOBJECT\tVERSION\tCACHE'S VERSION")
	}
	for _, x := range d.Recent {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%d\t%d\n", x.Kind, duration.HumanDuration(d.Time.Sub(x.Time)),
			x.Resource, x.Verb, cmp.Or(x.Key, "-"), x.ResourceVersion, x.CacheVersion)
	}
	_ = table.Flush() // writes to memory
}

// signed returns seconds that may be negative as a short duration.
func signed(seconds float64) string {
	if seconds < 0 {
		return "-" + watchers.Short(downstream.Seconds(-seconds).Duration())
	}
	return watchers.Short(downstream.Seconds(seconds).Duration())
}

func Observed() *cobra.Command {
	return pageCommand("observed", "Say whether caches would have answered as kube-apiserver did", observedUsage, ObservedPath)
}

const observedUsage = `watchfan observed prints what was compared for the clients whom the configuration file observes: lists
and events of kube-apiserver with those of a cache. The first line is the verdict.

LATER is how much later the cache's events came than kube-apiserver's, on average; negative is sooner.
KUBE-APISERVER and CACHE are how long each took for a list. Differences are lost, extra, reordered, bytes,
bookmark (an event behind a bookmark that promised it) and stale (a list with another state).`
