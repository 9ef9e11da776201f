package framing

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Path leads to a field of an object. A list on the way is no step: the path leads into each of its
// elements.
type Path []Step

// Step is one step of a Path: a member in JSON and CBOR, a field or a map's entry in protobuf.
type Step struct {
	// Name is the member's name, or the key of the entry.
	Name string
	// Number is the field's number; 0 for an entry, and in JSON and CBOR.
	Number protowire.Number
}

// Names returns a Path in JSON and CBOR.
func Names(names ...string) (p Path) {
	for _, name := range names {
		p = append(p, Step{Name: name})
	}
	return p
}

// numbers returns a Path in protobuf.
func numbers(numbers []int32) (p Path) {
	for _, n := range numbers {
		p = append(p, Step{Number: protowire.Number(n)})
	}
	return p
}

// mask is the union of paths, so one walk over an object finds all that they lead to. nil is that of
// no path.
type mask struct {
	step  Step
	below []*mask

	// Of a Scanner.
	leaves []int // of the values that are here: see fieldValues
	walk   int   // in protobuf: the last walk that found it

	// Of a Trim.
	drops uint64 // the indexes of the Drops that have a path to here, a bit each
	keep  bool   // a path of Keep ends here: all stays
	keeps bool   // a path of Keep ends here or below

	annotations bool // it is metadata.annotations, which are left out if all of them are
	value       int  // one more than the index of the value here that is wanted; 0 for none
	text        func(number uint64, bytes []byte) []byte
}

// to returns the mask at the end of a path, which it adds. keeps says that the path is one of Keep.
func (m *mask) to(p Path, keeps bool) *mask {
	for _, step := range p {
		i := slices.IndexFunc(m.below, func(b *mask) bool { return b.step == step })
		if i < 0 {
			i = len(m.below)
			m.below = append(m.below, &mask{step: step})
		}
		m = m.below[i]
		m.keeps = m.keeps || keeps
	}
	return m
}

// named returns the mask of a member or entry, and numbered that of a field.
func (m *mask) named(name []byte) *mask {
	if m == nil {
		return nil
	}
	for _, b := range m.below {
		if b.step.Name == string(name) {
			return b
		}
	}
	return nil
}

func (m *mask) numbered(n protowire.Number) *mask {
	for _, b := range m.below {
		if b.step.Number == n {
			return b
		}
	}
	return nil
}
