package fanout

import (
	"math"
	"math/bits"
	"slices"

	"github.com/watchfan/watchfan/framing"
)

// index finds the groups that a change may concern, without evaluating every filter. A group is in
// the scope of its filter's namespace, or in the scope of all namespaces. There it is found by the
// hashes that a shardSelector asks for, or else by an equality that its filter demands: of a name,
// a field or a label. If its filter demands none, it is asked about every change of the scope. To
// ask a group is to evaluate its filter. The cache's mutex guards the index.
//
// A change is in two scopes. In each, the filters that one version of an object can make the writer
// ask cost at most maxScopeCost together. A group that would exceed that is refused.
type index struct {
	scopes map[string]*scope // by namespace; "" is the scope of all

	lookup uint64 // number of the current look-up; marks the groups already asked

	// onAsk is called with each group that is asked; nil outside tests.
	onAsk func(*group)
}

const (
	// maxScopeCost is about 0.1 ms of the writer for each version of an object (BenchmarkScope): so
	// many requirements, or 2,000 filters of one requirement that the index can't tell apart.
	// Filters that cost nothing do not count. kubelets and most controllers watch by such filters:
	// a name, a field, a namespace, or nothing.
	maxScopeCost = 4096
	// maxPlaces is the most values of one attribute that a group may be found by.
	maxPlaces = 16
)

// scope is the groups of one namespace, or of all namespaces.
type scope struct {
	every      bucket             // groups that are asked about every change
	attributes []*attributeGroups // one for each attribute; few, and each change goes over them
	cost       int                // the most that one version of an object can cost: every's, and the maxCost of each attribute
}

// of returns the groups that are found by an attribute; nil if there are none.
func (sc *scope) of(a attribute) *attributeGroups {
	for _, s := range sc.attributes {
		if s.attribute == a {
			return s
		}
	}
	return nil
}

// attributeGroups is the groups of a scope that are found by the value of one attribute.
type attributeGroups struct {
	attribute
	buckets map[string]*bucket
	costs   [bits.UintSize + 1]int32 // number of buckets by the length of their cost in bits
	// lookUp is 1 for a label, because the writer looks each such label up for every change, and
	// clients can bring any number of labels; 0 for a field.
	lookUp int
}

// bucket is the groups that are asked together.
type bucket struct {
	groups []*group
	cost   int // of those that are found by the value of an attribute
}

// attribute is a property of an object that has one value. It is comparable.
type attribute struct {
	slot  int    // a field's, slotName, or one of the following
	label string // the label's key
}

const (
	slotLabel  = -3
	slotFilter = -4 // label is a filter's key: see indexed
	slotHash   = -5 // minus a HashedField: the first byte of its hash
)

func (a attribute) of(o *framing.Object) (string, bool) {
	switch {
	case a.slot == slotLabel:
		v, ok := o.Labels[a.label]
		return v, ok
	case a.slot <= slotHash:
		return firstByte(HashedField(slotHash - a.slot).of(o)), true
	}
	return valueAt(o, a.slot), true
}

// appendIn appends to values those of the attribute after a change and before it, each once.
func (a attribute) appendIn(e *change, values []string) []string {
	v, has := a.of(e.Object)
	if has {
		values = append(values, v)
	}
	if e.Prev != nil {
		if old, had := a.of(e.Prev); had && (!has || old != v) {
			values = append(values, old)
		}
	}
	return values
}

// place is what a group is found by: values of an attribute, or nothing.
type place struct {
	attribute
	values []string
}

// places returns what a filter's group may be found by. It returns none if no single attribute
// decides.
func (f *Filter) places() (ps []place) {
	if f.name != "" {
		return []place{{attribute: attribute{slot: slotName}, values: []string{f.name}}}
	}
	for _, t := range f.terms {
		if t.decides() {
			ps = append(ps, place{attribute: attribute{slot: t.slot}, values: []string{t.value}})
		}
	}
	for i := range f.labels {
		if r := &f.labels[i]; r.operator == in && len(r.values) <= maxPlaces {
			ps = append(ps, place{attribute: attribute{slot: slotLabel, label: r.key}, values: r.values})
		}
	}
	return ps
}

// maxCost returns the most that one version of an object can cost here.
func (s *attributeGroups) maxCost() int {
	for n := len(s.costs) - 1; n >= 0; n-- {
		if s.costs[n] > 0 {
			return s.lookUp + 1<<n - 1
		}
	}
	return 0
}

func (s *attributeGroups) charge(b *bucket, cost int) {
	s.costs[bits.Len(uint(b.cost))]--
	b.cost += cost
	s.costs[bits.Len(uint(b.cost))]++
}

// newAttributeGroups returns those of an attribute, without groups.
func newAttributeGroups(a attribute) *attributeGroups {
	s := &attributeGroups{attribute: a, buckets: make(map[string]*bucket)}
	if a.slot == slotLabel {
		s.lookUp = 1
	}
	return s
}

// add takes a group in, at the place where the scope's cost grows least. It reports false, and
// changes nothing, if that would exceed the bound.
func (x *index) add(g *group) bool {
	f := g.filter
	sc := x.scopes[f.namespace]
	if sc == nil {
		sc = &scope{}
	}
	places := f.places()
	if f.name == "" && !f.part.whole() {
		places = []place{f.part.place()}
	} else if len(places) == 0 {
		places = []place{{}}
	}
	least, present := math.MaxInt, 0
	for _, p := range places {
		if more, n := sc.growth(p, f.cost); more < least || more == least && n < present {
			g.place, least, present = p, more, n
		}
	}
	if f.cost > 0 && least > 0 && sc.cost+least > maxScopeCost {
		return false
	}
	if x.scopes == nil {
		x.scopes = make(map[string]*scope)
	}
	x.scopes[f.namespace] = sc
	sc.put(g)
	return true
}

// growth returns by how much the scope's cost would grow with a filter of this cost at p, and what
// the groups cost that are found by the same value.
func (sc *scope) growth(p place, cost int) (more, present int) {
	if p.values == nil {
		return cost, 0
	}
	s := sc.of(p.attribute)
	if s == nil {
		s = newAttributeGroups(p.attribute)
	}
	for _, v := range p.values {
		if b := s.buckets[v]; b != nil {
			present = max(present, b.cost)
		}
	}
	after := *s
	after.costs[bits.Len(uint(present+cost))]++
	return after.maxCost() - s.maxCost(), present
}

func (sc *scope) put(g *group) {
	if g.place.values == nil {
		sc.every.groups = append(sc.every.groups, g)
		sc.cost += g.filter.cost
		return
	}
	s := sc.of(g.place.attribute)
	if s == nil {
		s = newAttributeGroups(g.place.attribute)
		sc.attributes = append(sc.attributes, s)
	}
	sc.cost -= s.maxCost()
	for _, v := range g.place.values {
		b := s.buckets[v]
		if b == nil {
			b = &bucket{}
			s.buckets[v] = b
			s.costs[0]++
		}
		b.groups = append(b.groups, g)
		s.charge(b, g.filter.cost)
	}
	sc.cost += s.maxCost()
}

func (x *index) remove(g *group) {
	sc := x.scopes[g.filter.namespace]
	sc.take(g)
	if len(sc.every.groups) == 0 && len(sc.attributes) == 0 {
		delete(x.scopes, g.filter.namespace)
	}
}

func (sc *scope) take(g *group) {
	if g.place.values == nil {
		sc.every.leave(g)
		sc.cost -= g.filter.cost
		return
	}
	s := sc.of(g.place.attribute)
	sc.cost -= s.maxCost()
	for _, v := range g.place.values {
		b := s.buckets[v]
		b.leave(g)
		s.charge(b, -g.filter.cost)
		if len(b.groups) == 0 {
			delete(s.buckets, v)
			s.costs[0]--
		}
	}
	sc.cost += s.maxCost()
	if len(s.buckets) == 0 {
		sc.attributes = slices.DeleteFunc(sc.attributes, func(x *attributeGroups) bool { return x == s })
	}
}

// leave takes a group out. A bucket has few groups, except those that cost nothing. Of these there
// is one for each key.
func (b *bucket) leave(g *group) {
	i := slices.Index(b.groups, g)
	last := len(b.groups) - 1
	b.groups[i], b.groups[last] = b.groups[last], nil
	b.groups = b.groups[:last]
}

// concerned calls f once for each group that may want the change, because of the version before or
// the one after.
func (x *index) concerned(e *change, f func(*group)) {
	x.lookup++
	x.visit(x.scopes[""], e, f)
	if e.Object.Namespace != "" {
		x.visit(x.scopes[e.Object.Namespace], e, f)
	}
}

func (x *index) visit(sc *scope, e *change, f func(*group)) {
	if sc == nil {
		return
	}
	x.ask(&sc.every, f)
	var values [2]string
	for _, s := range sc.attributes {
		for _, v := range s.appendIn(e, values[:0]) {
			x.ask(s.buckets[v], f)
		}
	}
}

func (x *index) ask(b *bucket, f func(*group)) {
	if b == nil {
		return
	}
	for _, g := range b.groups {
		if g.seen != x.lookup {
			g.seen = x.lookup
			if x.onAsk != nil {
				x.onAsk(g)
			}
			f(g)
		}
	}
}
