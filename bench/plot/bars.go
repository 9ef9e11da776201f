package main

import (
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// bars are horizontal bars, each below its label and with its value behind it.
type bars struct {
	rows   []bar
	format func(spread) string
}

type bar struct {
	series string // for its colour
	label  string
	value  spread
}

// Heights in points: a label, its bar, and the space below it.
const (
	barLabel = textSize * lineSpace
	barThick = 12
	barSpace = 9
)

func (b *bars) height() vg.Length { return vg.Length(len(b.rows)) * (barLabel + barThick + barSpace) }

func (b *bars) draw(c draw.Canvas, t *theme) {
	most := 0.0
	room := c.Max.X - c.Min.X
	text := t.text(textSize, t.ink)
	for _, r := range b.rows {
		most = max(most, r.value.mid)
		room = min(room, c.Max.X-c.Min.X-width(text, b.format(r.value))-6)
	}
	y := c.Max.Y
	for _, r := range b.rows {
		y -= barLabel
		c.FillText(t.text(textSize, t.faint), vg.Point{X: c.Min.X, Y: y + 4}, r.label)
		y -= barThick
		length := max(room*vg.Length(r.value.mid/most), 1.5)
		c.SetColor(t.colour(r.series))
		c.Fill(vg.Rectangle{Min: vg.Point{X: c.Min.X, Y: y}, Max: vg.Point{X: c.Min.X + length, Y: y + barThick}}.Path())
		c.FillText(text, vg.Point{X: c.Min.X + length + 6, Y: y + 2}, b.format(r.value))
		y -= barSpace
	}
}
