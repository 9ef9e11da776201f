package fanout_test

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/fanout"
)

// scrape returns the package's metrics by name and labels.
func scrape(t testing.TB) map[string]float64 {
	var b bytes.Buffer
	metrics.WritePrometheus(&b, false)
	values := make(map[string]float64)
	for l := range strings.Lines(b.String()) {
		name, value, ok := strings.Cut(strings.TrimSpace(l), " ")
		v, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil {
			t.Errorf("not a metric: %q", l)
		}
		values[name] = v
	}
	return values
}

// TestMetrics: the metrics count what their help texts say.
func TestMetrics(t *testing.T) {
	w := newWorld(t, roomy)
	before := scrape(t)
	sub, r := w.client(everything(t), fanout.Request{})
	slow := newStuck(10)
	slowSub := w.subscribe(everything(t), fanout.Request{})
	w.flusher.Start(slowSub, slow)
	x := named("x")
	ev := event("ADDED", x.at(101))
	if err := w.cache.Apply(ev, time.Now().Add(-300*time.Millisecond)); err != nil { // it arrived that long ago
		t.Fatal(err)
	}
	r.wantLines(t, line("ADDED", x.at(101)))
	for slow.wireLen() < 10 {
		time.Sleep(time.Millisecond)
	}
	check := func(want map[string]float64) {
		t.Helper()
		var now map[string]float64
		var wrong string
		for range 200 { // the write is counted a moment later
			now, wrong = scrape(t), ""
			for name, v := range want {
				if got := now[name] - before[name]; got != v {
					wrong += name + " rose by " + strconv.FormatFloat(got, 'g', -1, 64) + ", want " +
						strconv.FormatFloat(v, 'g', -1, 64) + "\n"
				}
			}
			if wrong == "" {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Error(wrong)
	}
	size := float64(len("aa\r\n") + len(line("ADDED", x.at(101))) + len("\r\n"))
	check(map[string]float64{
		"watchfan_watchers":            2,
		"watchfan_parked_watchers":     1,
		"watchfan_watcher_parks_total": 1,
		"watchfan_flushes_total":       2,
	})
	if events, bytes := w.cache.Delivered(); events != 2 || bytes != uint64(2*size) {
		t.Errorf("%d events of %d bytes were delivered, want 2 of %v", events, bytes, 2*size)
	}
	after := scrape(t)
	const name = "watchfan_delivery_duration_seconds"
	count, sum := after[name+"_count"]-before[name+"_count"], after[name+"_sum"]-before[name+"_sum"]
	if count < 1 || count > 2 || sum/count < 0.3 || sum/count > 5 {
		t.Errorf("%v deliveries took %v s, want one or two for the shards, of 0.3 s", count, sum)
	}
	if got := after[name+`_bucket{le="0.25"}`] - before[name+`_bucket{le="0.25"}`]; got != 0 {
		t.Errorf("%v deliveries within 0.25 s, want 0", got)
	}
	if got := after[name+`_bucket{le="+Inf"}`] - before[name+`_bucket{le="+Inf"}`]; got != count {
		t.Errorf("%v deliveries in all buckets, want %v", got, count)
	}
	// The stuck client is one event behind from the next event on. No other client is behind.
	y := named("y")
	if err := w.cache.Apply(event("ADDED", y.at(102)), time.Now()); err != nil {
		t.Fatal(err)
	}
	var events, lag uint64
	for range 200 {
		if events, lag = w.flusher.Lag(); events == 1 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if events != 1 || lag <= uint64(len(line("ADDED", y.at(102)))) {
		t.Errorf("the furthest client is %d events of %d bytes behind, want 1 of its frame", events, lag)
	}
	check(map[string]float64{"watchfan_append_duration_seconds_count": 2})
	const rounds = "watchfan_flush_round_duration_seconds_count"
	if after := scrape(t); after[rounds]-before[rounds] < 2 {
		t.Error("two events took less than two rounds")
	}
	sub.End(fanout.Ending{Reason: fanout.Revoked})
	r.wantEnd(t, fanout.Revoked, true)
	slow.mu.Lock()
	slow.room = 1 << 10 // for the event that it is behind by, which may come before the end
	slow.mu.Unlock()
	slow.reads <- nil
	slowSub.End(fanout.Ending{Reason: fanout.Gone})
	slow.wantEnd(t, fanout.Gone, true)
	check(map[string]float64{
		"watchfan_watchers":                                  0,
		"watchfan_parked_watchers":                           0,
		`watchfan_watches_ended_total{reason="revoked"}`:     1,
		`watchfan_watches_ended_total{reason="client_gone"}`: 1,
		`watchfan_watches_ended_total{reason="timeout"}`:     0,
	})
}
