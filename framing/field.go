package framing

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

// add adds a path of a field, after its earlier ones, to those that a walk finds.
func (v *fieldValues) add(paths *mask, field int, path Path) {
	end := paths.to(path, false)
	end.leaves = append(end.leaves, len(v.owner))
	v.owner = append(v.owner, field)
	v.values = append(v.values, "")
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

// found notes the value at some leaves.
func (v *fieldValues) found(leaves []int, text string) {
	for _, leaf := range leaves {
		v.values[leaf] = text
	}
}

// arrayHead is the path element for an array's first element.
var arrayHead = []byte("[0]")
