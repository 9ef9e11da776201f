package assess

import (
	"math"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// sample is what kube-apiserver counted at one moment. Counters begin with its process.
type sample struct {
	at        time.Time
	start     float64 // of the process, in seconds since 1970; tells kube-apiservers apart
	version   string
	cpu       float64 // seconds
	memory    float64 // bytes
	resources map[schema.GroupResource]counts
	found     map[string]bool // metrics
}

// counts are the figures of one resource.
type counts struct {
	watches    float64 // now
	stored     float64 // objects, now
	events     float64 // changes
	deliveries float64 // events written to watches, initial ones included
	bytes      float64 // of the deliveries
	initial    float64 // objects looked at for the initial events of watches, before selectors
	listed     float64 // objects sent by lists
	begun      float64 // watches that have begun, those included that are open
}

// newSample reads a scrape.
func newSample(families map[string]*dto.MetricFamily, at time.Time) *sample {
	s := &sample{at: at, resources: make(map[schema.GroupResource]counts), found: make(map[string]bool)}
	for _, w := range wanted {
		for _, m := range families[w.name].GetMetric() {
			if v := m.GetUntyped().GetValue(); !math.IsNaN(v) && !math.IsInf(v, 0) && v >= 0 {
				s.found[w.name] = true
				w.add(s, labels(m), v)
			}
		}
	}
	return s
}

func labels(m *dto.Metric) map[string]string {
	found := make(map[string]string, len(m.GetLabel()))
	for _, l := range m.GetLabel() {
		found[l.GetName()] = l.GetValue()
	}
	return found
}

// resourceOf returns the resource of a metric. Before Kubernetes 1.34 some metrics have one label
// "deployments.apps", and others the kind in place of the resource.
func resourceOf(l map[string]string) schema.GroupResource {
	resource, group := l["resource"], l["group"]
	if resource == "" && l["kind"] != "" {
		plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: group, Kind: l["kind"]})
		return plural.GroupResource()
	}
	if group == "" && strings.Contains(resource, ".") {
		return schema.ParseGroupResource(resource)
	}
	return schema.GroupResource{Group: group, Resource: resource}
}
