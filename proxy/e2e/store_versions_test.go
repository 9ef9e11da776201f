package e2e_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"
)

// storeVersions are client-go's own metrics of the resourceVersions of informers' stores, with their
// times: a second opinion on what watches bring, and when. Its methods may be called from any goroutine.
type storeVersions struct {
	mu    sync.Mutex
	steps map[string][]versionStep // by informer and resource, in the order of time
}

// versionStep is a resourceVersion that a store has reached.
type versionStep struct {
	rv float64
	at time.Time
}

func (v *storeVersions) NewQueuedItemMetric(cache.InformerNameAndResource) cache.GaugeMetric {
	return ignored{}
}

func (v *storeVersions) NewProcessingLatencyMetric(cache.InformerNameAndResource) cache.HistogramMetric {
	return ignored{}
}

func (v *storeVersions) NewStoreResourceVersionMetric(id cache.InformerNameAndResource) cache.GaugeMetric {
	return storeVersion{v, id.Name() + " " + id.GroupVersionResource().Resource}
}

// ignored is a metric that nobody reads.
type ignored struct{}

func (ignored) Set(float64)     {}
func (ignored) Observe(float64) {}

// storeVersion is the metric of one store.
type storeVersion struct {
	all   *storeVersions
	store string
}

func (s storeVersion) Set(rv float64) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if s.all.steps == nil {
		s.all.steps = make(map[string][]versionStep)
	}
	s.all.steps[s.store] = append(s.all.steps[s.store], versionStep{rv, time.Now()})
}

// behind returns by how much a store is later than another one at each resourceVersion up to last
// that the other reaches. It is an error if the store ever goes back, or does not reach one of them.
func (v *storeVersions) behind(store, other string, last uint64) (late []time.Duration, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	steps, next := v.steps[store], 0
	for i := 1; i < len(steps); i++ {
		if steps[i].rv < steps[i-1].rv {
			return nil, fmt.Errorf("%s goes back from %.0f to %.0f", store, steps[i-1].rv, steps[i].rv)
		}
	}
	for _, s := range v.steps[other] {
		if s.rv > float64(last) {
			break
		}
		for next < len(steps) && steps[next].rv < s.rv {
			next++
		}
		if next == len(steps) {
			return nil, fmt.Errorf("%s has not reached %.0f, which %s has", store, s.rv, other)
		}
		late = append(late, max(0, steps[next].at.Sub(s.at)))
	}
	slices.Sort(late)
	return late, nil
}

// TestStoreVersionsNotice: a store that goes back, or does not arrive, is noticed.
func TestStoreVersionsNotice(t *testing.T) {
	parallel(t)
	at := func(rvs ...float64) (steps []versionStep) {
		for i, rv := range rvs {
			steps = append(steps, versionStep{rv, time.Unix(int64(i), 0)})
		}
		return steps
	}
	v := &storeVersions{steps: map[string][]versionStep{"straight": at(3, 4, 5, 9), "late": at(3, 3, 4, 5, 6),
		"leaping": at(1, 8), "back": at(3, 5, 4, 9), "slow": at(3, 4)}}
	for store, want := range map[string][]time.Duration{"late": {0, time.Second, time.Second},
		"leaping": {0, 0, time.Second}, "back": nil, "slow": nil, "none": nil} {
		late, err := v.behind(store, "straight", 5)
		if !slices.Equal(late, want) || (err == nil) != (want != nil) {
			t.Errorf("%s: late by %v, %v; want %v", store, late, err, want)
		}
	}
}
