package view

import (
	"reflect"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/framing"
)

// Outdated reports whether another view has the name of v now, or none. v may be nil, for no view.
func (v *View) Outdated() bool { return v != nil && v.outdated.Load() }

// retire makes v outdated. Objects let go of their forms in it when they are asked for others.
func (v *View) retire() {
	v.outdated.Store(true)
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, m := range v.made {
		if m.variant != nil && m.variant.Trim != nil && m.variant.Trim != framing.Lean {
			m.variant.Trim.Retire()
		}
	}
}

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
