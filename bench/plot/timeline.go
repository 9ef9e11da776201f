package main

import (
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// timelinePicture shows storms on one time axis: the newest report that has them of kube-apiserver
// and of watchfan.
func timelinePicture(runs []*run) (*picture, bool) {
	for _, r := range runs {
		var panels timelines
		for _, l := range r.timelines {
			b := parseName(l.Name)
			if b.axes["storm"] != "informers" || b.axes["priority"] != "idle" || l.Round > 1 || len(l.Moments) < 2 {
				continue
			}
			panels.lines = append(panels.lines, timelineOf{b.peer(), l.Moments})
		}
		if len(panels.lines) < 2 {
			continue
		}
		clients, _ := parseName(r.timelines[0].Name).number("clients")
		var legend []string
		for _, l := range panels.lines {
			legend = append(legend, l.peer)
		}
		title := thousands(clients) + " informers list at once, second by second"
		return &picture{name: "storm-timeline", title: title, legend: legend, body: &panels,
			notes: []string{"They begin at 0 s. CPU is of all servers together. The storm's clients get only the time " +
				"that the servers leave."},
			from: []*run{r}}, true
	}
	return nil, false
}

// parseName returns a benchmark with the axes of a full name: BenchmarkStorm/peer=x/tls=true.
func parseName(name string) *benchmark {
	b := &benchmark{axes: make(map[string]string)}
	for part := range strings.SplitSeq(name, "/") {
		if key, value, ok := strings.Cut(part, "="); ok {
			b.axes[key] = value
		}
	}
	return b
}

// timelines are three panels above one time axis.
type timelines struct{ lines []timelineOf }

type timelineOf struct {
	peer    string
	moments []moment
}

// Heights in points: a panel with its label, and the label of the time axis.
const (
	panelHeight = 110
	panelLabel  = textSize * 1.8
	timeLabel   = textSize * 1.5
)

func (*timelines) height() vg.Length { return 3*panelHeight + timeLabel }

// A panel shows one value of each moment.
type panel struct {
	label string
	value func(*moment) float64
	log   bool // leaves out zeros
}

var panels = []panel{
	{"CPU of all servers, cores", func(m *moment) float64 { return m.Cores }, false},
	{"p99 of the others, ms", func(m *moment) float64 { return 1e3 * m.P99 }, true},
	{"clients of the storm that are live", func(m *moment) float64 { return float64(m.Live) }, false},
}

func (l *timelines) draw(c draw.Canvas, t *theme) {
	var plots [][]*plot.Plot
	for i := range panels {
		plots = append(plots, []*plot.Plot{l.plot(&panels[i], t)})
	}
	style := t.text(textSize, t.faint)
	style.XAlign = draw.XCenter
	c.FillText(style, vg.Point{X: (c.Min.X + c.Max.X) / 2, Y: c.Min.Y + 3}, "seconds since the storm began")
	style.XAlign = draw.XLeft
	rows := draw.Tiles{Rows: len(plots), Cols: 1, PadTop: panelLabel, PadY: panelLabel}
	for i, part := range plot.Align(plots, rows, draw.Crop(c, 0, 0, timeLabel, 0)) {
		c.FillText(style, vg.Point{X: c.Min.X, Y: part[0].Max.Y + panelLabel - textSize}, panels[i].label)
		plots[i][0].Draw(part[0])
	}
}

// plot returns one panel, with a line for each server and the time axis of all panels.
func (l *timelines) plot(of *panel, t *theme) *plot.Plot {
	p := t.axes()
	p.Add(t.gridLines())
	if of.log {
		p.Y.Scale = plot.LogScale{}
	}
	begin, end := 0.0, 0.0
	for _, line := range l.lines {
		var xys plotter.XYs
		for i := range line.moments {
			m := &line.moments[i]
			begin, end = min(begin, m.Seconds), max(end, m.Seconds)
			if v := of.value(m); v > 0 || !of.log {
				xys = append(xys, plotter.XY{X: m.Seconds, Y: v})
			}
		}
		if len(xys) > 0 {
			p.Add(&plotter.Line{XYs: xys, LineStyle: draw.LineStyle{Color: t.colour(line.peer), Width: 1.6}})
		}
	}
	if of.log {
		p.Y.Tick.Marker = plot.ConstantTicks(logTicks(p.Y.Min, p.Y.Max, 20))
	} else {
		p.Y.Min = 0
		p.Y.Tick.Marker = plot.TickerFunc(plainTicks)
	}
	p.X.Min, p.X.Max = begin, end
	return p
}

// plainTicks are gonum's, without decimals that say nothing.
func plainTicks(low, high float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(low, high)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = thousands(ticks[i].Value)
		}
	}
	return ticks
}
