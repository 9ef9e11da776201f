package chaos_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// sample is what a replica uses at one time. What is 0 is not known, such as the percentile of no events.
type sample struct {
	at   time.Time
	uses map[string]float64
}

// quantity is one that must not grow.
type quantity struct {
	name  string
	limit float64 // of the growth over the whole run, as a share of the mean
	spare float64 // what may grow in any case
}

// quantities of a replica, and their limits; the README says why.
var quantities = []quantity{{"resident memory, MB", .1, 0}, {"heap, MB", .1, 0}, {"goroutines", .1, 20}, {"p99 of delivery, ms", 1, 0}}

// commonQuantities are those of both replicas together.
var commonQuantities = []quantity{{"files", .1, 20}}

const (
	// periods are the equal parts of a soak. The first is left out of the line.
	periods = 6
	// strictFrom is the duration from which on a run is held to the limits of the upper bounds. A
	// shorter one is still filling its memory: its line itself may grow by looseness times the limit.
	strictFrom = 30 * time.Minute
	looseness  = 10
	// student is the 0.95 quantile of Student's t distribution with three degrees of freedom, which a
	// line through five points has.
	student = 2.353
)

// trend is the line that least squares fit to the medians of all periods but the first.
type trend struct {
	medians      [periods - 1]float64
	mean         float64
	growth, most float64 // over the whole run, as a share of the mean: of the line, and its upper 95 % bound
}

// fit fits the line. The periods are at -2, -1, 0, 1 and 2, whose squares add up to 10.
func fit(y [periods - 1]float64) trend {
	l := trend{medians: y, mean: (y[0] + y[1] + y[2] + y[3] + y[4]) / 5}
	slope := (2*y[4] + y[3] - y[1] - 2*y[0]) / 10
	var rest float64 // the squares of what the line leaves
	for i, y := range y {
		off := y - l.mean - slope*float64(i-2)
		rest += off * off
	}
	deviation := math.Sqrt(rest / 3 / 10)
	l.growth, l.most = periods*slope/l.mean, periods*(slope+student*deviation)/l.mean
	return l
}

// trendOf returns the line of a quantity. ok is false if a period has no samples.
func (q quantity) trendOf(samples []sample, began time.Time, period time.Duration) (l trend, ok bool) {
	var medians [periods - 1]float64
	for n := range medians {
		var values []float64
		for _, s := range samples {
			if v := s.uses[q.name]; v > 0 && int(s.at.Sub(began)/period) == n+1 { //testlint:allow elapsed the period of a sample
				values = append(values, v)
			}
		}
		if len(values) == 0 {
			return trend{}, false
		}
		slices.Sort(values)
		medians[n] = values[len(values)/2]
	}
	return fit(medians), true
}

// wrong returns why a line shows growth, or does not exclude it; "" if it does.
func (q quantity) wrong(l trend, strict bool) string {
	limit := max(q.limit, q.spare/l.mean)
	switch {
	case strict && !(l.most <= limit):
		return fmt.Sprintf("%s: may grow by %.1f %%, more than %.0f %%", q.name, 100*l.most, 100*limit)
	case !strict && !(l.growth <= looseness*limit):
		return fmt.Sprintf("%s: grows by %.1f %%, more than %.0f %%", q.name, 100*l.growth, 100*looseness*limit)
	}
	return ""
}

// flat fits the lines of some quantities of the samples. It returns a table of them, and what is wrong
// with each.
func flat(quantities []quantity, samples []sample, began time.Time, period time.Duration, strict bool) (table string, wrong []string) {
	var b strings.Builder
	for _, q := range quantities {
		l, ok := q.trendOf(samples, began, period)
		if !ok {
			wrong = append(wrong, q.name+": a part of the run has no samples")
			continue
		}
		fmt.Fprintf(&b, "  %-20s", q.name)
		for _, m := range l.medians {
			fmt.Fprintf(&b, " %8.1f", m)
		}
		fmt.Fprintf(&b, "   grows by %+6.1f %%, at most %+6.1f %%\n", 100*l.growth, 100*l.most)
		if w := q.wrong(l, strict); w != "" {
			wrong = append(wrong, w)
		}
	}
	return b.String(), wrong
}

// TestTrendNotices: a quantity that grows fails a run, and so does one of which a long run can't say
// that it does not grow, or which nobody has measured.
func TestTrendNotices(t *testing.T) {
	memory, began := quantities[0], time.Now()
	for _, c := range []struct {
		name          string
		medians       []float64
		strict, loose bool // it fails such a run
	}{
		{"even", []float64{100, 101, 99, 100, 100}, false, false},
		{"falling", []float64{120, 110, 100, 90, 80}, false, false},
		{"growing a little", []float64{100, 102, 104, 106, 108}, true, false},
		{"uneven", []float64{100, 120, 80, 115, 90}, true, false},
		{"growing a lot", []float64{100, 130, 160, 190, 220}, true, true},
		{"not measured", nil, true, true},
	} {
		samples := []sample{{began, map[string]float64{memory.name: 1000}}} // nobody looks at the first period
		for n, m := range c.medians {
			for i := range 3 {
				at := began.Add(time.Duration(n+1)*time.Minute + time.Duration(i)*time.Second)
				samples = append(samples, sample{at, map[string]float64{memory.name: m * float64(1+i) / 2}})
			}
		}
		_, strict := flat(quantities[:1], samples, began, time.Minute, true)
		_, loose := flat(quantities[:1], samples, began, time.Minute, false)
		if (len(strict) > 0) != c.strict || (len(loose) > 0) != c.loose {
			t.Errorf("%s: a long run says %q, a short one %q", c.name, strict, loose)
		}
	}
	// By hand: slope 1, residuals -0.4 0.6 0.6 -1.4 0.6, their squares 3.2.
	got, want := fit([...]float64{10, 12, 13, 12, 15}), 6*(1+student*math.Sqrt(3.2/3/10))/12.4
	if math.Abs(got.growth-6/12.4) > 1e-9 || math.Abs(got.most-want) > 1e-9 {
		t.Errorf("got %+v, want a growth of %v, and %v at most", got, 6/12.4, want)
	}
}
