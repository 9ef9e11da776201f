package statustest

import (
	"bytes"
	"cmp"
	"flag"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "take the pictures of the documents anew")

const (
	// shown is where the pictures of the documents are.
	shown = "../../../deploy/screenshots"
	// mostPicture is the most that one of them may take, in bytes.
	mostPicture = 100 << 10
)

// documented are the pictures of the documents. Each shows the page from its top to at most so many
// pixels.
var documented = []struct {
	name, theme   string
	width, height int64
	most          int
}{
	{"status-light", "light", 1200, 900, 2000},
	{"status-dark", "dark", 1200, 900, 2000},
	{"status-narrow", "dark", 360, 740, 1480},
}

// pictures takes the pictures of the documents, and keeps them there with -update.
//
//testlint:allow timer with -update
func (v *visit) pictures(t *testing.T) {
	t.Helper()
	if *update {
		time.Sleep(12 * time.Second) // the load has settled
	}
	for _, d := range documented {
		v.media("prefers-color-scheme", d.theme)
		v.width(d.width, d.height)
		var content bytes.Buffer
		picture := v.screenshot(d.name)
		for _, colours := range []int{256, 128, 64} {
			content.Reset()
			if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&content, paletted(picture, d.most, colours)); err != nil {
				t.Fatal(err)
			}
			if content.Len() <= mostPicture {
				break
			}
		}
		if content.Len() > mostPicture {
			t.Errorf("%s takes %d bytes", d.name, content.Len())
		}
		if *update {
			if err := os.WriteFile(filepath.Join(shown, d.name+".png"), content.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	v.media("prefers-color-scheme", "light")
	v.width(1280, 900)
}

// fillPlots gives the pictures of the documents a history.
//
//testlint:allow timer with -update
func (v *visit) fillPlots(t *testing.T) {
	if !*update {
		return
	}
	for _, perSecond := range []int{10, 30, 20, 5} {
		stop := v.w.load(t, perSecond, configMaps+"/busy")
		time.Sleep(32 * time.Second)
		stop()
		time.Sleep(4 * time.Second)
	}
}

// paletted returns the top of a picture with its most frequent colours, at most 256, which takes a
// third of the bytes. Other colours become the nearest of these.
func paletted(of image.Image, mostHeight, mostColours int) *image.Paletted {
	pixels := make(map[color.Color]int)
	bounds := of.Bounds()
	bounds.Max.Y = min(bounds.Max.Y, bounds.Min.Y+mostHeight)
	each := func(f func(x, y int, c color.Color)) {
		for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
			for x := bounds.Min.X; x < bounds.Max.X; x++ {
				f(x, y, of.At(x, y))
			}
		}
	}
	each(func(_, _ int, c color.Color) { pixels[c]++ })
	frequent := slices.SortedFunc(maps.Keys(pixels), func(a, b color.Color) int { return cmp.Compare(pixels[b], pixels[a]) })
	palette := color.Palette(frequent[:min(len(frequent), mostColours)])
	index := make(map[color.Color]uint8, len(pixels))
	for c := range pixels {
		index[c] = uint8(palette.Index(c))
	}
	to := image.NewPaletted(bounds, palette)
	each(func(x, y int, c color.Color) { to.SetColorIndex(x, y, index[c]) })
	return to
}
