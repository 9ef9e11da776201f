package view

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// managedFields is the path that the view lean leaves out, and a client with drop= in its Accept
// header.
const managedFields Field = "metadata.managedFields"

// drops is a set of a view's drops, a bit each, and whether the client asks for lean objects too.
type drops struct {
	bits uint32
	lean bool
}

// Variant returns the form in which the view serves the objects of a resource, with the view's
// account. lean leaves out metadata.managedFields too. The result is the same each time. v may be
// nil, for no view.
func (v *View) Variant(of schema.GroupResource, lean bool) *fanout.Variant {
	switch {
	case v != nil:
		return v.variant(drops{v.concerning(of), lean})
	case lean:
		return fanout.Lean
	}
	return fanout.Whole
}

// Whole returns the form of what the view leaves as it is. v may be nil, for no view.
func (v *View) Whole() *fanout.Variant {
	if v == nil {
		return fanout.Whole
	}
	return v.variant(drops{})
}

// concerning returns the drops that concern a resource.
func (v *View) concerning(of schema.GroupResource) (bits uint32) {
	for i, d := range v.drops {
		if len(d.Resources) == 0 || slices.ContainsFunc(d.Resources, func(r Resource) bool { return r.names(of) }) {
			bits |= 1 << i
		}
	}
	return bits
}

// names reports whether r names a resource. A name without a group is of every group.
func (r Resource) names(of schema.GroupResource) bool {
	name, group, grouped := strings.Cut(string(r), ".")
	return name == of.Resource && (!grouped || group == of.Group)
}

func (v *View) variant(d drops) *fanout.Variant {
	v.mu.Lock()
	defer v.mu.Unlock()
	if made := v.made[d]; made != nil {
		return made
	}
	var of []Drop
	for i, drop := range v.drops {
		if d.bits&(1<<i) != 0 {
			of = append(of, drop)
		}
	}
	if d.lean {
		of = append(of, Drop{Fields: []Field{managedFields}})
	}
	v.made[d] = &fanout.Variant{Trim: newTrim(of), Account: &v.account}
	return v.made[d]
}

// newTrim returns a Trim; nil for no drops. Lean clients without a view share the frames of one that
// leaves out the same.
func newTrim(of []Drop) *framing.Trim {
	if len(of) == 0 {
		return nil
	}
	lean := true
	var parts []framing.Drop
	for _, d := range of {
		part := framing.Drop{}
		for _, f := range d.Fields {
			lean = lean && f == managedFields
			part.Fields = append(part.Fields, strings.Split(string(f), "."))
		}
		for _, a := range d.Annotations {
			part.Annotations = append(part.Annotations, string(a))
		}
		if d.LabelSelector != "" {
			selector, _ := labels.Parse(string(d.LabelSelector)) // it has been checked
			part.Selects = func(of map[string]string) bool { return selector.Matches(labels.Set(of)) }
		}
		lean = lean && len(d.Annotations) == 0 && part.Selects == nil
		parts = append(parts, part)
	}
	if lean {
		return framing.Lean
	}
	return framing.NewTrim(parts...)
}
