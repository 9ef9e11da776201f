package diagnose

import (
	"context"
	"errors"
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

	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/store/watchers"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
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
			text, err := from.top(query)
			if err == nil {
				_, err = io.WriteString(c.OutOrStdout(), text)
			}
			return err
		}
		return from.topLive(c.Context(), query, out, func() (width, height int, err error) { return term.GetSize(int(out.Fd())) })
	}
	return c
}

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

The first line has the cluster, and averages of two seconds: changes from kube-apiserver, events and
bytes written to clients, the time that 99 % of the writes took at most, processors and memory in use.
The column LAG has the events that wait for the watch's socket, OLDEST the age of the first of them, and
QUEUED the bytes in the socket that the client's side has not acknowledged. Over HTTP/2 several watches
share a connection: CLIENT then is its address, / and the number of the stream.

Reasons, worst first:
`

// queryFlags adds a flag for each parameter of /debug/watchers except format. Parsing the flags fills
// the query that it returns. A value that /debug/watchers would reject is an error of the flag.
func queryFlags(flags *pflag.FlagSet) url.Values {
	query := make(url.Values)
	for _, p := range new(watchersQuery).parameters()[1:] {
		flags.Func(p.flag, p.usage, func(value string) error {
			query.Set(p.key, value)
			return p.set(value)
		})
	}
	return query
}

// top returns the list of the watches that query selects, below a line about watchfan.
func (a *adminPort) top(query url.Values) (string, error) {
	query.Set("format", "text")
	list, err := a.get(WatchersPath, query)
	return a.headline() + "\n" + string(list), err
}

// headline names the cluster, and says how fast it is served. It is empty if that is not known.
func (a *adminPort) headline() string {
	var d DebugState
	err := a.decode("/debug/lanes", make(url.Values), &d)
	cluster := request.Shown(d.Upstream)
	if err != nil || d.Now == nil {
		return cluster
	}
	n := d.Now
	text := fmt.Sprintf("%s  in %.1f/s  out %.1f/s %s/s  p99 %s  CPU %.2f of %d  memory %s", cluster, n.Upstream, n.Deliveries,
		size(uint64(n.Bytes)), watchers.Short(downstream.Seconds(n.Latency).Duration()), n.Processors, d.Processors, size(uint64(n.Memory)))
	if held := d.Totals.HeldBytes; held > 0 {
		text += "  held " + heldSize(held)
	}
	return text
}

const refresh = time.Second

// topLive draws on a terminal until ctx ends (ECMA-48).
func (a *adminPort) topLive(ctx context.Context, query url.Values, w io.Writer, size func() (width, height int, err error)) error {
	if _, err := a.top(query); err != nil { // an error stays on the screen if it comes before the screen is cleared
		return err
	}
	fmt.Fprint(w, "\x1b[2J")
	for ok := true; ok; ok = exchange.Sleep(ctx, refresh) {
		width, height, err := size()
		if err != nil || width <= 0 || height <= 0 {
			width, height = 80, 24
		}
		fmt.Fprint(w, "\x1b[H"+a.picture(query, width, height-1)+"\x1b[J") // the last line is the cursor's
	}
	return nil
}

// picture returns the lines of top, or why there are none, as many and as much of them as fit. A third
// of them is for the watches that pass through.
func (a *adminPort) picture(query url.Values, width, height int) string {
	if query.Get("limit") == "" {
		query = maps.Clone(query)
		query.Set("limit", strconv.Itoa(min(max(height*2/3, 1), mostShown)))
	}
	text, err := a.top(query)
	if err != nil {
		return err.Error() + "\x1b[K\n"
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	var b strings.Builder
	for _, line := range lines[:min(len(lines), height)] {
		if runes := []rune(line); len(runes) > width {
			line = string(runes[:width-1]) + "…"
		}
		b.WriteString(line + "\x1b[K\n")
	}
	return b.String()
}

// Explain returns the command watchfan explain: it prints the verdict on one watch of a running
// watchfan.
func Explain() *cobra.Command {
	var from adminPort
	var asJSON bool
	c := &cobra.Command{
		Use:   "explain [ID]",
		Short: "Say why one watch is slow, and what to do",
		Long:  explainUsage,
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return from.explain(c.OutOrStdout(), strings.Join(args, ""), asJSON)
		},
	}
	from.addFlag(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

const explainUsage = `watchfan explain says why a watch is slow. The cause is its client, the network, watchfan or
kube-apiserver, or there is nothing to send.

watchfan top shows the IDs. Without ID, the slowest watch is explained.`

func (a *adminPort) explain(w io.Writer, id string, asJSON bool) error {
	if id == "" {
		var list WatcherList
		if err := a.decode(WatchersPath, url.Values{"limit": {"1"}}, &list); err != nil {
			return err
		}
		if len(list.Watchers) == 0 {
			return errors.New("no watch is served from a cache now; kube-apiserver serves those that pass through")
		}
		id = strconv.FormatUint(list.Watchers[0].ID, 10)
	}
	return a.print(w, WatchersPath+"/"+url.PathEscape(id), asJSON)
}
