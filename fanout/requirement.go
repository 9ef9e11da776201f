package fanout

import (
	"cmp"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// requirement is one compiled requirement of a label selector. It means the same as
// [labels.Requirement]. It looks a value up among many, where [labels.Requirement] compares it with
// each.
type requirement struct {
	key      string
	operator operator
	values   []string // for in and notIn; sorted, each once
	bound    int64    // for greater and less
}

// The operators are in the order in which requirements are evaluated: those that most objects fail
// come first.
type operator uint8

const (
	in operator = iota
	exists
	greater
	less
	absent
	notIn
	never // no object meets it
)

var operators = map[selection.Operator]operator{
	selection.Equals: in, selection.DoubleEquals: in, selection.In: in,
	selection.NotEquals: notIn, selection.NotIn: notIn,
	selection.Exists: exists, selection.DoesNotExist: absent,
	selection.GreaterThan: greater, selection.LessThan: less,
}

// matches reports whether an object with these labels meets the requirement.
func (r *requirement) matches(ls map[string]string) bool {
	v, has := ls[r.key]
	switch r.operator {
	case in:
		return has && r.lists(v)
	case notIn:
		return !has || !r.lists(v)
	case exists:
		return has
	case absent:
		return !has
	case never:
		return false
	}
	n, err := strconv.ParseInt(v, 10, 64)
	return err == nil && (r.operator == greater && n > r.bound || r.operator == less && n < r.bound)
}

func (r *requirement) lists(v string) bool {
	if len(r.values) == 1 {
		return r.values[0] == v
	}
	_, found := slices.BinarySearch(r.values, v)
	return found
}

// cost is the cost of evaluating the requirement, as a multiple of looking a label up.
func (r *requirement) cost() int { return 1 + bits.Len(uint(len(r.values)))/2 }

// compileLabels returns a selector's requirements in the order in which they are evaluated, and its
// canonical form with prefix before it. A selector's own String would not do, because it keeps the
// client's order, and differs for a=b, a==b and a in (b). All strings of the requirements are
// slices of the canonical form. Labels contain no byte that has a meaning in it.
func compileLabels(ls labels.Selector, prefix string) (compiled []requirement, canonical string) {
	parsed, _ := ls.Requirements()
	for i := range parsed {
		compiled = append(compiled, compile(&parsed[i]))
	}
	slices.SortFunc(compiled, compareRequirements)
	compiled = slices.CompactFunc(compiled, func(a, b requirement) bool { return compareRequirements(a, b) == 0 })

	var b strings.Builder
	b.Grow(len(prefix) + len(ls.String()) + len(compiled)*len(" label 0 -9223372036854775808")) // so its strings do not move
	b.WriteString(prefix)
	write := func(s string) string {
		b.WriteString(s)
		return b.String()[b.Len()-len(s):]
	}
	for i := range compiled {
		r := &compiled[i]
		write(" label ")
		r.key = write(r.key)
		write(" " + strconv.Itoa(int(r.operator)) + " ")
		if r.operator == greater || r.operator == less {
			write(strconv.FormatInt(r.bound, 10))
		}
		for j, v := range r.values {
			r.values[j] = write(v)
			write(",")
		}
	}
	return compiled, b.String()
}

func compile(parsed *labels.Requirement) requirement {
	r := requirement{key: parsed.Key(), operator: never}
	if op, known := operators[parsed.Operator()]; known {
		r.operator = op
	}
	values := parsed.ValuesUnsorted()
	switch r.operator {
	case in, notIn:
		slices.Sort(values)
		r.values = slices.Clip(slices.Clone(slices.Compact(values)))
	case greater, less:
		var err error
		if len(values) != 1 {
			r.operator = never
		} else if r.bound, err = strconv.ParseInt(values[0], 10, 64); err != nil {
			r.operator = never
		}
	}
	return r
}

func compareRequirements(a, b requirement) int {
	return cmp.Or(cmp.Compare(a.operator, b.operator), strings.Compare(a.key, b.key), cmp.Compare(a.bound, b.bound),
		slices.Compare(a.values, b.values))
}
