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
	err := p.demo(ctx, o.duration, stdout)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // Ctrl-C is the usual end
	}
	return err
}

// demoOptions are the settings of one case, and its duration.
type demoOptions struct {
	*Options
	clients        int
	rate           load.Rate
	duration       time.Duration // 0 is until Ctrl-C
	secure, direct bool
}

func (o *demoOptions) AddFlags(fs *flag.FlagSet) {
	o.addPrograms(fs)
	addNumber(fs, &o.clients, "clients", 1000, 1, "number of watchers")
	addSetting(fs, &o.rate, "rate", 50, "updates per second; max is as fast as possible", load.ParseRate)
	fs.DurationVar(&o.duration, "duration", 0, "duration of the demo; 0 is until Ctrl-C")
	fs.BoolVar(&o.secure, "tls", false, "watch over TLS, with a bearer token")
	fs.BoolVar(&o.direct, "direct", false, "watch kube-apiserver itself (over TLS), for comparison")
}

// Validate sets the case in Options too.
func (o *demoOptions) Validate() error {
	if o.duration < 0 {
		return errors.New("--duration must not be negative")
	}
	o.Peers, o.Clients, o.Rates = []report.Peer{report.WatchfanBare}, []int{o.clients}, []load.Rate{o.rate}
	o.Parts, o.Window, o.Warmup = []string{partTraffic}, time.Second, 0
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
	*session
	peer     report.Peer
	clients  int
	out      io.Writer
	upstream int // kube-apiserver's watches for them
}

// demo starts the servers and the load, shows them, stops the load, and prints a summary.
func (p *program) demo(ctx context.Context, duration time.Duration, out io.Writer) error {
	peer, clients := p.opts.Peers[0], p.opts.Clients[0]
	p.say("Starting a dev cluster (etcd and kube-apiserver) and %s …", peer.Name)
	st, err := newStage(ctx, p.opts, peer)
	if err != nil {
		return err
	}
	defer st.Stop()
	d := &demo{session: p.session(st), peer: peer, clients: clients, out: out}
	defer d.disband()
	own, err := d.upstreamWatches(ctx)
	if err != nil {
		return err
	}
	p.say("Connecting %d watchers to %v …", clients, peer)
	if err := d.gather(ctx, clients); err != nil {
		return err
	}
	all, err := d.upstreamWatches(ctx)
	if err != nil {
		return err
	}
	d.upstream = all - own
	if st.Proxy != nil {
		page := st.Proxy.Admin.URL()
		p.say("\nStatus page: %s/   In another terminal: %s top --admin %s", page, p.opts.Watchfan, page)
	}
	return d.show(ctx, duration)
}

// upstreamWatches returns the number of watches of ConfigMaps that kube-apiserver serves. Some are its own.
func (d *demo) upstreamWatches(ctx context.Context) (int, error) {
	sum, err := server.Sum(ctx, d.Cluster.Endpoint, "apiserver_longrunning_requests",
		`resource="configmaps"`, `verb="WATCH"`)
	return int(sum), err
}

// show writes a line each second under load, until ctx ends, the duration is over, or an error occurs, and
// then a summary.
func (d *demo) show(ctx context.Context, duration time.Duration) error {
	whole, err := d.begin(ctx)
	if err != nil {
		return err
	}
	stop := d.Load(ctx, d.fleet, d.opts.Rates[0])
	for start := time.Now(); err == nil && (duration == 0 || time.Since(start) < duration); {
		var r result
		if r, err = d.window(ctx); err == nil {
			d.line(&r, time.Since(start))
			err = d.fleet.Err()
		}
	}
	unended := context.WithoutCancel(ctx)
	err = errors.Join(err, d.Alive(), stop(), d.fleet.Drain(unended, 10*time.Second))
	r, failed := d.end(unended, whole)
	fmt.Fprint(d.out, d.summary(&r))
	return errors.Join(err, failed)
}

func (d *demo) line(r *result, elapsed time.Duration) {
	perSecond := func(n uint64) string { return report.Human(float64(n) / r.Window.Seconds()) }
	lost := d.fleet.Lost()
	fmt.Fprintf(d.out, "%s clients %s (%d lost) · upstream watches %d at kube-apiserver · updates/s %s · deliveries/s %s · latency %s",
		report.Clock(elapsed), report.Human(float64(d.clients)-float64(lost)), lost, d.upstream, perSecond(r.writes),
		perSecond(r.got.Deliveries), r.latency())
	for _, name := range slices.Sorted(maps.Keys(r.CPU)) {
		fmt.Fprintf(d.out, " · %s %.0f %% %d MiB", name, r.Percent(r.CPU[name]), r.RSS[name]>>20)
	}
	fmt.Fprintln(d.out)
}

func (r *result) latency() string {
	ms := func(q float64) string { return report.Human(float64(r.got.Latency.Quantile(q)) / 1e6) }
	return "p50 " + ms(0.5) + " ms p99 " + ms(0.99) + " ms"
}

// summary says what has been used.
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
	return b.String()
}
