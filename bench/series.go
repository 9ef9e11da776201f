//go:build linux

package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// sumSeries adds up the series of a metric that have all of the labels. page is in the Prometheus
// text format:
//
//	name{label="value",…} 3
//	name 3
func sumSeries(page, name string, labels ...string) (sum float64, err error) {
	for line := range strings.Lines(page) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		set, value, complete := strings.Cut(rest, " ")
		if rest[0] == '{' { // values of labels may contain spaces
			set, value, complete = strings.Cut(rest, "} ")
		}
		if !hasAll(set, labels) {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if !complete || err != nil {
			return 0, fmt.Errorf("metric %.200q: not a number", line)
		}
		sum += n
	}
	return sum, nil
}

func hasAll(set string, labels []string) bool {
	for _, label := range labels {
		if !strings.Contains(set, label) {
			return false
		}
	}
	return true
}

// buckets are a histogram of a page in the Prometheus text format, or the difference of two pages.
// Bounds ascend, and the last one is infinite. A count is the number of values up to the bound.
//
//	name_bucket{le="0.25"} 3
//	name_bucket{le="+Inf"} 4
type buckets []bucket

type bucket struct {
	bound float64 // in the histogram's unit
	count float64 // of values up to it
}

// parseBuckets finds a histogram of one series. A page without it is an error.
func parseBuckets(page, name string) (b buckets, err error) {
	for line := range strings.Lines(page) {
		rest, ok := strings.CutPrefix(line, name+`_bucket{le="`)
		if !ok {
			continue
		}
		le, value, complete := strings.Cut(rest, `"} `)
		bound, errBound := strconv.ParseFloat(le, 64)
		count, errCount := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if !complete || errBound != nil || errCount != nil || !(count >= 0) {
			return nil, fmt.Errorf("metric %.200q: not a bucket", line)
		}
		b = append(b, bucket{bound, count})
	}
	ascending := slices.IsSortedFunc(b, func(x, y bucket) int { return cmp.Compare(x.bound, y.bound) })
	if len(b) < 2 || !math.IsInf(b[len(b)-1].bound, 1) || !ascending {
		return nil, fmt.Errorf("metric %s: not a histogram of ascending bounds up to +Inf", name)
	}
	return b, nil
}

// since returns the values since an earlier page of the same process.
func (b buckets) since(earlier buckets) (buckets, error) {
	if len(b) != len(earlier) {
		return nil, fmt.Errorf("histogram of %d buckets, before of %d", len(b), len(earlier))
	}
	d := slices.Clone(b)
	for i := range d {
		if d[i].bound != earlier[i].bound || d[i].count < earlier[i].count {
			return nil, fmt.Errorf("histogram with %v up to %v, before with %v up to %v",
				d[i].count, d[i].bound, earlier[i].count, earlier[i].bound)
		}
		d[i].count -= earlier[i].count
	}
	return d, nil
}

// quantile is Prometheus' histogram_quantile. It assumes that values are spread evenly within their
// bucket, and that values above all finite bounds are at the last one. Without values, ok is false.
func (b buckets) quantile(q float64) (value float64, ok bool) {
	last := len(b) - 1
	rank := q * b[last].count
	if b[last].count == 0 {
		return 0, false
	}
	i := slices.IndexFunc(b, func(x bucket) bool { return x.count >= rank })
	var low bucket
	if i > 0 {
		low = b[i-1]
	}
	if i == last {
		return low.bound, true
	}
	return low.bound + (b[i].bound-low.bound)*(rank-low.count)/(b[i].count-low.count), true
}
