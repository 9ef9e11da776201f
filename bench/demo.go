package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
	"github.com/watchfan/watchfan/proxy/operate/assess"
)

// runDemo is `bench demo`. It shows one peer under a steady load until Ctrl-C, a line each second.
func runDemo(ctx context.Context, fs *flag.FlagSet, args []string, stdout, stderr io.Writer) error {
	o := &demoOptions{Options: newOptions()}
	if err := parseFlags(fs, o, args); err != nil {
		return err
	}
	p := newProgram(stderr, nil)
	p.opts = o.Options
	p.say = func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) }
	d := &demo{program: p, peer: o.Peers[0], clients: int64(o.clients), out: stdout}
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

func (o *demoOptions) AddFlags(fs *flag.FlagSet) {
	o.addPrograms(fs)
	addNumber(fs, &o.clients, "clients", 1000, 1, "number of watchers")
	fs.Float64Var(&o.rate, "rate", 50, "updates per second")
	fs.DurationVar(&o.duration, "duration", 0, "duration of the demo; 0 is until Ctrl-C")
	fs.BoolVar(&o.secure, "tls", false, "watch over TLS, with a bearer token")
	fs.BoolVar(&o.direct, "direct", false, "watch kube-apiserver itself (over TLS), for comparison")
}

// Validate sets the case in Options too.
func (o *demoOptions) Validate() error {
	if !(o.rate > 0 && o.rate <= 1e6) || o.duration < 0 {
		return errors.New("--rate must be positive, --duration not negative")
	}
	o.Peers, o.Clients, o.Rates, o.Parts = []report.Peer{report.WatchfanBare}, []int{o.clients}, []load.Rate{load.Rate(o.rate)}, []string{partTraffic}
	o.Window, o.Warmup = time.Second, 0
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
	*program
	peer    report.Peer
	clients int64
	out     io.Writer
	session *session
	own     int       // kube-apiserver's watches of itself
	watches int       // all of its watches, when they were last scraped
	scraped time.Time // when that was
}

// run starts the servers and the load, shows them, stops the load, and prints a summary.
func (d *demo) run(ctx context.Context, duration time.Duration) error {
	d.say("Starting a dev cluster (etcd and kube-apiserver) and %s …", d.peer.Name)
	st, err := newStage(ctx, d.opts, d.peer)
	defer st.Stop()
	if err != nil {
		return err
	}
	d.session = d.program.session(st)
	defer d.session.disband()
	if d.own, err = d.upstreamWatches(ctx); err != nil {
		return err
	}
	d.say("Connecting %d watchers to %v …", d.opts.Clients[0], d.peer)
	if err := d.session.gather(ctx, d.opts.Clients[0]); err != nil {
		return err
	}
	if p := st.Proxy; p != nil {
		d.say("\nStatus page: %s/   In another terminal: %s top --admin %s", p.Admin.URL(), d.opts.Watchfan, p.Admin.URL())
	}
	return d.show(ctx, st, duration)
}

// show writes a line each second under load, until ctx ends, the duration is over, or an error occurs, and
// then a summary.
func (d *demo) show(ctx context.Context, st *server.Stage, duration time.Duration) error {
	whole, err := d.session.begin(ctx)
	if err != nil {
		return err
	}
	stop := st.Load(ctx, d.session.fleet, d.opts.Rates[0])
	for start := time.Now(); err == nil && (duration == 0 || time.Since(start) < duration); {
		var r result
		if r, err = d.session.window(ctx); err == nil {
			err = d.line(ctx, &r, time.Since(start))
		}
	}
	unended := context.WithoutCancel(ctx)
	err = errors.Join(err, st.Alive(), stop(), d.session.fleet.Drain(unended, 10*time.Second))
	r, failed := d.session.end(unended, whole)
	fmt.Fprint(d.out, d.summary(&r))
	return errors.Join(err, failed)
}

// line writes the figures of a window.
func (d *demo) line(ctx context.Context, r *result, elapsed time.Duration) (err error) {
	if time.Since(d.scraped) > 5*time.Second { // the page has thousands of lines
		if d.watches, err = d.upstreamWatches(ctx); err != nil {
			return err
		}
		d.scraped = time.Now()
	}
	perSecond := func(n uint64) string { return report.Human(float64(n) / r.Window.Seconds()) }
	lost := d.session.fleet.Lost()
	fmt.Fprintf(d.out, "%s clients %s (%d lost) · upstream watches %d at kube-apiserver · updates/s %s · deliveries/s %s · latency %s",
		report.Clock(elapsed), report.Human(float64(d.clients-lost)), lost, d.watches-d.own, perSecond(r.writes),
		perSecond(r.got.Deliveries), r.latency())
	for _, name := range slices.Sorted(maps.Keys(r.CPU)) {
		fmt.Fprintf(d.out, " · %s %.0f %% %d MiB", name, r.Percent(r.CPU[name]), r.RSS[name]>>20)
	}
	fmt.Fprintln(d.out)
	return d.session.fleet.Err()
}

// upstreamWatches returns the number of watches of configmaps that kube-apiserver serves, by its
// own count. Some of them are its own.
func (d *demo) upstreamWatches(ctx context.Context) (int, error) {
	sum, err := server.Sum(ctx, d.session.Cluster.Endpoint, "apiserver_longrunning_requests", `resource="configmaps"`, `verb="WATCH"`)
	return int(sum), err
}

func (r *result) latency() string {
	return "p50 " + report.Milliseconds(r.got.Latency.Quantile(0.5)) + " p99 " + report.Milliseconds(r.got.Latency.Quantile(0.99))
}

// summary says what has been used. Behind watchfan, it says what kube-apiserver would have needed.
func (d *demo) summary(r *result) string {
	var b strings.Builder
	say := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "  %-22s"+format+"\n", append([]any{label}, args...)...)
	}
	fmt.Fprintf(&b, "\nIn %v, over %v:\n", r.Window.Round(time.Second), d.peer)
	say("deliveries", "%s of %s updates, to %s clients", report.Human(float64(r.got.Deliveries)), report.Human(float64(r.writes)),
		report.Human(float64(d.clients)))
	say("latency", "%s", r.latency())
	for _, name := range slices.Sorted(maps.Keys(r.CPU)) {
		say("CPU of "+name, "%s s", report.Human(r.CPU[name].Seconds()))
	}
	if r.got.Deliveries == 0 {
		return b.String()
	}
	say("for each delivery", "%s µs of %s", report.Human(1e6*r.CPU[d.peer.Name].Seconds()/float64(r.got.Deliveries)), d.peer.Name)
	if d.peer != report.Direct {
		r.writeWithout(&b)
	}
	return b.String()
}

// writeWithout says what kube-apiserver would have needed without watchfan, by the figures of
// bench/README.md.
func (r *result) writeWithout(b *strings.Builder) {
	each, n := assess.DeliveryCPU(), float64(r.got.Deliveries)
	fmt.Fprintf(b, "Without watchfan, kube-apiserver would have needed about %s s more (%s s to %s s) for these deliveries:\n"+
		"%s µs for each (%s to %s), by bench/README.md, on 2 cores of an AMD EPYC.\n"+
		"bin/bench demo --direct measures it on this machine.\n",
		report.Human(each.Mid*n), report.Human(each.Low*n), report.Human(each.High*n),
		report.Human(1e6*each.Mid), report.Human(1e6*each.Low), report.Human(1e6*each.High))
}
