package assess

import (
	"io"
	"strings"
	"testing"
	"time"
)

// Only wanted metrics are kept, and answers that are no metrics are errors.
func TestScrape(t *testing.T) {
	families, err := scrape(strings.NewReader("# TYPE x counter\nx 1\nprocess_cpu_seconds_total_more 5\nprocess_cpu_seconds_total 3.5\n" +
		"apiserver_watch_events_sizes_bucket{le=\"1\"} 4\nthis is not looked at\n"))
	if err != nil || len(families) != 1 || families[processCPU] == nil {
		t.Errorf("got %v, %v", families, err)
	}
	f := func(r io.Reader, want string) {
		t.Helper()
		if _, err := scrape(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	f(strings.NewReader("process_cpu_seconds_total x\n"), "these are no metrics")
	f(strings.NewReader(processCPU+"{a=\""+strings.Repeat("x", maxLineBytes)), "a line has more than 64 KiB")
	line := longRunning + `{resource="` + strings.Repeat("x", maxLineBytes/2) + `"} 1` + "\n"
	f(io.LimitReader(&repeated{line: line}, maxAnswerBytes), "have more than 64 MiB")
}

// repeated is one line, again and again.
type repeated struct {
	line string
	at   int
}

func (r *repeated) Read(p []byte) (n int, err error) {
	for n < len(p) {
		c := copy(p[n:], r.line[r.at:])
		n, r.at = n+c, (r.at+c)%len(r.line)
	}
	return n, nil
}

// Any answer is read, or is an error, and any two samples can be assessed.
func FuzzScrape(f *testing.F) {
	f.Add(load{pods: 10, events: 1, objects: 3, cpu: 1}.after(1))
	f.Add(load{pods: 10, events: 1, objects: 3, cpu: 1, old: true}.after(1))
	f.Add(processCPU + " NaN\n" + processStart + " +Inf\n" + watchEvents + `{kind=""} -1`)
	f.Add(longRunning + `{verb="WATCH",resource="a.b.c",group=""} 1e300`)
	f.Fuzz(func(t *testing.T, text string) {
		families, err := scrape(strings.NewReader(text))
		if err != nil {
			return
		}
		after := newSample(families, time.Unix(1, 0))
		a, err := assess(&sample{at: time.Unix(0, 0), start: after.start}, after, 1)
		if err != nil {
			t.Fatal(err)
		}
		a.writeText(io.Discard)
	})
}
