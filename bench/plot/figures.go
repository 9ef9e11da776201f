package main

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
)

// figures are the pictures. Each takes its numbers from the newest report that has them; ok is false
// if none has.
var figures = []func(runs []*run) (p *picture, ok bool){
	cpuPicture, writesPicture, latencyPicture, memoryPicture, joinPicture, stormPicture, timelinePicture}

const spreadNote = "Points are medians of the rounds. Bars reach from the smallest round to the largest."

// paced reports whether a case has a fixed rate of writes.
func paced(b *benchmark) bool { return b.name == "Fanout" && b.axes["rate"] != "max" }

func unpaced(b *benchmark) bool { return b.name == "Fanout" && b.axes["rate"] == "max" }

func cpuPicture(runs []*run) (*picture, bool) {
	r, all := widest(runs, paced, "cpu-sec/delivery")
	if r == nil {
		return nil, false
	}
	return &picture{name: "cpu", title: "CPU for each event that reaches a watcher", legend: names(all),
		body: &chart{x: "watchers of one resource", y: "µs of the serving process, per delivery", series: all},
		notes: []string{"50 updates a second of 1.9 KB each, less often where that would be more than 50,000 deliveries " +
			"a second. HTTP/1.1. " + spreadNote},
		from: []*run{r}}, true
}

func writesPicture(runs []*run) (*picture, bool) {
	r, all := widest(runs, unpaced, "writes/s")
	if r == nil {
		return nil, false
	}
	k := &chart{x: "watchers of one resource", y: "writes a second", series: all}
	alone, ok := spreadOf(r.pick(func(b *benchmark) bool { return unpaced(b) && b.axes["clients"] == "0" }), "writes/s", 1)
	if ok {
		k.level = &level{alone.mid, fmt.Sprintf("without a watcher: %s", thousands(math.Round(alone.mid)))}
	}
	return &picture{name: "writes", title: "Writes a second that all watchers can follow", legend: names(all), body: k,
		notes: []string{"Writers wait while watchers are more than 8 writes behind on average. Clients and servers " +
			"share the machine. " + spreadNote},
		from: []*run{r}}, true
}

// widest returns the run with the most numbers of watchers among some cases, the newest if several
// have as many, and its series.
func widest(runs []*run, choose func(*benchmark) bool, unit string) (best *run, all []series) {
	most := 1
	for _, r := range runs {
		if !r.usual() || r.conditions["mixed-selectors"] == "true" {
			continue
		}
		scale := 1.0
		if unit == "cpu-sec/delivery" {
			scale = 1e6
		}
		cases := r.pick(func(b *benchmark) bool { return choose(b) && b.axes["clients"] != "0" })
		found := byPeer(cases, "clients", unit, scale)
		numbers := make(map[float64]bool)
		for _, s := range found {
			for _, p := range s.points {
				numbers[p.x] = true
			}
		}
		if len(numbers) > most {
			best, all, most = r, found, len(numbers)
		}
	}
	return best, all
}

// byPeer returns a series for each server: the spread of a unit at each value of an axis.
func byPeer(cases []benchmark, axis, unit string, scale float64) (all []series) {
	type place struct {
		peer string
		x    float64
	}
	at := make(map[place][]benchmark)
	var peers []string
	for _, b := range cases {
		x, ok := b.number(axis)
		if _, has := b.values[unit]; !ok || !has {
			continue
		}
		if !slices.Contains(peers, b.peer()) {
			peers = append(peers, b.peer())
		}
		at[place{b.peer(), x}] = append(at[place{b.peer(), x}], b)
	}
	for _, peer := range peers {
		s := series{name: peer}
		for k, cases := range at {
			if v, ok := spreadOf(cases, unit, scale); k.peer == peer && ok {
				s.points = append(s.points, point{k.x, v})
			}
		}
		slices.SortFunc(s.points, func(a, b point) int { return int(math.Copysign(1, a.x-b.x)) })
		all = append(all, s)
	}
	return all
}

func names(all []series) (names []string) {
	for _, s := range all {
		names = append(names, s.name)
	}
	return names
}

// percentiles are the places on the axis of the latency's picture: each is ten times rarer than the
// one before it.
var percentiles = []struct {
	unit, label string
	rare        float64
}{
	{"p50-sec", "50 %", 2}, {"p90-sec", "90 %", 10}, {"p99-sec", "99 %", 100}, {"p99.9-sec", "99.9 %", 1000},
	{"p99.99-sec", "99.99 %", 10_000},
}

func latencyPicture(runs []*run) (*picture, bool) {
	for _, r := range runs {
		cases := r.pick(func(b *benchmark) bool { return paced(b) && b.axes["clients"] == "1000" })
		if len(cases) == 0 || !r.usual() {
			continue
		}
		all, ticks := latencies(cases)
		return &picture{name: "latency", title: "From a write to its event at a watcher", legend: names(all),
			body: &chart{x: "share of the deliveries that are at least as fast",
				y: "ms from the write's acknowledgement to the last byte read", series: all, xTicks: ticks},
			notes: []string{"1,000 watchers on connections of their own, " + cases[0].axes["rate"] + " updates a second. " +
				spreadNote},
			from: []*run{r}}, true
	}
	return nil, false
}

// latencies returns a series for each server, with a point for each percentile that the cases have.
func latencies(cases []benchmark) (all []series, ticks []plot.Tick) {
	for _, p := range percentiles {
		found := byPeer(cases, "clients", p.unit, 1e3)
		for _, s := range found {
			i := slices.IndexFunc(all, func(x series) bool { return x.name == s.name })
			if i < 0 {
				i, all = len(all), append(all, series{name: s.name})
			}
			all[i].points = append(all[i].points, point{p.rare, s.points[0].spread})
		}
		if len(found) > 0 {
			ticks = append(ticks, plot.Tick{Value: p.rare, Label: p.label})
		}
	}
	return all, ticks
}

func memoryPicture(runs []*run) (*picture, bool) {
	b := &bars{format: func(s spread) string {
		if s.low == s.high {
			return thousands(round3(s.mid)) + " KiB"
		}
		return fmt.Sprintf("%s KiB (%s to %s)", thousands(round3(s.mid)), thousands(round3(s.low)), thousands(round3(s.high)))
	}}
	p := &picture{name: "memory", title: "Resident memory of the server for each idle watcher", body: b,
		notes: []string{"Medians of the rounds, and the smallest and the largest. Buffers of the kernel are not in it."}}
	for _, kind := range []struct {
		choose func(*benchmark) bool
		axis   string // of the connections; empty: one each
	}{
		{func(x *benchmark) bool { return x.name == "Idle" && x.axes["clients"] == "1000" }, ""},
		{func(x *benchmark) bool { return x.name == "HTTP2" && x.axes["rate"] == "idle" }, "streams"},
		{func(x *benchmark) bool { return x.name == "HTTP2Crowd" }, "streams"},
	} {
		for _, r := range runs {
			cases := r.pick(kind.choose)
			if len(cases) == 0 || !r.usual() {
				continue
			}
			how := "HTTP/1.1, a connection each"
			if kind.axis != "" {
				how = "HTTP/2, " + cases[0].axes[kind.axis] + " on a connection"
			}
			for _, s := range byPeer(cases, "clients", "B/watcher", 1.0/1024) {
				last := s.points[len(s.points)-1]
				label := fmt.Sprintf("%s: %s watchers, %s", s.name, thousands(last.x), how)
				b.rows = append(b.rows, bar{s.name, label, last.spread})
			}
			if !slices.Contains(p.from, r) {
				p.from = append(p.from, r)
			}
			break
		}
	}
	return p, len(b.rows) > 0
}

// round3 rounds to three significant digits.
func round3(v float64) float64 {
	if v == 0 {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-2)
	return math.Round(v/unit) * unit
}

// joinRows are the rows of a scale report in the picture of joins, with the ends of their series'
// names.
var joinRows = []struct{ row, name string }{{"join-all", ": all pods"}, {"join-node", narrow}}

// joinPicture shows a scale report with two sizes of the collection at least.
func joinPicture(runs []*run) (*picture, bool) {
	for _, r := range runs {
		var all []series
		for _, row := range joinRows {
			for _, s := range byPeer(r.pick(func(b *benchmark) bool {
				return b.name == "Scale" && b.axes["row"] == row.row
			}), "pods", "cpu-sec/request", 1e3) {
				if len(s.points) > 1 {
					s.name += row.name
					all = append(all, s)
				}
			}
		}
		if len(all) == 0 {
			continue
		}
		return &picture{name: "join", title: "CPU to bring one new watcher up to date", legend: names(all),
			body: &chart{x: "pods in the collection", y: "ms of the serving process, per watcher", series: all},
			notes: []string{"Watches that begin with initial events, without the TLS handshake: one for all pods, and many at " +
				"once for those of a node each. A pod has 3.7 KB of JSON. " + spreadNote + " Slow cases have fewer rounds."},
			from: []*run{r}}, true
	}
	return nil, false
}

// stormPicture compares what others feel before, during and after a storm: the newest report that
// has storms of several peers.
func stormPicture(runs []*run) (*picture, bool) {
	for _, r := range runs {
		cases := r.pick(func(b *benchmark) bool {
			return b.name == "Storm" && b.axes["storm"] == "informers" && b.axes["priority"] == "idle"
		})
		var all []series
		var ticks []plot.Tick
		for i, when := range []string{"before", "during", "after"} {
			for _, s := range byPeer(cases, "clients", when+"-p99-sec", 1e3) {
				j := slices.IndexFunc(all, func(x series) bool { return x.name == s.name })
				if j < 0 {
					j, all = len(all), append(all, series{name: s.name})
				}
				all[j].points = append(all[j].points, point{float64(i), s.points[0].spread})
			}
			ticks = append(ticks, plot.Tick{Value: float64(i), Label: when})
		}
		if len(all) < 2 {
			continue
		}
		clients, _ := cases[0].number("clients")
		title := thousands(clients) + " informers list at once: what other watchers feel"
		return &picture{name: "storm", title: title, legend: names(all),
			body:  &chart{x: "the storm", y: "p99 of the others, ms", series: all, xTicks: ticks, linearX: true},
			notes: []string{stormLengths(cases) + " The storm's clients get only the time that the servers leave."},
			from:  []*run{r}}, true
	}
	return nil, false
}

// stormLengths says how long each server took.
func stormLengths(cases []benchmark) string {
	text := "All are live after"
	for i, b := range cases {
		if i > 0 {
			text += ";"
		}
		text += fmt.Sprintf(" %.3g s (%s)", b.values["live-sec"], b.peer())
	}
	return text + "."
}
