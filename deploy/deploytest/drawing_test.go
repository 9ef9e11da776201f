package deploytest

import (
	"encoding/xml"
	"io"
	"regexp"
	"strings"
	"testing"
)

// The drawing of the fan-out is well-formed, follows the reader's colour scheme with every colour that
// it has, and needs nothing from elsewhere.
func TestDrawing(t *testing.T) {
	svg := readFile(t, "../fanout.svg")
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, outside := range []string{"href", "url(http", "@import", "@font-face", "<script", "<image"} {
		if strings.Contains(svg, outside) {
			t.Errorf("it has %q", outside)
		}
	}
	light, dark, ok := strings.Cut(svg, "@media (prefers-color-scheme: dark)")
	if !ok {
		t.Fatal("it has no dark colours")
	}
	colour := regexp.MustCompile(`\.([a-z]+) \{[^}]*#[0-9a-f]{6}`)
	if len(all(colour, light)) < 5 {
		t.Fatalf("it has the colours of %v", all(colour, light))
	}
	for _, class := range all(colour, light) {
		if !strings.Contains(dark, "."+class+" {") {
			t.Errorf("%s has no dark colour", class)
		}
	}
	for _, class := range all(regexp.MustCompile(`class="([a-z]+)"`), svg) {
		if !strings.Contains(light, "."+class+" {") {
			t.Errorf("%s has no style", class)
		}
	}
}

// all returns the first group of all matches.
func all(pattern *regexp.Regexp, text string) (found []string) {
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}
