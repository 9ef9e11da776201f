package fanout_test

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/fanout"
)

// scrape returns a set's metrics by name and labels.
func scrape(t testing.TB, set *metrics.Set) map[string]float64 {
	var b bytes.Buffer
	set.WritePrometheus(&b)
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
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, roomy)
		check := func(want map[string]float64) {
			t.Helper()
			synctest.Wait()
			now := scrape(t, w.set)
			for name, v := range want {
				if got, ok := now[name]; got != v || !ok {
					t.Errorf("%s is %v, want %v", name, got, v)
				}
			}
			n := w.flusher.Totals()
			for name, v := range map[string]float64{
				"watchfan_watchers": float64(n.Subscriptions), "watchfan_parked_watchers": float64(n.Parked),
				"watchfan_watcher_parks_total": float64(n.Parks), "watchfan_flushes_total": float64(n.Flushes),
				`watchfan_watches_ended_total{reason="revoked"}`: float64(n.Ended[fanout.Revoked]),
				"watchfan_delivery_duration_seconds_sum":         n.DeliverySeconds,
				"watchfan_delivery_duration_seconds_count":       float64(n.Delivery[len(n.Delivery)-1].Count),
			} {
				if now[name] != v {
					t.Errorf("%s is %v, and %v in the totals", name, now[name], v)
				}
			}
		}
		sub, r := w.client(everything(t), fanout.Request{})
		slow := newStuck(10)
		slowSub := w.subscribe(everything(t), fanout.Request{})
		w.flusher.Start(slowSub, slow)
		x, y := named("x"), named("y")
		if err := w.cache.Apply(event("ADDED", x.at(101)), time.Now().Add(-300*time.Millisecond)); err != nil { // it arrived that long ago
			t.Fatal(err)
		}
		check(map[string]float64{
			"watchfan_watchers":            2,
			"watchfan_parked_watchers":     1,
			"watchfan_watcher_parks_total": 1,
			"watchfan_flushes_total":       2,

			"watchfan_append_duration_seconds_sum":                 0.3,
			"watchfan_append_duration_seconds_count":               1,
			"watchfan_delivery_duration_seconds_sum":               0.6, // of both shards
			"watchfan_delivery_duration_seconds_count":             2,
			`watchfan_delivery_duration_seconds_bucket{le="0.25"}`: 0,
			`watchfan_delivery_duration_seconds_bucket{le="0.5"}`:  2,
			`watchfan_delivery_duration_seconds_bucket{le="+Inf"}`: 2,
			"watchfan_flush_round_duration_seconds_count":          2,
		})
		r.wantLines(t, line("ADDED", x.at(101)))
		size := len("aa\r\n") + len(line("ADDED", x.at(101))) + len("\r\n")
		if events, bytes := w.cache.Delivered(); events != 2 || bytes != uint64(2*size) {
			t.Errorf("%d events of %d bytes were delivered, want 2 of %v", events, bytes, 2*size)
		}

		// The stuck client is one event behind from the next event on. No other client is behind.
		apply(t, w.cache, event("ADDED", y.at(102)))
		time.Sleep(fanout.SweepEvery)
		check(map[string]float64{
			"watchfan_append_duration_seconds_count":   2,
			"watchfan_delivery_duration_seconds_count": 3,
		})
		if events, lag := w.flusher.Lag(); events != 1 || lag <= uint64(len(line("ADDED", y.at(102)))) {
			t.Errorf("the furthest client is %d events of %d bytes behind, want 1 of its frame", events, lag)
		}

		sub.End(fanout.Ending{Reason: fanout.Revoked})
		r.wantEnd(t, fanout.Revoked, true)
		slow.mu.Lock()
		slow.room = 1 << 10 // for the event that it is behind by, which may come before the end
		slow.mu.Unlock()
		slow.reads <- nil
		slowSub.End(fanout.Ending{Reason: fanout.Gone})
		slow.wantEnd(t, fanout.Gone, true)
		_, zipped := w.client(everything(t), fanout.Request{Gzip: true, Variant: fanout.Lean})
		synctest.Wait()
		check(map[string]float64{"watchfan_watchers": 1, "watchfan_lean_watchers": 1})
		z := named("z")
		apply(t, w.cache, event("ADDED", z.at(103)))
		synctest.Wait()
		w.cache.Close(fanout.Ending{Reason: fanout.LaneClosed})
		zipped.wantEnd(t, fanout.LaneClosed, true)
		check(map[string]float64{
			"watchfan_gzip_delivered_bytes_total":                float64(zipped.wireLen()),
			"watchfan_gzip_plain_bytes_total":                    float64(len(line("ADDED", z.at(103)))),
			"watchfan_lean_watchers":                             0,
			"watchfan_watchers":                                  0,
			"watchfan_parked_watchers":                           0,
			`watchfan_watches_ended_total{reason="revoked"}`:     1,
			`watchfan_watches_ended_total{reason="client_gone"}`: 1,
			`watchfan_watches_ended_total{reason="timeout"}`:     0,
		})
	})
}

// What no client is sent is no watch whose client does not read, however slowly it is taken.
func TestBesideIsNotParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, slow, never := newWorld(t, roomy), newStuck(10), newStuck(10)
		for _, s := range []*stuck{slow, never} {
			w.flusher.Start(w.subscribe(everything(t), fanout.Request{Beside: true}), s)
		}
		wantNone := func() {
			t.Helper()
			synctest.Wait()
			if got := w.flusher.Totals(); got.Parked != 0 || got.Parks != 0 {
				t.Errorf("%d parked, %d parks, want none", got.Parked, got.Parks)
			}
		}
		w.put(named("x"))
		wantNone()
		slow.readOn()
		wantNone()
		w.cache.Close(fanout.Ending{Reason: fanout.LaneClosed})
		time.Sleep(2 * fanout.LastBytesTimeout)
		if wantNone(); !slow.ended() || !never.ended() {
			t.Error("not ended")
		}
	})
}
