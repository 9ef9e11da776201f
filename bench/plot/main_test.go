package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	results  = "../results"
	pictures = "../results/plots"
)

// The pictures in the repository are those that its reports give.
func TestPicturesAreCurrent(t *testing.T) {
	drawn, err := drawAll(results)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := filepath.Glob(filepath.Join(pictures, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range kept {
		svg, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(svg, drawn[filepath.Base(name)]) {
			t.Errorf("%s is not what make plots draws", name)
		}
		delete(drawn, filepath.Base(name))
	}
	for name := range drawn {
		t.Errorf("%s is missing: make plots draws it", name)
	}
}

// Each picture is well-formed, names its runs, and needs nothing from elsewhere. The light and the
// dark picture differ in their colours only.
func TestPictures(t *testing.T) {
	drawn, err := drawAll(results)
	if err != nil {
		t.Fatal(err)
	}
	runs, err := readRuns(results)
	if err != nil {
		t.Fatal(err)
	}
	colours := regexp.MustCompile(`#[0-9A-Fa-f]{6}`)
	for _, figure := range figures {
		p, ok := figure(runs)
		if !ok {
			continue
		}
		light, dark := drawn[p.name+"-light.svg"], drawn[p.name+"-dark.svg"]
		if !bytes.Equal(colours.ReplaceAll(light, nil), colours.ReplaceAll(dark, nil)) || bytes.Equal(light, dark) {
			t.Errorf("%s: light and dark do not differ in colours alone", p.name)
		}
		words := text(t, light)
		for _, r := range p.from {
			for _, key := range []string{"cpu", "commit", "command"} {
				if want := strings.Join(strings.Fields(r.conditions[key]), " "); want == "" || !strings.Contains(words, want) {
					t.Errorf("%s does not say %s %q", p.name, key, want)
				}
			}
		}
		for _, outside := range []string{"http:", "https:", "<image", "<script", "@import", "@font-face"} {
			if s := strings.ReplaceAll(string(light), "http://www.w3.org/", ""); strings.Contains(s, outside) {
				t.Errorf("%s has %q", p.name, outside)
			}
		}
	}
}

// The README of bench shows each picture in both colours, and no other.
func TestREADME(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := make(map[string]bool)
	for _, m := range regexp.MustCompile(`"results/plots/([^"]+)"`).FindAllSubmatch(readme, -1) {
		shown[string(m[1])] = true
	}
	drawn, err := drawAll(results)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Sorted(maps.Keys(shown)), slices.Sorted(maps.Keys(drawn)); !slices.Equal(got, want) {
		t.Errorf("bench/README.md shows %v, want %v", got, want)
	}
}

// text returns the words of an SVG's text elements.
func text(t *testing.T, svg []byte) string {
	t.Helper()
	var words []string
	d := xml.NewDecoder(bytes.NewReader(svg))
	for inside := false; ; {
		token, err := d.Token()
		if err == io.EOF {
			return strings.Join(words, " ")
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			inside = token.Name.Local == "text"
		case xml.EndElement:
			inside = false
		case xml.CharData:
			if inside {
				words = append(words, strings.Fields(string(token))...)
			}
		}
	}
}

// write writes reports into a folder.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func head(date, pods string) string {
	return fmt.Sprintf("date: %sT00:00:00Z\ncommit: abc\ncommand: bench run\ncpu: Z80\ncores: 1\nmemory: 1048576 kB\nkernel: 1\npods: %s\n"+
		"\nA table: with text\n  peer  1 (2–3)\n\n", date, pods)
}

// A picture takes its numbers from the newest report that has them. Without numbers it is left out.
func TestChoice(t *testing.T) {
	join := func(row, pods string, ms int) string {
		return fmt.Sprintf("BenchmarkScale/peer=watchfan/tls=true/row=%s/pods=%s-2\t1\t%d000000 cpu-ns/request\n", row, pods, ms)
	}
	oneSize := join("join-all", "500", 5) + join("join-all", "500", 7) + join("join-all", "500", 9)
	dir := write(t, map[string]string{"a.txt": head("2026-01-02", "500") + oneSize})
	if drawn, err := drawAll(dir); err == nil || len(drawn) > 0 {
		t.Errorf("of one size of collection: %d pictures and %v, want an error", len(drawn), err)
	}
	dir2 := write(t, map[string]string{
		"a.txt": head("2026-01-01", "500,5000") + join("join-all", "500", 3) + join("join-all", "5000", 3),
		"b.txt": head("2026-01-02", "500,5000") + oneSize + join("join-all", "5000", 50) + join("join-node", "500", 1) +
			join("join-node", "5000", 1) + join("list-all", "500", 4) + join("list-all", "5000", 4),
		"c.txt": head("2026-01-03", "500") + oneSize,
	})
	runs, err := readRuns(dir2)
	if err != nil {
		t.Fatal(err)
	}
	p, ok := joinPicture(runs)
	if !ok || len(p.from) != 1 || p.from[0].conditions["date"] != "2026-01-02T00:00:00Z" {
		t.Fatalf("got %+v, %t", p, ok)
	}
	want := map[string][]point{
		"watchfan, TLS: all pods":          {{500, spread{5, 7, 9}}, {5000, spread{50, 50, 50}}},
		"watchfan, TLS: 20 pods of a node": {{500, spread{1, 1, 1}}, {5000, spread{1, 1, 1}}},
	}
	got := p.body.(*chart).series
	if len(got) != len(want) {
		t.Errorf("got %+v want %+v", got, want)
	}
	for _, s := range got {
		if !slices.EqualFunc(s.points, want[s.name], near) {
			t.Errorf("%s: got %+v want %+v", s.name, s.points, want[s.name])
		}
	}
	if drawn, err := drawAll(dir2); err != nil || len(drawn) != 2 {
		t.Errorf("got %d pictures and %v", len(drawn), err)
	}
	if got := slices.Sorted(maps.Keys(runs[0].conditions)); !slices.Contains(got, "pods") || slices.Contains(got, "A table") {
		t.Errorf("conditions are %v", got)
	}
}

// A logarithmic axis leaves zeros out, where gonum would panic.
func TestZeros(t *testing.T) {
	k := &chart{series: []series{{"watchfan, TLS", []point{{1, spread{0, 0, 1}}, {10, spread{0, 2, 3}}, {100, spread{1, 2, 3}}}}}}
	if _, err := themes[0].draw(&picture{name: "x", title: "x", body: k}); err != nil {
		t.Fatal(err)
	}
	want := []point{{10, spread{2, 2, 3}}, {100, spread{1, 2, 3}}}
	if got := k.series[0].points; !slices.Equal(got, want) {
		t.Errorf("got %v want %v", got, want)
	}
}

func near(a, b point) bool {
	f := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
	return f(a.x, b.x) && f(a.low, b.low) && f(a.mid, b.mid) && f(a.high, b.high)
}

// A storm's timeline stands in the file beside its report, and needs both servers.
func TestTimeline(t *testing.T) {
	line := func(peer string) timeline {
		return timeline{Name: "BenchmarkStorm/peer=" + peer + "/tls=true/storm=informers/priority=idle/clients=5000", Round: 1,
			Moments: []moment{{-1, 0, .5, .01}, {0, 0, .5, 0}, {1, 2500, 1.5, .1}, {2, 5000, 1, .02}}}
	}
	f := func(want bool, lines ...timeline) {
		t.Helper()
		content, err := json.Marshal(lines)
		if err != nil {
			t.Fatal(err)
		}
		dir := write(t, map[string]string{"a.txt": head("2026-01-01", "5") + "BenchmarkX-2\t1\t1 x/y\n", "a.json": string(content)})
		drawn, err := drawAll(dir)
		svg, ok := drawn["storm-timeline-light.svg"]
		if ok != want || want && err != nil {
			t.Fatalf("drawn: %t, %v, want %t", ok, err, want)
		}
		if want && (!strings.Contains(text(t, svg), "5,000 informers") || strings.Contains(string(svg), "NaN")) {
			t.Errorf("got %s", svg)
		}
	}
	f(true, line("kube-apiserver"), line("watchfan"))
	f(false, line("watchfan"))
	f(false)
}

// bench writes this file in its own test.
func TestTimelineOfBench(t *testing.T) {
	content, err := os.ReadFile("../testdata/timeline.json")
	if err != nil {
		t.Fatal(err)
	}
	runs, err := readRuns(write(t, map[string]string{"a.txt": head("2026-01-01", "5") + "BenchmarkX-2\t1\t1 x/y\n", "a.json": string(content)}))
	if err != nil {
		t.Fatal(err)
	}
	p, ok := timelinePicture(runs)
	if !ok {
		t.Fatal("it has no picture")
	}
	want := []timelineOf{{"kube-apiserver, TLS", []moment{{-.5, 0, .25, .01}, {.5, 2500, 1.5, 0}}},
		{"watchfan, TLS", []moment{{-.25, 0, .25, .01}, {.25, 5000, 1.25, .125}}}}
	if got := p.body.(*timelines).lines; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v want %v", got, want)
	}
}

// A report that is cut off is an error, and not a picture of half the numbers.
func TestBrokenReport(t *testing.T) {
	for _, name := range []string{"a.txt", "a.json"} {
		dir := write(t, map[string]string{"a.txt": head("2026-01-01", "5") + "BenchmarkX-2\t1\t1 x/y\n"})
		broken := map[string]string{"a.txt": "BenchmarkX-2\t1\t1\n", "a.json": "[{"}[name]
		if err := os.WriteFile(filepath.Join(dir, name), []byte(broken), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := readRuns(dir); err == nil || !strings.Contains(err.Error(), "a.txt") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{5: "5", 0.5: "0.5", 1000: "1,000", 12_345: "12,345", 100_000: "100,000", 1842: "1,842", 2.066: "2.07"} {
		if got := thousands(v); got != want {
			t.Errorf("%v is written %s, want %s", v, got, want)
		}
	}
	var labels []string
	for _, tick := range logTicks(4, 90, 200) {
		labels = append(labels, tick.Label)
	}
	if got := strings.Join(labels, " "); got != "5 10 20 50" {
		t.Errorf("got ticks %s", got)
	}
}
