package main

import (
	"bytes"
	"encoding/xml"
	"image/color"
	"regexp"
	"slices"
	"strings"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A picture is a sheet with a title, a legend, a body and a caption.
type picture struct {
	name   string // of the file
	title  string // what is measured, with the unit
	legend []string
	body   body
	notes  []string // explain the picture, one paragraph each
	from   []*run   // whose figures it shows
}

// A body draws the middle of a picture.
type body interface {
	height() vg.Length
	draw(draw.Canvas, *theme)
}

// Sizes in points. A picture is as wide as a column of text, and stays legible when a phone shows
// it at two thirds of its size.
const (
	sheetWidth  = 460
	sheetMargin = 12
	titleSize   = 14
	textSize    = 11
	captionSize = 9
	lineSpace   = 1.35
)

// A theme is the colours of a picture.
type theme struct {
	name                     string
	paper, ink, faint, grid  color.Color
	kubeAPIServer, tls, bare color.Color // of kube-apiserver, and of watchfan with and without TLS
}

var themes = []*theme{
	{"light", rgb(0xffffff), rgb(0x1f2328), rgb(0x59636e), rgb(0xd1d9e0), rgb(0xc44e00), rgb(0x0a66c2), rgb(0x0b7f5c)},
	{"dark", rgb(0x0d1117), rgb(0xf0f6fc), rgb(0x9198a1), rgb(0x30363d), rgb(0xff9350), rgb(0x63b0ff), rgb(0x46d39a)},
}

func rgb(v uint32) color.Color { return color.RGBA{uint8(v >> 16), uint8(v >> 8), uint8(v), 0xff} }

// colour returns the colour of a series. The same server has the same colour in every picture.
func (t *theme) colour(series string) color.Color {
	switch {
	case strings.HasPrefix(series, "kube-apiserver"):
		return t.kubeAPIServer
	case strings.Contains(series, "plaintext"):
		return t.bare
	}
	return t.tls
}

// glyph returns the shape of a series' points, for readers who do not see the colours.
func glyph(series string) draw.GlyphDrawer {
	switch {
	case strings.HasPrefix(series, "kube-apiserver"):
		return draw.BoxGlyph{}
	case strings.Contains(series, "plaintext"):
		return draw.PyramidGlyph{}
	}
	return draw.CircleGlyph{}
}

// narrow ends the name of a series about a part of a collection. Its line is dashed.
const narrow = ": 20 pods of a node"

// line returns the style of a series' line.
func (t *theme) line(series string, width vg.Length) draw.LineStyle {
	style := draw.LineStyle{Color: t.colour(series), Width: width}
	if strings.HasSuffix(series, narrow) {
		style.Dashes = []vg.Length{4, 2.5}
	}
	return style
}

func (t *theme) text(size vg.Length, c color.Color) draw.TextStyle {
	return draw.TextStyle{Color: c, Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: size},
		Handler: plot.DefaultTextHandler}
}

func (t *theme) bold(size vg.Length) draw.TextStyle {
	style := t.text(size, t.ink)
	style.Font.Weight = xfont.WeightBold
	return style
}

// draw returns the picture as an SVG.
func (t *theme) draw(p *picture) ([]byte, error) {
	const room = vg.Length(sheetWidth - 2*sheetMargin)
	titleStyle, captionStyle := t.bold(titleSize), t.text(captionSize, t.faint)
	title := lines(titleStyle, p.title, room)
	var caption []string
	for _, note := range p.notes {
		caption = append(caption, lines(captionStyle, note, room)...)
	}
	for _, r := range p.from {
		caption = append(caption, lines(captionStyle, r.caption(), room)...)
	}
	legend := t.legendRows(p.legend, room)

	line := func(size int) vg.Length { return vg.Length(size) * lineSpace }
	head := line(titleSize)*vg.Length(len(title)) + line(textSize)*vg.Length(len(legend)) + 6
	foot := line(captionSize)*vg.Length(len(caption)) + 8
	height := 2*sheetMargin + head + p.body.height() + foot

	svg := vgsvg.New(sheetWidth, height)
	c := draw.New(svg)
	c.SetColor(t.paper)
	c.Fill(c.Rectangle.Path())
	y := height - sheetMargin
	write := func(style draw.TextStyle, size int, texts []string) {
		for _, s := range texts {
			y -= line(size)
			c.FillText(style, vg.Point{X: sheetMargin, Y: y + line(size)*0.25}, s)
		}
	}
	write(titleStyle, titleSize, title)
	for _, row := range legend {
		y -= line(textSize)
		t.drawLegend(c, row, y+line(textSize)*0.25)
	}
	y -= 6
	p.body.draw(draw.Crop(c, sheetMargin, -sheetMargin, y-p.body.height(), y-height), t)
	y -= p.body.height() + 8
	write(captionStyle, captionSize, caption)

	var out bytes.Buffer
	if _, err := svg.WriteTo(&out); err != nil {
		return nil, err
	}
	return finish(out.Bytes(), p), nil
}

// thumbnail is the width of a line in the legend, with the space behind it.
const thumbnail = 22

// legendRows divides the legend into rows that fit.
func (t *theme) legendRows(legend []string, room vg.Length) (rows [][]string) {
	used := room + 1
	for _, s := range legend {
		w := thumbnail + width(t.text(textSize, t.ink), s)
		if used+w > room {
			rows, used = append(rows, nil), 0
		}
		used += w
		rows[len(rows)-1] = append(rows[len(rows)-1], s)
	}
	return rows
}

func (t *theme) drawLegend(c draw.Canvas, row []string, y vg.Length) {
	x := vg.Length(sheetMargin)
	style := t.text(textSize, t.ink)
	for _, s := range row {
		middle := y + textSize*0.33
		c.StrokeLine2(t.line(s, 2), x, middle, x+thumbnail-6, middle)
		mark := draw.GlyphStyle{Color: t.colour(s), Radius: 3, Shape: glyph(s)}
		c.DrawGlyph(mark, vg.Point{X: x + (thumbnail-6)/2, Y: middle})
		x += thumbnail
		c.FillText(style, vg.Point{X: x, Y: y}, s)
		x += width(style, s)
	}
}

// width returns the room that a text needs. Fonts that stand in for Liberation Sans may be a fifth
// wider.
func width(style draw.TextStyle, text string) vg.Length { return 1.2 * style.Width(text) }

// lines breaks a text into lines that fit. A word that is longer has a line of its own.
func lines(style draw.TextStyle, text string, room vg.Length) (out []string) {
	for word := range strings.FieldsSeq(text) {
		if n := len(out); n > 0 && width(style, out[n-1]+" "+word) <= room {
			out[n-1] += " " + word
		} else {
			out = append(out, word)
		}
	}
	return out
}

var fontFamily = regexp.MustCompile(`font-family:Liberation Sans;`)

// finish gives an SVG a description for readers who do not see it, and fonts for machines without
// Liberation Sans. Their widths are the same or similar.
func finish(svg []byte, p *picture) []byte {
	svg = fontFamily.ReplaceAll(svg, []byte(`font-family:'Liberation Sans',Arimo,Arial,Helvetica,sans-serif;`))
	var about bytes.Buffer
	about.WriteString("<title>")
	_ = xml.EscapeText(&about, []byte(p.title)) // a Buffer takes everything
	about.WriteString("</title>\n")
	at := bytes.Index(svg, []byte("<svg"))
	at += bytes.IndexByte(svg[at:], '>') + 1
	svg = slices.Concat(svg[:at], []byte("\n"), about.Bytes(), bytes.TrimLeft(svg[at:], "\n"))
	return bytes.Replace(svg, []byte("<svg "), []byte(`<svg role="img" `), 1)
}
