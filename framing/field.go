package framing

// Field is one selectable field of a kind: where its value stands in the
// object's JSON. The zero value of Paths is a field that is accepted in
// selectors and always has the value Default.
type Field struct {
	// Label is the field's name in a field selector, such as "spec.nodeName".
	Label string
	// Paths are tried in order; the first that is present and not empty gives
	// the value. The element "[0]" steps into an array's first element.
	Paths [][]string
	// Default is the value where no path gives one: "", "false" or "0".
	Default string
}

// fieldTree is the union of all paths of a field list, so that one walk over an
// object collects every value. It is immutable once built.
type fieldTree struct {
	members map[string]*fieldTree // by quoted JSON member name
	first   *fieldTree            // the first element of an array
	leaves  []int                 // values that stand here, by leaf number
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
		quoted := `"` + name + `"`
		if t.members[quoted] == nil {
			t.members[quoted] = &fieldTree{}
		}
		t = t.members[quoted]
	}
	t.leaves = append(t.leaves, leaf)
}
