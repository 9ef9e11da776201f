//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
	"github.com/watchfan/watchfan/proxy/operate/assess"
	"golang.org/x/term"
)

// runDemo is `bench demo`. It shows one peer under a steady load until Ctrl-C.
func runDemo(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := &demoOptions{Options: defaults(), clients: 1000, rate: 50}
	if err := parseOptions("demo", o, args, stderr); err != nil {
		return err
	}
	shareCores()
	say := func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) }
	d := &demo{opts: o.Options, peer: o.Peers[0], out: stdout, live: isTerminal(stdout), say: say}
	err := d.run(ctx, o.duration)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // Ctrl-C is the usual end
	}
	return err
}

// demoOptions are the settings of one case, and its duration.
type demoOptions struct {
	*Options
	clients  int           // watchers
	rate     float64       // updates per second
	duration time.Duration // 0 is until Ctrl-C
	secure   bool          // watch over TLS
	direct   bool          // watch kube-apiserver itself
}

// AddFlags adds the flags of `bench demo`.
func (o *demoOptions) AddFlags(fs *flag.FlagSet) {
	o.binaries.addFlags(fs)
	o.serverKnobs().addFlags(fs)
	fs.IntVar(&o.clients, "clients", o.clients, "number of watchers")
	fs.Float64Var(&o.rate, "rate", o.rate, "updates per second")
	fs.DurationVar(&o.duration, "duration", 0, "duration of the demo; 0 is until Ctrl-C")
	fs.BoolVar(&o.secure, "tls", false, "watch over TLS, with a bearer token")
	fs.BoolVar(&o.direct, "direct", false, "watch kube-apiserver itself (over TLS), for comparison")
}

// Validate sets the case in Options, and reports options that cannot be used on this machine.
func (o *demoOptions) Validate() error {
	if o.clients < 1 || !(o.rate > 0 && o.rate <= 1e6) || o.duration < 0 {
		return errors.New("--clients and --rate must be positive, --duration not negative")
	}
	o.Peers, o.Clients, o.Rates, o.Rounds = []report.Peer{report.WatchfanBare}, []int{o.clients}, []load.Rate{load.Rate(o.rate)}, 1
	switch {
	case o.direct:
		o.Peers[0] = report.Direct
	case o.secure:
		o.Peers[0] = report.WatchfanTLS
	}
	return o.Options.Validate()
}

// A demo shows one peer under load.
type demo struct {
	opts *Options
	peer report.Peer
	out  io.Writer
	live bool // out is a terminal: draw in place
	say  func(format string, args ...any)

	stage   *server.Stage
	fleet   *load.Fleet
	servers []measure.Process // and this program
	drawn   int               // lines on the screen
}

// legend explains the figures of the view and of its lines.
const legend = `
  clients       open watches; a lost one has ended, or has missed an event
  upstream      watches of ConfigMaps at kube-apiserver, by its own count
  updates/s     writes to kube-apiserver
  deliveries/s  events that clients have read: each update goes to each client
  p50, p99      time from the answer to a write until a client has read the event
  %, MiB        CPU in percent of one core, and resident memory, of each process;
                bench is this program: the writer and all clients
  all else      CPU of everything else on this machine
`

// run starts the servers and the load, shows them, stops the load, and prints a summary.
func (d *demo) run(ctx context.Context, duration time.Duration) (err error) {
	d.say("Starting a dev cluster (etcd and kube-apiserver) and %s …", d.peer.Name)
	d.stage, err = newStage(ctx, d.opts, d.peer)
	defer d.stage.Stop()
	if err != nil {
		return err
	}
	own, err := upstreamWatches(ctx, d.stage.Cluster.Endpoint)
	if err != nil {
		return err
	}
	st := d.stage
	if d.fleet, err = st.NewFleet([]load.Filter{load.Everything}, d.opts.Nice); err != nil {
		return err
	}
	defer d.fleet.Close()
	d.say("Connecting %d watchers to %v …", d.opts.Clients[0], d.peer)
	if err := d.fleet.Grow(ctx, d.opts.Clients[0], st.Writer.Seqs); err != nil {
		return err
	}
	if p := st.Proxy; p != nil {
		d.say("\nStatus page: %s/   In another terminal: %s top --admin %s", p.Admin.URL(), d.opts.Watchfan, p.Admin.URL())
	}
	d.say("%s", legend)
	d.servers = append(st.Processes(), server.OwnProcess())
	whole, err := measure.StartMeter(d.servers)
	if err != nil {
		return err
	}
	start, begun, acked := time.Now(), d.fleet.Read(), st.Writer.Acked.Load()
	stop := st.Load(ctx, d.fleet, d.opts.Rates[0])
	err = d.show(ctx, start, duration, own)
	err = errors.Join(err, stop())
	if errDrain := d.fleet.Drain(context.WithoutCancel(ctx), 10*time.Second); errDrain != nil {
		err = errors.Join(err, errDrain)
	}
	used, errUsed := whole.Read()
	s := d.figures(d.fleet.Read(), st.Writer.Acked.Load()-acked, used)
	s.got.Sub(begun)
	fmt.Fprint(d.out, s.text())
	return errors.Join(err, errUsed)
}

// show refreshes the view each second until ctx ends, the duration is over, or an error occurs.
func (d *demo) show(ctx context.Context, start time.Time, duration time.Duration, own int) error {
	meter, err := measure.StartMeter(d.servers)
	if err != nil {
		return err
	}
	got, acked := d.fleet.Read(), d.stage.Writer.Acked.Load()
	watches, scraped := -1, time.Time{}
	for duration == 0 || time.Since(start) < duration {
		if err := load.Sleep(ctx, time.Second); err != nil {
			return err
		}
		if time.Since(scraped) > 5*time.Second { // the page has thousands of lines
			if n, err := upstreamWatches(ctx, d.stage.Cluster.Endpoint); err == nil {
				watches, scraped = n-own, time.Now()
			}
		}
		used, err := meter.Lap()
		if err != nil {
			return errors.Join(err, d.stage.Alive())
		}
		gotNow, ackedNow := d.fleet.Read(), d.stage.Writer.Acked.Load()
		since := *gotNow
		since.Sub(got)
		d.draw(&view{figures: d.figures(&since, ackedNow-acked, used), elapsed: time.Since(start), watches: watches})
		got, acked = gotNow, ackedNow
		if err := d.fleet.Err(); err != nil {
			return err
		}
	}
	return nil
}

// draw replaces the last view on a terminal, and writes one line elsewhere.
func (d *demo) draw(v *view) {
	if !d.live {
		fmt.Fprintln(d.out, v.line())
		return
	}
	screen := fmt.Sprintf("%v, %v updates/s of %d ConfigMaps · %s · Ctrl-C ends it\n%s",
		d.peer, d.opts.Rates[0], d.opts.Objects, report.Clock(v.elapsed), v.screen())
	if d.drawn > 0 {
		fmt.Fprintf(d.out, "\x1b[%dA", d.drawn) // up to the first line
	}
	width := terminalWidth(d.out)
	for line := range strings.Lines(screen) {
		fmt.Fprintf(d.out, "%s\x1b[K\n", cut(strings.TrimSuffix(line, "\n"), width)) // and clear the rest of the old line
	}
	d.drawn = strings.Count(screen, "\n")
}

// terminalWidth returns how many characters a line of the terminal w has.
func terminalWidth(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 80
}

// cut shortens a line to at most width characters: a line that wraps would count as two.
func cut(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:width-1]) + "…"
}

// upstreamWatches returns the number of watches of configmaps that kube-apiserver serves, by its
// own count. Some of them are its own.
func upstreamWatches(ctx context.Context, at load.Endpoint) (int, error) {
	sum, err := server.Sum(ctx, at, "apiserver_longrunning_requests", `resource="configmaps"`, `verb="WATCH"`)
	return int(sum), err
}

// Figures are what a demo has done in a window of time.
type figures struct {
	peer          report.Peer
	got           *load.Reading
	updates       uint64
	clients, lost int
	servers       []measure.Process
	used          measure.Usage
}

func (d *demo) figures(got *load.Reading, updates uint64, used measure.Usage) figures {
	return figures{peer: d.peer, got: got, updates: updates, servers: d.servers, used: used,
		clients: len(d.fleet.Watchers), lost: int(d.fleet.Lost.Load())}
}

func (f *figures) quantile(q float64) string { return report.Milliseconds(f.got.Latency.Quantile(q)) }

// A view is one refresh of the demo. Its figures cover the time since the last one.
type view struct {
	figures
	elapsed time.Duration // since the load began
	watches int           // at kube-apiserver, of the resource, without its own; -1 is unknown
}

func (v *view) perSecond(n uint64) string { return report.Human(float64(n) / v.used.Window.Seconds()) }

func (v *view) upstream() string {
	if v.watches < 0 {
		return "?"
	}
	return strconv.Itoa(v.watches)
}

func (v *view) screen() string {
	var b strings.Builder
	f := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "  %-18s"+format+"\n", append([]any{label}, args...)...)
	}
	b.WriteByte('\n')
	f("clients", "%s (%d lost)", report.Human(float64(v.clients-v.lost)), v.lost)
	f("upstream watches", "%s at kube-apiserver", v.upstream())
	f("updates/s", "%s", v.perSecond(v.updates))
	f("deliveries/s", "%s", v.perSecond(v.got.Deliveries))
	f("latency", "p50 %s   p99 %s", v.quantile(0.5), v.quantile(0.99))
	b.WriteByte('\n')
	f("", "%10s %12s", "CPU", "memory")
	for _, p := range v.servers {
		f(p.Name, "%8.1f %% %8d MiB", v.used.Percent(v.used.CPU[p.Name]), v.used.RSS[p.Name]>>20)
	}
	f("all else", "%8.1f %%", v.used.Percent(v.used.Others))
	return b.String()
}

// line is the screen as one line.
func (v *view) line() string {
	var parts []string
	for line := range strings.Lines(v.screen()) {
		if words := strings.Fields(line); len(words) > 0 && words[0] != "CPU" {
			parts = append(parts, strings.Join(words, " "))
		}
	}
	return report.Clock(v.elapsed) + " " + strings.Join(parts, " · ")
}

// isTerminal reports whether w is a terminal with cursor movement.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// text returns the summary. Behind watchfan, it says what kube-apiserver would have needed.
func (s *figures) text() string {
	var b strings.Builder
	f := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "  %-22s"+format+"\n", append([]any{label}, args...)...)
	}
	fmt.Fprintf(&b, "\nIn %v, over %v:\n", s.used.Window.Round(time.Second), s.peer)
	f("deliveries", "%s of %s updates, to %s clients; %d lost", report.Human(float64(s.got.Deliveries)), report.Human(float64(s.updates)),
		report.Human(float64(s.clients)), s.lost)
	f("latency", "p50 %s, p99 %s", s.quantile(0.5), s.quantile(0.99))
	for _, p := range s.servers {
		f("CPU of "+p.Name, "%s", cpuSeconds(s.used.CPU[p.Name]))
	}
	if s.got.Deliveries == 0 {
		return b.String()
	}
	server := s.peer.Name
	f("for each delivery", "%s µs of %s", report.Human(1e6*s.used.CPU[server].Seconds()/float64(s.got.Deliveries)), server)
	if s.peer != report.Direct {
		s.writeWithout(&b)
	}
	return b.String()
}

// writeWithout says what kube-apiserver would have needed without watchfan, by the figures of
// bench/README.md.
func (s *figures) writeWithout(b *strings.Builder) {
	each := assess.DeliveryCPU()
	needed := func(seconds float64) time.Duration {
		return time.Duration(seconds * float64(s.got.Deliveries) * float64(time.Second))
	}
	fmt.Fprintf(b, "Without watchfan, kube-apiserver would have needed about %s more (%s to %s) for these deliveries:\n"+
		"%s µs for each (%s to %s), by bench/README.md, on 2 cores of an AMD EPYC.\n"+
		"bin/bench demo --direct measures it on this machine.\n",
		cpuSeconds(needed(each.Mid)), cpuSeconds(needed(each.Low)), cpuSeconds(needed(each.High)),
		report.Human(1e6*each.Mid), report.Human(1e6*each.Low), report.Human(1e6*each.High))
}

func cpuSeconds(d time.Duration) string { return report.Human(d.Seconds()) + " s" }
