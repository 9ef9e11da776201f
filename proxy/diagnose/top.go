package diagnose

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// Top is the command watchfan top: it shows the slowest watches of a running watchfan, each second
// anew. It returns the exit code.
func Top(args []string, stdin, stdout *os.File, stderr io.Writer) int {
	fs := flag.NewFlagSet("watchfan top", flag.ContinueOnError)
	from := adminFlag(fs)
	once := fs.Bool("once", false, "print once and exit; the default without a terminal")
	query := queryFlags(fs)
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
Press q or Ctrl-C to end it.

Usage: watchfan top [flags]

watchfan explain ID says more about one of them.

The column LAG has the events that wait for the watch's socket, OLDEST the age of the first of them, and
QUEUED the bytes in the socket that the client's side has not acknowledged. Over HTTP/2 several watches
share a connection: a line then ends with the client's address, / and the number of the stream.

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
	fmt.Fprint(stdout, topView(list, 0))
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
	go func() { // ends with the process
		awaitQuit(stdin)
		stop()
	}()
	tick := time.NewTicker(refresh)
	defer tick.Stop()
	for {
		a.draw(query, stdout)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// awaitQuit returns when q, Ctrl-C or Ctrl-D is pressed, or nothing can be read.
func awaitQuit(stdin io.Reader) {
	key := make([]byte, 1)
	for {
		n, err := stdin.Read(key)
		if err != nil || n == 1 && strings.ContainsRune("qQ\x03\x04", rune(key[0])) {
			return
		}
	}
}

// draw asks for as many watches as fit on the terminal, and draws them over the previous ones.
func (a *adminPort) draw(query url.Values, stdout *os.File) {
	width, height, err := term.GetSize(int(stdout.Fd()))
	if err != nil {
		width, height = 80, 24
	}
	query.Set("limit", strconv.Itoa(max(height-topHead, 1)))
	list, err := a.watchers(query)
	view := ""
	if err != nil {
		view = wrap(err.Error(), width)
	} else {
		list.fit(height - topHead)
		view = topView(list, width)
	}
	lines := strings.Split(strings.TrimSuffix(view, "\n"), "\n")
	lines = lines[:min(len(lines), height)]
	fmt.Fprint(stdout, "\x1b[H"+strings.Join(lines, "\x1b[K\r\n")+"\x1b[K\x1b[J")
}

// fit drops watches until the others, below the head, take at most so many lines. If watches pass
// through, a third of the lines is theirs.
func (l *WatcherList) fit(lines int) {
	if l.Passed.Total == 0 {
		return
	}
	passed := min(len(l.Passed.Watchers), lines/3)
	l.Passed.Watchers = l.Passed.Watchers[:max(passed, 0)]
	l.Watchers = l.Watchers[:max(0, min(len(l.Watchers), lines-passed-2))]
}

// topHead is how many lines stand above the first watch.
const topHead = 4

// topView draws a list of watches in lines of at most width characters, or of any length if width is
// 0. The columns up to RESOURCE fit into 80 characters.
func topView(list *WatcherList, width int) string {
	var b strings.Builder
	line := func(format string, args ...any) {
		b.WriteString(strings.TrimRight(cut(fmt.Sprintf(format, args...), width), " ") + "\n")
	}
	line("watchfan: %d watches, %d matching, %d shown", list.Total, list.Matching, len(list.Watchers))
	line("%s", list.Counts())
	line("")
	const row = "%6s %-19s %5s %6s %6s %5s %-12s %s"
	line(row, "ID", "REASON", "LAG", "OLDEST", "QUEUED", "AGE", "RESOURCE", "USER AGENT, USER, SELECTOR")
	for i := range list.Watchers {
		w := &list.Watchers[i]
		resource := w.Resource[strings.LastIndexByte(w.Resource, '/')+1:]
		line(row, strconv.FormatUint(w.ID, 10), w.Reason, count(w.LagEvents), span(float64(w.LagSeconds)),
			count(uint64(w.QueuedBytes)), span(float64(w.AgeSeconds)), cut(resource, 12),
			strings.Join(append([]string{w.UserAgent, w.User, w.Selector()}, w.streamPlace()...), "  "))
	}
	passed := &list.Passed
	if passed.Total == 0 {
		return b.String()
	}
	line("")
	line("%d watches pass through, %d matching, %d shown: %s", passed.Total, passed.Matching, len(passed.Watchers), passed.Counts())
	for i := range passed.Watchers {
		w := &passed.Watchers[i]
		resource := w.Resource[strings.LastIndexByte(w.Resource, '/')+1:]
		line(row, "-", w.Reason, "-", "-", "-", span(float64(w.AgeSeconds)), cut(resource, 12),
			strings.Join([]string{w.UserAgent, w.User, w.Selector()}, "  "))
	}
	return b.String()
}

// streamPlace returns the connection and the stream of a watch over HTTP/2. Watches of one
// connection end together when it breaks.
func (s *WatcherStatus) streamPlace() []string {
	if s.Stream == 0 {
		return nil
	}
	return []string{s.at()}
}

// cut shortens s to at most width characters. A width of 0 is no limit.
func cut(s string, width int) string {
	if width <= 0 || utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:width-1]) + "…"
}

// wrap breaks a sentence into lines of at most width characters.
func wrap(s string, width int) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(s) {
		if n := utf8.RuneCountInString(word); column > 0 && column+1+n > width {
			b.WriteString("\n")
			column = 0
		} else if column > 0 {
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += utf8.RuneCountInString(word)
	}
	return b.String()
}

// count writes a number in at most five characters.
func count(n uint64) string {
	for _, unit := range []string{"", "k", "M", "G"} {
		if n < 10_000 {
			return strconv.FormatUint(n, 10) + unit
		}
		n /= 1000
	}
	return strconv.FormatUint(n, 10) + "T"
}

// span writes a time in seconds in at most five characters.
func span(seconds float64) string {
	switch {
	case seconds == 0:
		return "0"
	case seconds < 0.9995:
		return fmt.Sprintf("%.0fms", seconds*1e3)
	case seconds < 99.95:
		return fmt.Sprintf("%.1fs", seconds)
	case seconds < 100*60:
		return fmt.Sprintf("%.0fm", seconds/60)
	case seconds < 48*3600:
		return fmt.Sprintf("%.0fh", seconds/3600)
	}
	return fmt.Sprintf("%.0fd", seconds/86400)
}
