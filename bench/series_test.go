//go:build linux

package main

import (
	"math"
	"strings"
	"testing"
)

// page returns a histogram as watchfan writes it, with the given counts.
func page(counts ...string) string {
	text := "# HELP took_seconds …\n" + `took_seconds_bucket_bucket{le="1"} 7` + "\n"
	for i, bound := range []string{"0.0001", "0.001", "0.01", "+Inf"} {
		text += `took_seconds_bucket{le="` + bound + `"} ` + counts[i] + "\n"
	}
	return text + "took_seconds_sum 3\ntook_seconds_count " + counts[3] + "\n"
}

func TestSeriesBuckets(t *testing.T) {
	parse := func(counts ...string) buckets {
		t.Helper()
		b, err := parseBuckets(page(counts...), "took_seconds")
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	earlier := parse("5", "6", "1e+01", "10")
	f := func(q, want float64, counts ...string) {
		t.Helper()
		since, err := parse(counts...).since(earlier)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := since.quantile(q)
		if math.IsNaN(want) == ok || ok && math.Abs(got-want) > 1e-9 {
			t.Errorf("the %v quantile of what came up to %v: got %v, %v want %v", q, counts, got, ok, want)
		}
	}
	f(0.99, math.NaN(), "5", "6", "10", "10") // nothing has come
	f(0.5, 0.00005, "15", "16", "20", "20")   // all in the first bucket, which begins at 0
	f(0.75, 0.00055, "10", "16", "20", "20")  // five in the first, five in the second
	f(0.75, 0.001, "10", "21", "30", "30")    // five, ten, five
	f(0.99, 0.00991, "5", "6", "110", "110")  // all between 0.001 and 0.01
	f(0.5, 0.01, "5", "6", "10", "110")       // all above: the last bound that is one
	f(1, 0.01, "5", "6", "11", "11")

	if _, err := earlier.since(parse("5", "7", "11", "11")); err == nil {
		t.Error("a histogram that has lost values is taken for one that goes on")
	}
	if _, err := earlier.since(earlier[1:]); err == nil {
		t.Error("histograms of other bounds are subtracted")
	}
	for _, wrong := range []string{"", page("1", "2", "3", "many"), page("1", "NaN", "3", "4"), page("-1", "2", "3", "4"),
		strings.Replace(page("1", "2", "3", "4"), `"+Inf"`, `"1"`, 1),
		strings.Replace(page("1", "2", "3", "4"), `"0.01"`, `"0.0005"`, 1),
		strings.Replace(page("1", "2", "3", "4"), `le="0.01"`, `le="0.01`, 1)} {
		if b, err := parseBuckets(wrong, "took_seconds"); err == nil {
			t.Errorf("got %v of\n%s", b, wrong)
		}
	}
}

func TestSumSeries(t *testing.T) {
	const page = "# HELP apiserver_request_total …\n" +
		`apiserver_request_total{code="200",resource="pods",verb="LIST"} 3` + "\n" +
		`apiserver_request_total{code="504",resource="pods",verb="LIST"} 1e+02` + "\n" +
		`apiserver_request_total{code="200",resource="pods",verb="GET"} 7` + "\n" +
		`apiserver_request_total_bytes{resource="pods",verb="LIST"} 9` + "\n" +
		`broken{resource="pods"} many` + "\n"
	f := func(want float64, wantErr bool, name string, labels ...string) {
		t.Helper()
		got, err := sumSeries(page, name, labels...)
		if got != want || (err != nil) != wantErr {
			t.Errorf("%s%v: got %v, %v want %v", name, labels, got, err, want)
		}
	}
	f(103, false, "apiserver_request_total", `resource="pods"`, `verb="LIST"`)
	f(110, false, "apiserver_request_total")
	f(0, false, "apiserver_request_total", `resource="nodes"`)
	f(0, true, "broken")
}
