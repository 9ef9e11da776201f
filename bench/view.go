//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// A view is what one refresh shows: the last period.
type view struct {
	elapsed       time.Duration // since the load began
	got           *reading
	writes        uint64
	clients, lost int
	watches       int // at kube-apiserver, of the resource, beyond its own; -1 if not known yet
	servers       []measure.Process
	used          measure.Usage
}

func (v *view) perSecond(n uint64) string { return human(float64(n) / v.used.Window.Seconds()) }

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
	f("clients", "%s (%d lost)", human(float64(v.clients-v.lost)), v.lost)
	f("upstream watches", "%s at kube-apiserver", v.upstream())
	f("updates/s", "%s", v.perSecond(v.writes))
	f("deliveries/s", "%s", v.perSecond(v.got.deliveries))
	f("latency", "p50 %s   p99 %s", milliseconds(v.got.latency.Quantile(0.5)), milliseconds(v.got.latency.Quantile(0.99)))
	b.WriteByte('\n')
	f("", "%10s %12s", "CPU", "memory")
	for _, p := range v.servers {
		f(p.Name, "%8.1f %% %8d MiB", v.used.Percent(v.used.CPU[p.Name]), v.used.RSS[p.Name]>>20)
	}
	f("all else", "%8.1f %%", v.used.Percent(v.used.Others))
	return b.String()
}

func (v *view) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s clients %d lost %d upstream %s updates/s %s deliveries/s %s p50 %s p99 %s", clock(v.elapsed), v.clients-v.lost, v.lost,
		v.upstream(), v.perSecond(v.writes), v.perSecond(v.got.deliveries),
		milliseconds(v.got.latency.Quantile(0.5)), milliseconds(v.got.latency.Quantile(0.99)))
	for _, p := range v.servers {
		fmt.Fprintf(&b, " · %s %.0f%% %d MiB", p.Name, v.used.Percent(v.used.CPU[p.Name]), v.used.RSS[p.Name]>>20)
	}
	fmt.Fprintf(&b, " · all else %.0f%%", v.used.Percent(v.used.Others))
	return b.String()
}

func milliseconds(d time.Duration) string { return human(float64(d)/1e6) + " ms" }

// isTerminal reports whether w is a terminal that understands cursor movement.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && info.Mode()&os.ModeDevice != 0 && f.Name() != os.DevNull
}
