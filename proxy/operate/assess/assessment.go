package assess

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Assessment says what a cluster's watches cost, and what they would cost with watchfan. Rates are per
// second, CPU is in cores, and memory in bytes.
type Assessment struct {
	Server   string  `json:"server"`
	Version  string  `json:"version"` // of kube-apiserver
	Seconds  float64 `json:"seconds"` // between the two samples
	Replicas int     `json:"replicas"`

	Verdict Verdict  `json:"verdict"`
	Reasons []string `json:"reasons"`

	APIServer APIServer  `json:"apiserver"`
	Tier      Tier       `json:"tier"`
	Storm     Storm      `json:"storm"`
	Total     Resource   `json:"total"`
	Resources []Resource `json:"resources"` // those that profit most first
	WhatIf    *WhatIf    `json:"whatIf,omitempty"`

	Missing []string `json:"missing"` // what is not known, and what that means
}

// APIServer is kube-apiserver as it is now, and with watchfan.
type APIServer struct {
	CPU    float64 `json:"cpu"`    // measured, all of it
	Memory float64 `json:"memory"` // measured, all of it

	WatchCPU        Range `json:"watchCPU"`        // deliveries and starts
	WatchMemory     Range `json:"watchMemory"`     // of open watches
	WatchCPULeft    Range `json:"watchCPULeft"`    // with watchfan
	WatchMemoryLeft Range `json:"watchMemoryLeft"` // with watchfan
	// Reviews are added by watchfan, at most: one for each open watch, about each minute.
	Reviews Range `json:"reviews"`
}

// Tier is all replicas of watchfan together.
type Tier struct {
	CPU    Range `json:"cpu"`
	Memory Range `json:"memory"`
}

// Storm is the moment in which all watches begin again, for example after a restart. CPU is in seconds
// of one core.
type Storm struct {
	Objects   float64 `json:"objects"` // that are sent then, as clients were sent at past starts
	APIServer Range   `json:"apiserver"`
	Tier      Range   `json:"tier"`
}

// Resource is one resource, in all its API versions.
type Resource struct {
	Group    string `json:"group"`
	Resource string `json:"resource"`

	Watches    float64 `json:"watches"`
	Events     float64 `json:"events"`
	Deliveries float64 `json:"deliveries"` // events written to watches, without initial ones
	Bytes      float64 `json:"bytes"`
	Objects    float64 `json:"objects"` // that clients are sent at their starts
	Stored     float64 `json:"stored"`

	WatchesLeft    float64 `json:"watchesLeft"` // at kube-apiserver, with watchfan
	DeliveriesLeft float64 `json:"deliveriesLeft"`
	ObjectsLeft    float64 `json:"objectsLeft"`
	SavedCPU       Range   `json:"savedCPU"` // of kube-apiserver

	eventBytes float64 // mean size of an event since the start; 0: unknown
	startsWith float64 // objects that a start has taken on average
}

var errOtherServer = errors.New("two different kube-apiservers have answered, or it has restarted: " +
	"give a kubeconfig with the address of one of them")

// assess compares two samples of one kube-apiserver.
func assess(before, after *sample, replicas int) (*Assessment, error) {
	seconds := after.at.Sub(before.at).Seconds()
	if before.start != after.start || before.cpu > after.cpu {
		return nil, errOtherServer
	}
	a := &Assessment{Version: after.version, Seconds: seconds, Replicas: replicas, Missing: missing(after)}
	a.Resources = []Resource{} // not null in JSON
	a.APIServer.CPU = (after.cpu - before.cpu) / seconds
	a.APIServer.Memory = after.memory
	for gr, now := range after.resources {
		r := newResource(gr, before.resources[gr], now, seconds, replicas)
		if r.Watches > 0 || r.Deliveries > 0 || r.Objects > 0 {
			a.Resources = append(a.Resources, r)
		}
	}
	slices.SortFunc(a.Resources, func(a, b Resource) int {
		return cmp.Or(cmp.Compare(b.SavedCPU.Mid, a.SavedCPU.Mid), cmp.Compare(b.Watches, a.Watches),
			cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Group, b.Group))
	})
	for i := range a.Resources {
		a.Total.add(&a.Resources[i])
		a.Storm.add(&a.Resources[i])
	}
	a.estimate()
	a.judge()
	return a, nil
}

// newResource returns a resource's rates, and what would be left of them if all its clients used
// watchfan: each replica watches it once for each representation.
func newResource(gr schema.GroupResource, before, now counts, seconds float64, replicas int) Resource {
	rate := func(before, now float64) float64 { return max(now-before, 0) / seconds }
	r := Resource{
		Group: gr.Group, Resource: gr.Resource,
		Watches: now.watches,
		Events:  rate(before.events, now.events),
		Bytes:   rate(before.bytes, now.bytes),
		Objects: rate(before.initial+before.listed, now.initial+now.listed),
		Stored:  now.stored,
	}
	r.Deliveries = max(rate(before.deliveries, now.deliveries)-rate(before.initial, now.initial), 0)
	if now.deliveries > 0 {
		r.eventBytes = now.bytes / now.deliveries
	}
	if now.begun > 0 {
		r.startsWith = (now.initial + now.listed) / now.begun
	}
	r.WatchesLeft = min(r.Watches, float64(replicas*representations))
	r.DeliveriesLeft = min(r.Deliveries, r.Events*r.WatchesLeft)
	if r.Watches > 0 {
		r.ObjectsLeft = r.Objects * r.WatchesLeft / r.Watches
	}
	r.SavedCPU = cpuOf(deliveryCost.apiserver, objectCost.apiserver, r.Deliveries-r.DeliveriesLeft, r.Objects-r.ObjectsLeft)
	return r
}

// cpuOf returns the cores that so many deliveries and objects a second take.
func cpuOf(delivery, object Range, deliveries, objects float64) Range {
	return delivery.times(deliveries).plus(object.times(objects))
}

func (total *Resource) add(r *Resource) {
	total.Watches += r.Watches
	total.Events += r.Events
	total.Deliveries += r.Deliveries
	total.Bytes += r.Bytes
	total.Objects += r.Objects
	total.Stored += r.Stored
	total.WatchesLeft += r.WatchesLeft
	total.DeliveriesLeft += r.DeliveriesLeft
	total.ObjectsLeft += r.ObjectsLeft
	total.SavedCPU = total.SavedCPU.plus(r.SavedCPU)
}

func (s *Storm) add(r *Resource) {
	objects := r.Watches * r.startsWith
	s.Objects += objects
	s.APIServer = s.APIServer.plus(objectCost.apiserver.times(objects))
	s.Tier = s.Tier.plus(objectCost.watchfan.times(objects))
}

// estimate fills in kube-apiserver and the tier. The figures come from another machine, so they never
// exceed what was measured here.
func (a *Assessment) estimate() {
	t, s := &a.Total, &a.APIServer
	cpu, memory := cmp.Or(s.CPU, math.Inf(1)), cmp.Or(s.Memory, math.Inf(1)) // 0: not known
	s.WatchCPU = cpuOf(deliveryCost.apiserver, objectCost.apiserver, t.Deliveries, t.Objects).atMost(cpu)
	s.WatchCPULeft = cpuOf(deliveryCost.apiserver, objectCost.apiserver, t.DeliveriesLeft, t.ObjectsLeft).atMost(cpu)
	s.WatchMemory = watchMemory.apiserver.times(t.Watches).atMost(memory)
	s.WatchMemoryLeft = watchMemory.apiserver.times(t.WatchesLeft).atMost(memory)
	s.Reviews = reviewCost.times(t.Watches / reviewInterval)
	s.Reviews.Low = 0 // all watches may have one token
	t.SavedCPU = t.SavedCPU.atMost(cpu)

	a.Tier.CPU = cpuOf(deliveryCost.watchfan, objectCost.watchfan, t.Deliveries, t.Objects)
	objects, busy := 0.0, 0.0
	for _, r := range a.Resources {
		objects += r.Stored * r.objectBytes()
		if r.Events >= 1 {
			busy++
		}
	}
	n, watches := float64(a.Replicas), watchMemory.watchfan.times(t.Watches)
	a.Tier.Memory.Low = n*(processMemory+cacheFactor*objects) + watches.Low
	a.Tier.Memory.High = garbageFactor * n *
		(baseMemory + watches.High/max(n-1, 1) + representations*objects + busyMemory*busy)
	a.Tier.Memory.Mid = (a.Tier.Memory.Low + a.Tier.Memory.High) / 2
}

// defaultObjectBytes is the size of objects of which no event has been seen.
const defaultObjectBytes = 2000

func (r *Resource) objectBytes() float64 { return cmp.Or(r.eventBytes, defaultObjectBytes) }
