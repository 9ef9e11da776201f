package fanout

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/watchfan/watchfan/framing"
)

// Filter is the whole condition of one list or watch: a namespace and the label
// and field selectors. Filters that mean the same have the same key and share
// one queue of frames. A Filter is immutable.
type Filter struct {
	namespace string // "" = all
	name      string // "" = any, from metadata.name=
	nothing   bool   // contradicts itself
	labels    labels.Selector
	terms     []term // what remains of the field selector
	key       string
}

// term is one requirement of a field selector.
type term struct {
	slot   int // into framing.Object.Fields; slotName and slotNamespace for metadata
	value  string
	negate bool
}

const (
	slotName      = -1
	slotNamespace = -2
)

// NewFilter returns the filter of a request within namespace, where "" means all.
// fieldLabels are the labels of [framing.Object.Fields] in their order; metadata.name and
// metadata.namespace are always known. ok is false if the field selector has
// another label. A nil selector selects everything.
func NewFilter(namespace string, ls labels.Selector, fs fields.Selector, fieldLabels []string) (f *Filter, ok bool) {
	f = &Filter{namespace: namespace, labels: ls}
	if ls == nil {
		f.labels = labels.Everything()
	}
	if fs == nil {
		fs = fields.Everything()
	}
	// Selectors of nothing have no requirements to tell them by.
	_, selectable := f.labels.Requirements()
	f.nothing = !selectable || len(fs.Requirements()) == 0 && !fs.Empty()
	for _, r := range fs.Requirements() {
		t := term{value: r.Value, negate: r.Operator == selection.NotEquals}
		switch r.Field {
		case "metadata.name":
			t.slot = slotName
		case "metadata.namespace":
			t.slot = slotNamespace
		default:
			if t.slot = slices.Index(fieldLabels, r.Field); t.slot < 0 {
				return nil, false
			}
		}
		f.add(t)
	}
	slices.SortFunc(f.terms, func(a, b term) int {
		return strings.Compare(a.String(fieldLabels), b.String(fieldLabels))
	})
	f.terms = slices.Compact(f.terms)
	f.key = f.canonical(fieldLabels)
	return f, true
}

// Key is the same for filters that mean the same.
func (f *Filter) Key() string { return f.key }

// canonical returns the filter's key. Values come from clients and may hold any byte, so each part is quoted.
func (f *Filter) canonical(fieldLabels []string) string {
	if f.nothing {
		return "nothing"
	}
	key := fmt.Appendf(nil, "%q/%q", f.namespace, f.name)
	for _, r := range canonicalLabels(f.labels) {
		key = fmt.Appendf(key, " label %q", r)
	}
	for _, t := range f.terms {
		key = fmt.Appendf(key, " field %q", t.String(fieldLabels))
	}
	return string(key)
}

// canonicalLabels returns a selector's requirements, sorted and each in one form: a selector's own String keeps the
// client's order, and tells a=b, a==b and a in (b) apart.
func canonicalLabels(ls labels.Selector) []string {
	requirements, _ := ls.Requirements()
	var forms []string
	for _, r := range requirements {
		values := r.ValuesUnsorted()
		slices.Sort(values)
		op := r.Operator()
		switch op {
		case selection.Equals, selection.DoubleEquals:
			op = selection.In
		case selection.NotEquals:
			op = selection.NotIn
		}
		forms = append(forms, r.Key()+" "+string(op)+" "+strings.Join(slices.Compact(values), ","))
	}
	slices.Sort(forms)
	return slices.Compact(forms)
}

// add adds a requirement; those that name one object or namespace narrow the
// filter itself.
func (f *Filter) add(t term) {
	var own *string
	switch t.slot {
	case slotName:
		own = &f.name
	case slotNamespace:
		own = &f.namespace
	}
	switch {
	case own == nil || t.negate || t.slot == slotNamespace && t.value == "": // which in cluster scope is everything
		f.terms = append(f.terms, t)
	case t.value == "" || *own != "" && *own != t.value:
		f.nothing = true
	default:
		*own = t.value
	}
}

func (t term) String(fieldLabels []string) string {
	op := "="
	if t.negate {
		op = "!="
	}
	switch t.slot {
	case slotName:
		return "metadata.name" + op + t.value
	case slotNamespace:
		return "metadata.namespace" + op + t.value
	}
	return fieldLabels[t.slot] + op + t.value
}

// Match reports whether the filter selects the object.
func (f *Filter) Match(o *framing.Object) bool {
	if !f.inScope(o) {
		return false
	}
	for i := range f.terms {
		t := &f.terms[i]
		var value string
		switch t.slot {
		case slotName:
			value = o.Name
		case slotNamespace:
			value = o.Namespace
		default:
			value = o.Fields[t.slot]
		}
		if (value == t.value) == t.negate {
			return false
		}
	}
	return f.labels.Empty() || f.labels.Matches(labels.Set(o.Labels))
}

// inScope reports whether the object has the filter's namespace and name, which
// no version of it can change.
func (f *Filter) inScope(o *framing.Object) bool {
	return !f.nothing &&
		(f.namespace == "" || f.namespace == o.Namespace) &&
		(f.name == "" || f.name == o.Name)
}

// fixed reports whether the filter depends only on what no version of an object
// can change, so that objects never enter or leave it.
func (f *Filter) fixed() bool {
	return f.labels.Empty() && !slices.ContainsFunc(f.terms, func(t term) bool { return t.slot >= 0 })
}

// Scope returns the filter of the keys that a request with filter f ranges over, whatever its selectors.
func (f *Filter) Scope() *Filter {
	scope := &Filter{namespace: f.namespace, labels: labels.Everything()}
	if f.namespace != "" {
		scope.name = f.name
	}
	return scope
}
