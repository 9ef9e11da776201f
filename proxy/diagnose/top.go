package diagnose

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/watchfan/watchfan/proxy/watchers"
)

// Top returns the command watchfan top: it shows the slowest watches of a running watchfan, each
// second anew until its context ends.
func Top() *cobra.Command {
	var from adminPort
	c := &cobra.Command{
		Use:   "top",
		Short: "Show the watches of a running watchfan, the slowest first, and why they are slow",
		Long:  topUsage + reasons(),
		Args:  cobra.NoArgs,
	}
	from.addFlag(c.Flags())
	once := c.Flags().Bool("once", false, "print once and exit; the default without a terminal")
	query := queryFlags(c.Flags())
	c.RunE = func(c *cobra.Command, _ []string) error {
		out, ok := c.OutOrStdout().(*os.File)
		if *once || !ok || !term.IsTerminal(int(out.Fd())) {
			return from.topOnce(query, c.OutOrStdout())
		}
		return from.topLive(c.Context(), query, out, func() (width, height int, err error) { return term.GetSize(int(out.Fd())) })
	}
	return c
}

// reasons lists the causes with their meanings, worst first.
func reasons() string {
	var b strings.Builder
	for _, c := range watchers.Causes {
		fmt.Fprintf(&b, "  %-20s %s\n", c, c.Meaning())
	}
	return b.String()
}

const topUsage = `watchfan top shows the watches that a running watchfan serves, the slowest first, and why they are slow.
Below them it shows the watches that pass through to kube-apiserver, and why they do. On a terminal it
shows them anew each second, until Ctrl-C. watchfan explain ID says more of one.

The second line has the cluster, and averages of two seconds: changes from kube-apiserver, events and
bytes written to clients, the time that 99 % of the writes took at most, processors and memory in use.
The column LAG has the events that wait for the watch's socket, OLDEST the age of the first of them, and
QUEUED the bytes in the socket that the client's side has not acknowledged. Over HTTP/2 several watches
share a connection: a line then ends with the client's address, / and the number of the stream.
Watches that are slow because of their client, the network or watchfan are red, and those that wait for
kube-apiserver are yellow. $NO_COLOR turns colours off. A narrow terminal has fewer columns.

Reasons, worst first:
`

// queryFlags adds a flag for each parameter of /debug/watchers except format. Parsing the flags fills
// the query that it returns. A value that /debug/watchers would reject is an error of the flag.
func queryFlags(flags *pflag.FlagSet) url.Values {
	query := make(url.Values)
	var known watchersQuery
	for _, p := range []struct{ flag, parameter, usage string }{
		{"sort", "sort", "`ORDER` of the watches: " + strings.Join(watcherSorts, ", ") + " (default slowest)"},
		{"limit", "limit", "print at most so many `WATCHES` (default 100, on a terminal what fits)"},
		{"user", "user", "only watches of the user `NAME`"},
		{"user-agent", "userAgent", "only watches whose user agent contains `TEXT`"},
		{"resource", "resource", "only watches of `RESOURCE`: pods, v1/pods, apps/v1/deployments"},
		{"namespace", "namespace", "only watches of `NAMESPACE`"},
		{"selector", "selector", "only watches whose label or field selector contains `TEXT`"},
		{"state", "state", "only watches in `STATE`: " + strings.Join(watcherStates, ", ")},
		{"reason", "reason", "only watches with the verdict `REASON`: top shows the reasons"},
		{"min-lag-events", "minLagEvents", "only watches that are at least `EVENTS` behind"},
		{"min-lag-bytes", "minLagBytes", "only watches that are at least `BYTES` behind, for example 1Mi"},
		{"min-age", "minAge", "only watches that are at least `DURATION` old, for example 10m"},
	} {
		flags.Func(p.flag, p.usage, func(value string) error {
			query.Set(p.parameter, value)
			return known.set(p.parameter, value)
		})
	}
	return query
}

// topOnce prints the watches that query selects.
func (a *adminPort) topOnce(query url.Values, w io.Writer) error {
	list, err := a.watchers(query)
	if err != nil {
		return err
	}
	v := topView{list: list, state: a.state(), order: query.Get("sort")}
	for _, line := range v.lines() {
		fmt.Fprintln(w, line.text)
	}
	return nil
}

// refresh is the time between two pictures of top.
const refresh = time.Second

// topLive draws on a terminal until ctx ends.
func (a *adminPort) topLive(ctx context.Context, query url.Values, w io.Writer, size func() (width, height int, err error)) error {
	if _, err := a.watchers(query); err != nil { // an error stays on the screen if it comes before the screen is cleared
		return err
	}
	fmt.Fprint(w, "\x1b[2J")
	colours := os.Getenv("NO_COLOR") == ""
	tick := time.NewTicker(refresh)
	defer tick.Stop()
	for {
		width, height, err := size()
		if err != nil || width <= 0 || height <= 0 {
			width, height = 80, 24
		}
		fmt.Fprint(w, a.picture(query, width, height-1, colours)) // the last line is the cursor's
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// picture returns a picture over the previous one (ECMA-48): the watches that query selects, as many
// as fit, or why there are none.
func (a *adminPort) picture(query url.Values, width, height int, colours bool) string {
	room := max(height-topHead, 1)
	if query.Get("limit") == "" {
		query = maps.Clone(query)
		query.Set("limit", strconv.Itoa(min(room, mostShown)))
	}
	var all []line
	if list, err := a.watchers(query); err != nil {
		all = plainLines(wrap(err.Error(), width))
	} else {
		passed, watches := list.fit(room)
		list.Watchers = list.Watchers[:min(watches, len(list.Watchers))]
		list.Passed.Watchers = list.Passed.Watchers[:passed]
		v := topView{list: list, state: a.state(), order: query.Get("sort"), width: width}
		all = v.lines()
	}
	var b strings.Builder
	b.WriteString("\x1b[H")
	for _, l := range all[:max(min(len(all), height), 0)] {
		b.WriteString(l.draw(colours) + "\x1b[K\n")
	}
	return b.String() + "\x1b[J"
}
