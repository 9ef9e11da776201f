package fanout

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/watchfan/watchfan/framing"
)

// Filter is the whole condition of one list or watch: a namespace, the compiled label and field
// selectors, and the part of the collection that a shardSelector asks for. Filters that mean the
// same have the same key and share one list of frames. A Filter is immutable, and keeps no
// reference to what it is made from.
type Filter struct {
	namespace string // "" = all
	name      string // "" = any, from metadata.name=
	nothing   bool   // selects nothing, because it contradicts itself
	fixed     bool   // depends only on what never changes in an object: objects never enter or leave it
	terms     []term // the rest of the field selector
	labels    []requirement
	part      HashRanges // see Within
	view                 // see In
	key       string
	cost      int // see costOf
	size      int // in bytes
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

func valueAt(o *framing.Object, slot int) string {
	switch slot {
	case slotName:
		return o.Name
	case slotNamespace:
		return o.Namespace
	}
	return o.Fields[slot]
}

// Everything selects every object.
var Everything, _ = NewFilter("", nil, nil, nil)

// NewFilter returns the filter of a request within namespace, where "" means all. fieldLabels are
// the labels of [framing.Object.Fields] in their order; metadata.name and metadata.namespace are
// always known. ok is false if the field selector has another label. A nil selector selects
// everything.
func NewFilter(namespace string, ls labels.Selector, fs fields.Selector, fieldLabels []string) (f *Filter, ok bool) {
	f = &Filter{namespace: strings.Clone(namespace)} // it may be a slice of a request's line
	if ls == nil {
		ls = labels.Everything()
	}
	if fs == nil {
		fs = fields.Everything()
	}
	// A selector that selects nothing has no requirements, so it has to be recognised otherwise.
	_, selectable := ls.Requirements()
	f.nothing = !selectable || len(fs.Requirements()) == 0 && !fs.Empty()
	for _, r := range fs.Requirements() {
		t := term{value: strings.Clone(r.Value), negate: r.Operator == selection.NotEquals}
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
	f.labels, f.key = compileLabels(ls, f.canonicalFields(fieldLabels))
	if f.nothing {
		f.labels, f.terms, f.key = nil, nil, nothingKey
	}
	f.fixed = len(f.labels) == 0 && !slices.ContainsFunc(f.terms, func(t term) bool { return t.slot >= 0 })
	f.cost, f.size = f.costOf(), f.sizeOf()
	return f, true
}

// nothingKey is the key of filters that select nothing.
const nothingKey = "nothing"

// Key is the same for filters that mean the same now. It changes when the namespaces of a view do: a read
// may have waited since its filter was made, and what was found before then is not for it.
func (f *Filter) Key() string {
	if f.namespaces == nil {
		return f.key
	}
	return fmt.Sprintf("%s %d", f.key, f.namespaces.selected.Load().version)
}

// canonicalFields returns the filter's key without its labels. Values come from clients and may
// contain any byte, so each part is quoted.
func (f *Filter) canonicalFields(fieldLabels []string) string {
	key := fmt.Appendf(nil, "%q/%q", f.namespace, f.name)
	for _, t := range f.terms {
		key = fmt.Appendf(key, " field %q", t.String(fieldLabels))
	}
	return string(key)
}

// costOf returns the cost of evaluating the filter for a version of an object, in requirements. The
// index answers for a filter that demands a name, one field's value or nothing at all. That costs
// 0.
func (f *Filter) costOf() int {
	if len(f.labels) == 0 && (len(f.terms) == 0 || f.name == "" && len(f.terms) == 1 && f.terms[0].decides()) {
		return 0
	}
	cost := 1 + len(f.terms)
	for i := range f.labels {
		cost += f.labels[i].cost()
	}
	return cost
}

// decides reports whether the index can answer for the term.
func (t term) decides() bool { return t.slot >= 0 && !t.negate }

func (f *Filter) sizeOf() int {
	size := int(reflect.TypeFor[Filter]().Size()) + len(f.namespace) + len(f.name) + len(f.key)
	size += len(f.terms) * int(reflect.TypeFor[term]().Size())
	for _, t := range f.terms {
		size += len(t.value)
	}
	size += len(f.labels) * int(reflect.TypeFor[requirement]().Size())
	for i := range f.labels {
		size += len(f.labels[i].values) * int(reflect.TypeFor[string]().Size())
	}
	return size + f.part.size()
}

// add adds a requirement. One that demands a name or a namespace narrows the filter itself.
func (f *Filter) add(t term) {
	var own *string
	switch t.slot {
	case slotName:
		own = &f.name
	case slotNamespace:
		own = &f.namespace
	}
	switch {
	case own == nil || t.negate || t.slot == slotNamespace && t.value == "": // in cluster scope that is everything
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
func (f *Filter) Match(o *framing.Object) bool { return f.follows(o, nil) }

// follows is Match. It takes less work if before, which may be nil, is the version before.
func (f *Filter) follows(o, before *framing.Object) bool {
	return f.matches(o, before) && f.namespaces.has(o.Namespace)
}

// matches is follows in any namespace.
func (f *Filter) matches(o, before *framing.Object) bool {
	if !f.inScope(o) || !f.part.has(o) {
		return false
	}
	for i := range f.terms {
		if t := &f.terms[i]; (valueAt(o, t.slot) == t.value) == t.negate {
			return false
		}
	}
	for i := range f.labels {
		if !f.labels[i].matches(o.Labels) {
			return false
		}
	}
	return o.In(f.form, before)
}

// inScope reports whether the object has the filter's namespace and name, which never change.
func (f *Filter) inScope(o *framing.Object) bool {
	return !f.nothing &&
		(f.namespace == "" || f.namespace == o.Namespace) &&
		(f.name == "" || f.name == o.Name)
}

// partial reports whether the filter may select less than the whole collection.
func (f *Filter) partial() bool {
	return f.nothing || f.namespace != "" || f.name != "" || f.selective()
}

// Scope returns a filter that selects the namespace and name of f, whatever its other selectors
// are. Without a namespace it selects everything.
func (f *Filter) Scope() *Filter {
	scope := &Filter{namespace: f.namespace, fixed: true}
	if f.namespace != "" {
		scope.name = f.name
	}
	return scope
}
