package diagnose

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/watchfan/watchfan/proxy/watchers"
)

// topView is what top draws.
type topView struct {
	list  *WatcherList
	state *DebugState // nil if it is not known
	order string      // of the watches; "" is slowest
	width int         // in characters; 0 is no limit
}

// line is a line of a terminal: plain text, and how it looks (ECMA-48, SGR).
type line struct{ text, style string }

const (
	styleBold   = "1"
	styleRed    = "31"
	styleYellow = "33"
)

// draw returns the line for a terminal.
func (l line) draw(colours bool) string {
	if l.style == "" || !colours {
		return l.text
	}
	return "\x1b[" + l.style + "m" + l.text + "\x1b[0m"
}

func plainLines(text string) (all []line) {
	for t := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		all = append(all, line{text: t})
	}
	return all
}

// topHead is how many lines stand above the first watch.
const topHead = 5

// lines draws the list in lines of at most width characters: topHead lines, the watches, and those
// that pass through.
func (v *topView) lines() (all []line) {
	add := func(style, format string, args ...any) {
		all = append(all, line{strings.TrimRight(cut(fmt.Sprintf(format, args...), v.width), " "), style})
	}
	list := v.list
	add(styleBold, "watchfan: %d watches, %d matching, %d shown, by %s", list.Total, list.Matching, len(list.Watchers),
		cmp.Or(v.order, "slowest"))
	headline := v.state.headline()
	if v.width > 0 && v.width < 60 {
		headline = strings.TrimPrefix(headline, "https://")
	}
	add("", "%s", headline)
	add("", "%s", list.Counts())
	add("", "")
	columns := v.columns()
	add(styleBold, "%s", row(columns, func(c column) string { return c.title }))
	for i := range list.Watchers {
		w := &list.Watchers[i]
		add(causeStyle(w.Reason), "%s", row(columns, func(c column) string { return c.of(w) }))
	}
	passed := &list.Passed
	if passed.Total == 0 {
		return all
	}
	add("", "")
	add("", "%d watches pass through, %d matching, %d shown: %s", passed.Total, passed.Matching, len(passed.Watchers),
		passed.Counts())
	for i := range passed.Watchers {
		add("", "%s", row(columns, func(c column) string { return c.ofPassed(&passed.Watchers[i]) }))
	}
	return all
}

// headline names the cluster, and says how fast it is served. Of an old watchfan it is empty.
func (d *DebugState) headline() string {
	if d == nil || d.Upstream == "" {
		return ""
	}
	text := d.Upstream
	if n := d.Now; n != nil {
		text += fmt.Sprintf("  in %s/s  out %s/s %s/s", rate(n.Upstream), rate(n.Deliveries), size(uint64(n.Bytes)))
		if n.Latency > 0 {
			text += "  p99 " + span(n.Latency)
		}
		text += fmt.Sprintf("  CPU %.2f of %d", n.Processors, d.Processors)
		if n.Memory > 0 {
			text += "  memory " + size(uint64(n.Memory))
		}
		if held := d.Totals.HeldBytes; held > 0 {
			text += "  held " + size(uint64(held))
		}
	}
	return text
}

// causeStyle is the colour of a watch with the cause.
func causeStyle(c watchers.Cause) string {
	switch {
	case !c.Slow():
		return ""
	case c == watchers.UpstreamBroken, c == watchers.UpstreamUnreachable, c == watchers.UpstreamSilent:
		return styleYellow
	}
	return styleRed
}

// column is a column of top.
type column struct {
	title    string
	width    int // in characters; negative is aligned to the left; 0 has what is left of the line
	from     int // the narrowest terminal that shows it
	of       func(*WatcherStatus) string
	ofPassed func(*PassedStatus) string
}

// columns returns the columns that fit.
func (v *topView) columns() (fitting []column) {
	resource, none := 12, func(*PassedStatus) string { return "-" }
	if v.width == 0 || v.width >= 120 {
		resource = 30
	}
	plain := func(name string) string { return cut(name[strings.LastIndexByte(name, '/')+1:], resource) }
	for _, c := range []column{
		{"ID", 6, 0, func(w *WatcherStatus) string { return strconv.FormatUint(w.ID, 10) }, none},
		{"REASON", -19, 0, func(w *WatcherStatus) string { return string(w.Reason) }, func(p *PassedStatus) string { return string(p.Reason) }},
		{"LAG", 5, 60, func(w *WatcherStatus) string { return count(w.LagEvents) }, none},
		{"OLDEST", 6, 60, func(w *WatcherStatus) string { return span(float64(w.LagSeconds)) }, none},
		{"QUEUED", 6, 80, func(w *WatcherStatus) string { return size(uint64(w.QueuedBytes)) }, none},
		{"AGE", 5, 80, func(w *WatcherStatus) string { return span(float64(w.AgeSeconds)) }, func(p *PassedStatus) string { return span(float64(p.AgeSeconds)) }},
		{"RESOURCE", -resource, 0, func(w *WatcherStatus) string { return plain(w.Resource) }, func(p *PassedStatus) string { return plain(p.Resource) }},
		{"USER AGENT, USER, SELECTOR", 0, 60,
			func(w *WatcherStatus) string {
				return strings.Join(append([]string{w.UserAgent, w.User, w.Selector()}, w.streamPlace()...), "  ")
			},
			func(p *PassedStatus) string { return strings.Join([]string{p.UserAgent, p.User, p.Selector()}, "  ") }},
	} {
		if v.width == 0 || v.width >= c.from {
			fitting = append(fitting, c)
		}
	}
	return fitting
}

// row returns a line with the value of each column.
func row(columns []column, value func(column) string) string {
	values := make([]string, 0, len(columns))
	for _, c := range columns {
		values = append(values, fmt.Sprintf("%*s", c.width, value(c)))
	}
	return strings.Join(values, " ")
}

// fit returns how many of the watches, and of those that pass through, take at most so many lines
// below the head. If watches pass through, a third of the lines is theirs.
func (l *WatcherList) fit(lines int) (passed, watches int) {
	if l.Passed.Total == 0 {
		return 0, lines
	}
	passed = max(min(len(l.Passed.Watchers), lines/3), 0)
	return passed, max(lines-passed-2, 0)
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

// rate writes how often something happens in a second, in at most five characters.
func rate(n float64) string {
	if n > 0 && n < 9.95 {
		return fmt.Sprintf("%.1f", n)
	}
	return count(uint64(n + 0.5))
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
