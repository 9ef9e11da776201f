package framing

import "google.golang.org/protobuf/encoding/protowire"

// Field is one selectable field of a kind, and where its value is in an object. A field without
// Paths and Numbers is accepted in selectors and always has the value Default.
type Field struct {
	// Label is the field's name in a field selector, such as "spec.nodeName".
	Label string
	// Paths lead to the value in JSON and CBOR. They are tried in order. The first whose value is
	// present and not empty gives the value. The element "[0]" steps into an array's first element.
	Paths [][]string
	// Numbers are the same paths in protobuf, as field numbers of the published definitions
	// (k8s.io/api, generated.proto). Of a repeated field the first element counts. No path leads
	// into the object's metadata, which is number 1.
	Numbers [][]int32
	// Default is the value if no path gives one: "", "false" or "0".
	Default string
}

// fieldValues collects the values of one object's fields. Each path of each field has a leaf, which
// holds the value found there.
type fieldValues struct {
	fields []Field
	owner  []int    // the field of each leaf
	values []string // the value of each leaf; "" if nothing has been found
	texts  texts
}

// leaf returns a new leaf of a field, after those of its earlier paths.
func (v *fieldValues) leaf(field int) int {
	v.owner = append(v.owner, field)
	v.values = append(v.values, "")
	return len(v.owner) - 1
}

func (v *fieldValues) reset() { clear(v.values) }

// chosen returns the value of each field: the first that was found.
func (v *fieldValues) chosen() []string {
	if len(v.fields) == 0 {
		return nil
	}
	chosen := make([]string, len(v.fields))
	for i, f := range v.fields {
		chosen[i] = f.Default
	}
	for leaf := len(v.values) - 1; leaf >= 0; leaf-- {
		if value := v.values[leaf]; value != "" {
			chosen[v.owner[leaf]] = value
		}
	}
	return chosen
}

// pathFields are the fields of a scanner that uses Paths.
type pathFields struct {
	fields fieldValues
	tree   fieldTree
}

func newPathFields(fields []Field) pathFields {
	p := pathFields{fields: fieldValues{fields: fields}}
	for i, f := range fields {
		for _, path := range f.Paths {
			p.tree.add(path, p.fields.leaf(i))
		}
	}
	return p
}

// found notes the value at t.
func (p *pathFields) found(t *fieldTree, text string) {
	for _, leaf := range t.leaves {
		p.fields.values[leaf] = text
	}
}

// fieldTree is the union of all paths of a field list, so one walk over an object collects all
// values. It is immutable once built.
type fieldTree struct {
	members map[string]*fieldTree // by member name
	first   *fieldTree            // the first element of an array
	leaves  []int                 // leaves whose value is here
}

// arrayHead is the path element for an array's first element.
const arrayHead = "[0]"

func (t *fieldTree) add(path []string, leaf int) {
	for _, name := range path {
		if name == arrayHead {
			if t.first == nil {
				t.first = &fieldTree{}
			}
			t = t.first
			continue
		}
		if t.members == nil {
			t.members = make(map[string]*fieldTree)
		}
		if t.members[name] == nil {
			t.members[name] = &fieldTree{}
		}
		t = t.members[name]
	}
	t.leaves = append(t.leaves, leaf)
}

// numberTree is the union of all Numbers of a field list.
type numberTree struct {
	number   protowire.Number
	children []*numberTree
	leaves   []int // leaves whose value is here
	found    bool  // found in the current message: further elements are ignored
}

func (t *numberTree) add(path []int32, leaf int) {
	for _, number := range path {
		child := t.child(protowire.Number(number))
		if child == nil {
			child = &numberTree{number: protowire.Number(number)}
			t.children = append(t.children, child)
		}
		t = child
	}
	t.leaves = append(t.leaves, leaf)
}

func (t *numberTree) child(number protowire.Number) *numberTree {
	for _, child := range t.children {
		if child.number == number {
			return child
		}
	}
	return nil
}
