package diagnose

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const (
	sampleEvery = 2 * time.Second
	// mostSamples is how many samples are kept: those of five minutes.
	mostSamples = int(5 * time.Minute / sampleEvery)
	// latencyOver is how many samples a latency covers: those of ten seconds. There may be few
	// deliveries between two samples.
	latencyOver = int(10 * time.Second / sampleEvery)
)

// History keeps what a server has done in the last five minutes, a sample each two seconds, for
// pages that are opened later. It takes about 20 KiB. Its methods may be called from any goroutine.
type History struct {
	read func() DebugTotals

	mu      sync.Mutex
	samples []Sample  // oldest first
	recent  []reading // the last latencyOver+1, oldest first
}

type reading struct {
	at     time.Time
	totals DebugTotals
}

// Sample says how a server was doing at one moment. What is counted is an average per second since
// the sample before.
type Sample struct {
	Age downstream.Seconds `json:"age"` // at the answer

	Clients    int     `json:"clients"`    // watches that are served from caches
	Lag        int     `json:"lag"`        // of these, wait for their client to read
	Deliveries float64 `json:"deliveries"` // events written to clients
	Bytes      float64 `json:"bytes"`      // of these
	Upstream   float64 `json:"upstream"`   // changes that kube-apiserver has sent
	Evictions  float64 `json:"evictions"`
	Passed     float64 `json:"passed"`            // requests that were passed through
	Latency    float64 `json:"latency,omitempty"` // seconds that 99 % of the deliveries of 10 s took at most; 0 if there were none
	Processors float64 `json:"processors"`        // that were in use
	Memory     int64   `json:"memory"`            // bytes; 0 if unknown

	at time.Time
}

// NewHistory returns a History of the figures that read returns. The caller calls Run.
func NewHistory(read func() DebugTotals) *History { return &History{read: read} }

// Run takes samples until ctx ends.
func (h *History) Run(ctx context.Context) {
	h.take(reading{time.Now(), h.read()})
	for exchange.Sleep(ctx, sampleEvery) {
		h.take(reading{time.Now(), h.read()})
	}
}

// take adds a sample. The first reading has nothing to be compared with and makes none.
func (h *History) take(now reading) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.recent); n > 0 {
		h.samples = kept(append(h.samples, now.since(h.recent[n-1], h.recent[0])), mostSamples)
	}
	h.recent = kept(append(h.recent, now), latencyOver+1)
}

// kept returns the last most elements of s.
func kept[T any](s []T, most int) []T { return slices.Delete(s, 0, max(len(s)-most, 0)) }

// since returns a sample of the time since the reading before. Its latency covers the time since
// oldest.
func (r *reading) since(before, oldest reading) Sample {
	now, then := &r.totals, &before.totals
	seconds := r.at.Sub(before.at).Seconds()
	rate := func(now, then float64) float64 {
		if seconds <= 0 {
			return 0
		}
		return max(now-then, 0) / seconds
	}
	counted := func(now, then uint64) float64 { return rate(float64(now), float64(then)) }
	return Sample{
		Clients:    now.Clients,
		Lag:        now.ParkedClients,
		Deliveries: counted(now.DeliveredEvents, then.DeliveredEvents),
		Bytes:      counted(now.DeliveredBytes, then.DeliveredBytes),
		Upstream:   counted(now.UpstreamEvents, then.UpstreamEvents),
		Evictions:  counted(now.EndedWatches["evicted"], then.EndedWatches["evicted"]),
		Passed:     counted(now.PassthroughRequests, then.PassthroughRequests),
		Latency:    now.Delivery.quantile(0.99, oldest.totals.Delivery),
		Processors: rate(now.ProcessorSeconds, then.ProcessorSeconds),
		Memory:     now.MemoryBytes,
		at:         r.at,
	}
}

// quantile returns the time in seconds within which a share q of the deliveries since before were
// made; 0 if there were none. It interpolates within a bucket, as Prometheus' histogram_quantile
// does. Deliveries above all buckets count as of the highest bound.
func (d *DebugDelivery) quantile(q float64, before DebugDelivery) float64 {
	total := float64(d.Count) - float64(before.Count)
	if total <= 0 || len(before.Buckets) != len(d.Buckets) {
		return 0
	}
	low, below := 0., 0.
	for i, b := range d.Buckets {
		upTo := float64(b.Count) - float64(before.Buckets[i].Count)
		if upTo >= q*total {
			return low + (b.Le-low)*(q*total-below)/(upTo-below)
		}
		low, below = b.Le, upTo
	}
	return low
}

// Samples returns the samples, the oldest first. Their ages are those at now.
func (h *History) Samples(now time.Time) []Sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	samples := append([]Sample{}, h.samples...)
	for i := range samples {
		samples[i].Age = downstream.InSeconds(now.Sub(samples[i].at))
	}
	return samples
}

// Latest returns the newest sample, nil if there is none yet.
func (h *History) Latest(now time.Time) *Sample {
	if samples := h.Samples(now); len(samples) > 0 {
		return &samples[len(samples)-1]
	}
	return nil
}

// HistoryPage answers /debug/history with the samples, in JSON.
func HistoryPage(h *History) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !onlyReads(w, r, "the history can only be read") {
			return
		}
		query, err := parameters(r, []string{"format"})
		if err == nil && len(query) > 0 {
			err = oneOf(query[0].value, []string{"json"})
		}
		if err != nil {
			WriteText(w, http.StatusBadRequest, err.Error()+"\n")
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		respond(w, true, map[string][]Sample{"samples": h.Samples(time.Now())}, nil)
	}
}
