package diagnose

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/watchfan/watchfan/proxy/gate/consumers"
)

// ConsumersPath is the page that says who costs what.
const ConsumersPath = "/debug/consumers"

// mostConsumers is how many consumers the page shows.
const mostConsumers = 100

// DebugConsumers is the answer of /debug/consumers.
type DebugConsumers struct{ consumers.Report }

// ConsumersPage answers /debug/consumers. Without names it leaves the users out.
func ConsumersPage(report func(most int) consumers.Report) NamedPage {
	return named(func(names bool) DebugConsumers {
		d := DebugConsumers{report(mostConsumers)}
		for i := range d.Consumers {
			if !names {
				d.Consumers[i].User = ""
			}
		}
		return d
	})
}

// writeText writes d as a table, and the faults below it.
func (d DebugConsumers) writeText(w io.Writer) {
	if d.Suffers {
		fmt.Fprint(w, "kube-apiserver is slow, fails or refuses requests now.\n\n")
	}
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "USER\tPROGRAM\tSEEN\tCLIENTS\tWATCHES\tREQUESTS\tPASSED\tREJECTED\tBYTES\tCPU\tCPU ALONE\t"+
		"CPU IN ALL")
	for _, c := range d.Consumers {
		fmt.Fprintf(table, "%s\t%s\t%s\t%.0f\t%d\t%s/s\t%s/s\t%s/s\t%s/s\t%s\t%s\t%s\n", userOf(c), c.Program,
			duration.HumanDuration(d.Time.Sub(c.First)), c.Clients, c.Watches, perSecond(c.Requests), perSecond(c.Passed),
			perSecond(c.Rejected), size(uint64(c.Bytes)), millis(c.CPU), millis(c.Alone),
			time.Duration(c.Total.CPUSeconds*float64(time.Second)).Round(time.Millisecond))
	}
	_ = table.Flush() // writes to memory
	for _, c := range d.Consumers {
		if len(c.Faults) > 0 || c.Budget > 0 {
			fmt.Fprintf(w, "\n%s, %s:\n", userOf(c), c.Program)
		}
		if c.Budget > 0 {
			fmt.Fprintf(w, "  new: at most %.3g reads a second pass through\n", c.Budget)
		}
		for _, fault := range c.Faults {
			fmt.Fprintf(w, "  %s\n", fault)
		}
	}
}

func userOf(c consumers.Row) string { return cmp.Or(c.User, "(shown on this host only)") }

func perSecond(rate float64) string {
	if rate >= 100 {
		return fmt.Sprintf("%.0f", rate)
	}
	return fmt.Sprintf("%.2g", rate)
}

// millis writes cores in thousandths, as Kubernetes does.
func millis(cores float64) string { return fmt.Sprintf("%.0fm", cores*1000) }

// Consumers returns the command watchfan consumers: it prints who costs a running watchfan what.
func Consumers() *cobra.Command {
	return pageCommand("consumers", "Say which users and programs cost what, and their faults", consumersUsage,
		ConsumersPath)
}

const consumersUsage = `watchfan consumers prints what each user and program has cost in the last minute, and what it does that costs
more than it must. A program is a user agent without versions. All nodes are one user.

PASSED are the requests that kube-apiserver has answered. REJECTED are those beyond --new-consumer-reads.
CPU is the processor time of watchfan, in thousandths of a core: a model divides what was measured, so that the sum
is right. CPU ALONE estimates what kube-apiserver would need if watchfan were not there.
CLIENTS are told apart by address and token.

The faults are what the requests themselves show. They do not show whether a program reads only the metadata of
the objects that it gets, nor what it does with them.`
