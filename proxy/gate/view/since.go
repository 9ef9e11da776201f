package view

import (
	"maps"
	"math"
	"reflect"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// since says from which resourceVersion on a view has its form of each resource. What a client holds as
// of an earlier one is of another form, and no event says how they differ: it has to list again.
//
// Nobody knows a resourceVersion across a restart. So a view that is changed while no replica runs, or
// that replicas change at different times, should get another name.
type since struct {
	was     *View // that it replaces, until Settle; nil for none
	settled atomic.Pointer[map[schema.GroupResource]uint64]
}

// after makes v replace another view.
func (v *View) after(was *View) { v.since.was = was }

// Since returns the resourceVersion from which on the view has its form of a resource; 0 if it always
// had. v may be nil, for no view.
func (v *View) Since(of schema.GroupResource) uint64 {
	if v == nil {
		return 0
	}
	if settled := v.since.settled.Load(); settled != nil {
		return (*settled)[of]
	}
	if was := v.since.was; was != nil && !v.SameFor(was, of) {
		return math.MaxUint64 // clients may still be sent the form before
	}
	return 0
}

// Settle says that no client is sent the form of the view before any more, and up to which
// resourceVersion clients may have been sent each resource.
func (v *View) Settle(progress map[schema.GroupResource]uint64) {
	settled := make(map[schema.GroupResource]uint64)
	if before := v.since.was.since.settled.Load(); before != nil {
		settled = maps.Clone(*before)
	}
	for of, rv := range progress {
		if !v.SameFor(v.since.was, of) {
			settled[of] = rv
		}
	}
	v.since.settled.Store(&settled)
}

// Outdated reports whether another view has the name of v now, or none. v may be nil, for no view.
func (v *View) Outdated() bool { return v != nil && v.outdated.Load() }

// SameFor reports whether both views have the same form of a resource. Either may be nil.
func (v *View) SameFor(other *View, of schema.GroupResource) bool {
	return reflect.DeepEqual(v.formOf(of), other.formOf(of))
}

// formOf returns the configuration of what the view has of a resource.
func (v *View) formOf(of schema.GroupResource) (c Config) {
	if v == nil {
		return c
	}
	c.Quiet = v.config.Quiet
	if i := v.partOf(of); i >= 0 {
		c.Resources = v.config.Resources[i : i+1]
	}
	for _, d := range v.config.Drop {
		if d.concerns(of) {
			c.Drop = append(c.Drop, d)
		}
	}
	return c
}
