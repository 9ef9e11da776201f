package diagnose

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"
)

// Top is the command watchfan top: it shows the slowest watches of a running watchfan, each second
// anew. It returns the exit code.
func Top(args []string, stdin, stdout *os.File, stderr io.Writer) int {
	fs, from, query, once := topFlags()
	if code, ok := parse(fs, args, topUsage+strings.TrimSuffix(reasons(), "\n"), 0, stdout, stderr); !ok {
		return code
	}
	show := from.topLive
	if *once || !term.IsTerminal(int(stdout.Fd())) || !term.IsTerminal(int(stdin.Fd())) {
		show = from.topOnce
	}
	if err := show(query, stdin, stdout); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func topFlags() (fs *flag.FlagSet, from *adminPort, query url.Values, once *bool) {
	fs = flag.NewFlagSet("watchfan top", flag.ContinueOnError)
	from = adminFlag(fs)
	once = fs.Bool("once", false, "print once and exit; the default without a terminal")
	return fs, from, queryFlags(fs), once
}

// Flags returns the flags of a command, top or explain, for completion.
func Flags(command string) *flag.FlagSet {
	if command == "top" {
		fs, _, _, _ := topFlags()
		return fs
	}
	fs, _, _ := explainFlags()
	return fs
}

// reasons lists the causes with their meanings, worst first.
func reasons() string {
	var b strings.Builder
	for _, c := range Causes {
		fmt.Fprintf(&b, "  %-20s %s\n", c, explanations[c].meaning)
	}
	return b.String()
}

const topUsage = `watchfan top shows the watches that a running watchfan serves, the slowest first, and why they are slow.
Below them it shows the watches that pass through to kube-apiserver, and why they do.

Usage: watchfan top [flags]

Keys:
  j, k, arrows         choose a watch; g, G: the first, the last
  Enter                explain it, as watchfan explain does; Escape or Enter goes back
  s                    sort by another column
  q, Ctrl-C            end

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
func queryFlags(fs *flag.FlagSet) url.Values {
	query := make(url.Values)
	var known watchersQuery
	for _, p := range []struct{ flag, parameter, usage string }{
		{"sort", "sort", "`ORDER` of the watches: " + strings.Join(watcherSorts, ", ") + " (default slowest)"},
		{"limit", "limit", "print at most so many `WATCHES` with --once (default 100)"},
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
		fs.Func(p.flag, p.usage, func(value string) error {
			query.Set(p.parameter, value)
			return known.set(p.parameter, value)
		})
	}
	return query
}

// topOnce prints the watches that query selects.
func (a *adminPort) topOnce(query url.Values, _, stdout *os.File) error {
	list, err := a.watchers(query)
	if err != nil {
		return err
	}
	v := topView{list: list, state: a.state(), order: query.Get("sort")}
	for _, line := range v.lines() {
		fmt.Fprintln(stdout, line.text)
	}
	return nil
}

// refresh is the time between two pictures of top.
const refresh = time.Second

// topLive draws on the terminal until q or Ctrl-C is pressed.
func (a *adminPort) topLive(query url.Values, stdin, stdout *os.File) error {
	if _, err := a.watchers(query); err != nil { // an error stays on the screen if it comes before the screen changes
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	before, err := term.MakeRaw(int(stdin.Fd()))
	if err != nil {
		return fmt.Errorf("set up the terminal: %w; use --once", err)
	}
	fmt.Fprint(stdout, "\x1b[?1049h\x1b[?25l") // a screen of its own, no cursor
	defer func() {
		fmt.Fprint(stdout, "\x1b[?25h\x1b[?1049l")
		_ = term.Restore(int(stdin.Fd()), before)
	}()
	keys := make(chan key)
	go readKeys(ctx, stdin, keys) // ends with the process
	s := newScreen(a, query)
	tick := time.NewTicker(refresh)
	defer tick.Stop()
	s.ask()
	for {
		s.resize(stdout)
		fmt.Fprint(stdout, s.picture())
		select {
		case <-tick.C:
			s.ask()
		case k := <-keys:
			if k == keyQuit {
				return nil
			}
			if s.press(k) {
				s.ask()
			}
		case <-ctx.Done():
			return nil
		}
	}
}
