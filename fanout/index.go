package fanout

import (
	"k8s.io/apimachinery/pkg/selection"

	"github.com/watchfan/watchfan/framing"
)

// index finds the groups that an event may concern without asking each filter.
// A group stands under the most selective equality that its filter demands: a
// name, a field, a label or a namespace, in this order; under none, it is asked
// about every event. The cache's mutex guards it.
type index struct {
	every map[*group]struct{}
	by    map[attribute]map[string]map[*group]struct{}

	event uint64 // number of the look-up under way; marks the groups already seen
}

// attribute is something of an object that has one value. It is comparable.
type attribute struct {
	slot  int    // of a field, or one of the slots for metadata; slotLabel for a label
	label string // the label's key
}

const slotLabel = -3

func (a attribute) of(o *framing.Object) (string, bool) {
	switch a.slot {
	case slotName:
		return o.Name, true
	case slotNamespace:
		return o.Namespace, true
	case slotLabel:
		v, ok := o.Labels[a.label]
		return v, ok
	}
	return o.Fields[a.slot], true
}

// place returns the attribute that a filter's group stands under and the values it may
// have; none if no single attribute is decisive.
func (f *Filter) place() (a attribute, values []string) {
	if f.name != "" {
		return attribute{slot: slotName}, []string{f.name}
	}
	for _, t := range f.terms {
		if t.slot >= 0 && !t.negate {
			return attribute{slot: t.slot}, []string{t.value}
		}
	}
	requirements, _ := f.labels.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			return attribute{slot: slotLabel, label: r.Key()}, r.ValuesUnsorted()
		}
	}
	if f.namespace != "" {
		return attribute{slot: slotNamespace}, []string{f.namespace}
	}
	return attribute{}, nil
}

func (x *index) add(g *group) {
	a, values := g.filter.place()
	if values == nil {
		if x.every == nil {
			x.every = make(map[*group]struct{})
		}
		x.every[g] = struct{}{}
		return
	}
	if x.by == nil {
		x.by = make(map[attribute]map[string]map[*group]struct{})
	}
	if x.by[a] == nil {
		x.by[a] = make(map[string]map[*group]struct{})
	}
	for _, v := range values {
		if x.by[a][v] == nil {
			x.by[a][v] = make(map[*group]struct{})
		}
		x.by[a][v][g] = struct{}{}
	}
}

func (x *index) remove(g *group) {
	delete(x.every, g)
	a, values := g.filter.place()
	for _, v := range values {
		delete(x.by[a][v], g)
		if len(x.by[a][v]) == 0 {
			delete(x.by[a], v)
		}
	}
	if len(x.by[a]) == 0 {
		delete(x.by, a)
	}
}

// concerned calls f once for each group that may want the event, because of the object's
// version before or the one after.
func (x *index) concerned(e *Event, f func(*group)) {
	x.event++
	visit := func(groups map[*group]struct{}) {
		for g := range groups {
			if g.seen != x.event {
				g.seen = x.event
				f(g)
			}
		}
	}
	visit(x.every)
	for a, groups := range x.by {
		v, ok := a.of(e.Object)
		if ok {
			visit(groups[v])
		}
		if e.Prev == nil {
			continue
		}
		if old, had := a.of(e.Prev); had && (!ok || old != v) {
			visit(groups[old])
		}
	}
}
