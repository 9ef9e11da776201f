package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A chart has lines through points. Both axes are logarithmic, unless it says otherwise.
type chart struct {
	x, y    string // labels
	series  []series
	xTicks  []plot.Tick // nil: the values of the points
	linearX bool
	level   *level // a horizontal line; nil is none
}

type series struct {
	name   string
	points []point
}

type point struct {
	x float64
	spread
}

// A level is a value to compare with.
type level struct {
	value float64
	text  string
}

func (*chart) height() vg.Length { return 235 }

func (k *chart) draw(c draw.Canvas, t *theme) {
	k.dropZeros()
	p := t.axes()
	if !k.linearX {
		p.X.Scale = plot.LogScale{}
	}
	p.Y.Scale = plot.LogScale{}
	p.Add(t.gridLines())
	low, high := k.bounds()
	for _, s := range k.series {
		t.addSeries(p, &s)
	}
	if k.level != nil {
		p.Add(&levelLine{k.level, t})
	}
	p.Y.Min, p.Y.Max = low, high
	p.Y.Tick.Marker = plot.ConstantTicks(logTicks(low, high, 200))
	p.X.Tick.Marker = plot.ConstantTicks(k.ticks())
	if !k.linearX {
		p.X.Min, p.X.Max = p.X.Min/1.15, p.X.Max*1.15
	}
	p.Draw(t.between(c, k.y, k.x))
}

// between writes the labels of both axes, that of the vertical one above it, where it is easy to read.
// It returns the space between them. The labels of gonum's logarithmic axes take room at the wrong
// side.
func (t *theme) between(c draw.Canvas, y, x string) draw.Canvas {
	style := t.text(textSize, t.faint)
	c.FillText(style, vg.Point{X: c.Min.X, Y: c.Max.Y - textSize}, y)
	style.XAlign = draw.XCenter
	c.FillText(style, vg.Point{X: (c.Min.X + c.Max.X) / 2, Y: c.Min.Y + 3}, x)
	return draw.Crop(c, 0, 0, textSize*1.5, -textSize*1.8)
}

// dropZeros removes what a logarithmic axis cannot show: points at 0, and the bars of others below it.
func (k *chart) dropZeros() {
	for i := range k.series {
		s := &k.series[i]
		s.points = slices.DeleteFunc(s.points, func(p point) bool { return p.mid <= 0 })
		for j := range s.points {
			if p := &s.points[j]; p.low <= 0 {
				p.low = p.mid
			}
		}
	}
}

// ticks are the values of x.
func (k *chart) ticks() []plot.Tick {
	if k.xTicks != nil {
		return k.xTicks
	}
	var values []float64
	for _, s := range k.series {
		for _, p := range s.points {
			values = append(values, p.x)
		}
	}
	slices.Sort(values)
	var ticks []plot.Tick
	for _, v := range slices.Compact(values) {
		ticks = append(ticks, plot.Tick{Value: v, Label: thousands(v)})
	}
	return ticks
}

// bounds returns the range of y: a little more than all values, level included.
func (k *chart) bounds() (low, high float64) {
	low, high = math.Inf(1), 0
	for _, s := range k.series {
		for _, p := range s.points {
			low, high = min(low, p.low), max(high, p.high)
		}
	}
	if k.level != nil {
		low, high = min(low, k.level.value), max(high, k.level.value*1.15)
	}
	return low / 1.25, high * 1.25
}

// axes returns an empty plot in the theme's colours.
func (t *theme) axes() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		ticks := axis.Tick.Label
		axis.Tick.Label = t.text(textSize, t.ink)
		axis.Tick.Label.XAlign, axis.Tick.Label.YAlign = ticks.XAlign, ticks.YAlign
		axis.LineStyle.Color, axis.Tick.LineStyle.Color = t.faint, t.faint
	}
	p.X.Padding, p.Y.Padding = 4, 4
	return p
}

func (t *theme) gridLines() plot.Plotter {
	g := plotter.NewGrid()
	g.Vertical.Color = nil
	g.Horizontal.Color, g.Horizontal.Width = t.grid, 0.6
	return g
}

// addSeries adds a line through the medians, and a bar from the smallest to the largest value of
// each point.
func (t *theme) addSeries(p *plot.Plot, s *series) {
	xys := make(plotter.XYs, len(s.points))
	errors := make(plotter.YErrors, len(s.points))
	for i, x := range s.points {
		xys[i].X, xys[i].Y = x.x, x.mid
		errors[i].Low, errors[i].High = x.mid-x.low, x.high-x.mid
	}
	line := &plotter.Line{XYs: xys, LineStyle: t.line(s.name, 1.8)}
	mark := draw.GlyphStyle{Color: t.colour(s.name), Radius: 3.2, Shape: glyph(s.name)}
	points := &plotter.Scatter{XYs: xys, GlyphStyle: mark}
	thin := draw.LineStyle{Color: t.colour(s.name), Width: 1}
	bars := &plotter.YErrorBars{XYs: xys, YErrors: errors, LineStyle: thin, CapWidth: 6}
	p.Add(line, bars, points)
}

// levelLine draws a level and its text.
type levelLine struct {
	*level
	theme *theme
}

func (l *levelLine) Plot(c draw.Canvas, p *plot.Plot) {
	_, transform := p.Transforms(&c)
	y := transform(l.value)
	dashes := []vg.Length{5, 3}
	c.StrokeLine2(draw.LineStyle{Color: l.theme.faint, Width: 1.2, Dashes: dashes}, c.Min.X, y, c.Max.X, y)
	style := l.theme.text(textSize, l.theme.faint)
	c.FillText(style, vg.Point{X: c.Max.X - width(style, l.text), Y: y + 4}, l.text)
}

// logTicks returns labelled values between two bounds: 1, 2 and 5 of each decade, or only 1 if the
// bounds are more than a factor of wide apart.
func logTicks(low, high, wide float64) (ticks []plot.Tick) {
	digits := []float64{1, 2, 5}
	if high/low > wide {
		digits = digits[:1]
	}
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		for _, d := range digits {
			if v := d * math.Pow(10, e); v >= low && v <= high {
				ticks = append(ticks, plot.Tick{Value: v, Label: thousands(v)})
			}
		}
	}
	return ticks
}

// thousands writes a number with at most three significant digits, and a comma between thousands.
func thousands(v float64) string {
	if v >= 10_000 {
		return fmt.Sprintf("%s,%03.0f", thousands(math.Floor(v/1000)), math.Mod(v, 1000))
	}
	if v >= 1000 {
		return fmt.Sprintf("%.0f,%03.0f", math.Floor(v/1000), math.Mod(v, 1000))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
