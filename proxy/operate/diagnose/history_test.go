package diagnose

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The history has a sample each two seconds with the averages since the one before, and forgets
// after five minutes.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		h := NewHistory(func() DebugTotals {
			s := time.Since(began).Seconds()
			return DebugTotals{
				Clients: int(s), ParkedClients: 3, MemoryBytes: 1 << 20, ProcessorSeconds: s / 4,
				DeliveredEvents: uint64(1000 * s), DeliveredBytes: uint64(50_000 * s), UpstreamEvents: uint64(10 * s),
				PassthroughRequests: uint64(5 * s), EndedWatches: map[string]uint64{"evicted": uint64(s)},
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { h.Run(ctx); close(ended) }()
		time.Sleep(time.Second)
		if h.Latest(time.Now()) != nil || len(h.Samples(time.Now())) != 0 {
			t.Error("there is a sample of nothing")
		}
		time.Sleep(20 * time.Second)
		samples := h.Samples(time.Now())
		if len(samples) != 10 {
			t.Fatalf("%d samples in 21 seconds", len(samples))
		}
		last := samples[9]
		want := Sample{Age: 1, Clients: 20, Lag: 3, Deliveries: 1000, Bytes: 50_000, Upstream: 10, Evictions: 1, Passed: 5,
			Processors: 0.25, Memory: 1 << 20, at: last.at}
		if last != want || samples[0].Age != 19 || samples[0].Clients != 2 {
			t.Errorf("the first and the last: %+v, %+v; want %+v", samples[0], last, want)
		}
		if now := h.Latest(time.Now()); *now != want {
			t.Errorf("the newest is %+v", now)
		}
		time.Sleep(10 * time.Minute)
		samples = h.Samples(time.Now())
		if len(samples) != 150 || samples[0].Age != 299 || samples[149].Age != 1 {
			t.Errorf("%d samples, from %v to %v ago", len(samples), samples[0].Age, samples[len(samples)-1].Age)
		}
		cancel()
		<-ended
	})
}

// A counter that falls counts as 0, and the latency covers ten seconds.
func TestSample(t *testing.T) {
	delivery := func(counts ...uint64) DebugDelivery {
		d := DebugDelivery{Count: counts[2]}
		for i, le := range []float64{0.001, 0.01} {
			d.Buckets = append(d.Buckets, DebugBucket{le, counts[i]})
		}
		return d
	}
	h := NewHistory(nil)
	start := time.Now()
	for i, totals := range []DebugTotals{
		{DeliveredEvents: 100, Delivery: delivery(0, 0, 0)},
		{DeliveredEvents: 50, Delivery: delivery(100, 100, 100)},
		{DeliveredEvents: 70, Delivery: delivery(100, 200, 200)},
		{DeliveredEvents: 70, Delivery: delivery(100, 200, 300)},
		{}, {}, {}, {}, {},
	} {
		h.take(reading{start.Add(time.Duration(i) * sampleEvery), totals})
	}
	var deliveries, latencies []float64
	for _, s := range h.Samples(start) {
		deliveries, latencies = append(deliveries, s.Deliveries), append(latencies, s.Latency)
	}
	// All within 1 ms; half of them evenly between 1 and 10 ms; a third above all buckets.
	wantDeliveries, wantLatencies := []float64{0, 10, 0, 0, 0, 0, 0, 0}, []float64{0.00099, 0.00982, 0.01, 0, 0, 0, 0, 0}
	for i := range wantDeliveries {
		if deliveries[i] != wantDeliveries[i] || math.Abs(latencies[i]-wantLatencies[i]) > 1e-9 {
			t.Errorf("sample %d: %v deliveries a second, latency %v; want %v, %v", i, deliveries[i], latencies[i], wantDeliveries[i],
				wantLatencies[i])
		}
	}
}

// The page has the samples in JSON, and takes no other form.
func TestHistoryPage(t *testing.T) {
	h := NewHistory(nil)
	ask := func(method, target string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		HistoryPage(h)(w, httptest.NewRequest(method, target, nil))
		return w
	}
	if w := ask("GET", "/debug/history"); w.Code != http.StatusOK || w.Body.String() != "{\"samples\":[]}\n" {
		t.Errorf("before the first sample: %d %s", w.Code, w.Body)
	}
	now := time.Now()
	for i := range 2 {
		h.take(reading{now.Add(time.Duration(i-2) * sampleEvery), DebugTotals{Clients: 7, DeliveredEvents: uint64(i) * 10}})
	}
	var answer struct{ Samples []map[string]float64 }
	w := ask("GET", "/debug/history?format=json")
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || len(answer.Samples) != 1 || answer.Samples[0]["clients"] != 7 ||
		answer.Samples[0]["deliveries"] != 5 || answer.Samples[0]["age"] < 2 {
		t.Errorf("%v: %s", err, w.Body)
	}
	if w := ask("GET", "/debug/history?format=text"); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "give one of json") {
		t.Errorf("as text: %d %s", w.Code, w.Body)
	}
	if w := ask("POST", "/debug/history"); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}
