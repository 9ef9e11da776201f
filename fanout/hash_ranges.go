package fanout

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/watchfan/watchfan/framing"
)

// HashedField is a field by whose hash a collection is divided. Neither ever changes in an object.
type HashedField uint8

const (
	HashedUID HashedField = iota
	HashedNamespace
)

func (f HashedField) of(o *framing.Object) uint64 {
	if f == HashedNamespace {
		return framing.HashOf(o.Namespace)
	}
	return o.UIDHash()
}

// HashRange is the hashes from First to Last, with both.
type HashRange struct{ First, Last uint64 }

// HashRanges is the part of a collection that a shardSelector asks for: the objects in which the
// hash of a field is in one of some ranges (KEP-5866). The zero value is the whole collection. It
// is immutable.
type HashRanges struct {
	field  HashedField
	ranges []HashRange // in order, with a gap between any two; nil for all hashes
}

// NewHashRanges returns the part of a collection with these ranges, of which there is at least one.
// They may overlap and come in any order. No First is greater than its Last.
func NewHashRanges(field HashedField, ranges []HashRange) HashRanges {
	sorted := slices.SortedFunc(slices.Values(ranges), func(a, b HashRange) int { return cmp.Compare(a.First, b.First) })
	merged := sorted[:0]
	for _, r := range sorted {
		last := len(merged) - 1
		if last >= 0 && (merged[last].Last == math.MaxUint64 || r.First <= merged[last].Last+1) {
			merged[last].Last = max(merged[last].Last, r.Last)
		} else {
			merged = append(merged, r)
		}
	}
	if slices.Equal(merged, []HashRange{{0, math.MaxUint64}}) {
		return HashRanges{}
	}
	return HashRanges{field, slices.Clip(merged)}
}

// whole reports whether the part is all of the collection.
func (p *HashRanges) whole() bool { return p.ranges == nil }

func (p *HashRanges) has(o *framing.Object) bool { return p.whole() || p.contains(p.field.of(o)) }

func (p *HashRanges) contains(hash uint64) bool {
	i, found := slices.BinarySearchFunc(p.ranges, hash, func(r HashRange, hash uint64) int {
		return cmp.Compare(r.First, hash)
	})
	return found || i > 0 && hash <= p.ranges[i-1].Last
}

// String is the same for parts that are the same.
func (p *HashRanges) String() string {
	text := fmt.Appendf(nil, "hash %d", p.field)
	for _, r := range p.ranges {
		text = fmt.Appendf(text, " %x-%x", r.First, r.Last)
	}
	return string(text)
}

func (p *HashRanges) size() int { return len(p.ranges) * int(reflect.TypeFor[HashRange]().Size()) }

// Within returns the filter that selects those of f's objects that are in a part of the collection.
// It returns f itself if they all are.
func (f *Filter) Within(part HashRanges) *Filter {
	if f.nothing || part.whole() {
		return f
	}
	if part.field == HashedNamespace && f.namespace != "" { // all objects have the same hash
		if part.contains(framing.HashOf(f.namespace)) {
			return f
		}
		none := &Filter{namespace: f.namespace, nothing: true, fixed: true, key: nothingKey}
		none.size = none.sizeOf()
		return none
	}
	within := *f
	within.part = part
	within.key += " " + part.String()
	within.cost++
	within.size = within.sizeOf() + len(f.key) // whose labels are slices of it
	return &within
}

// place is where the filter's group is found: by the first byte of the hash, so it may be asked about an
// object that it does not have. Of the 50 parts of a collection one or two are asked about an object, and
// of 4,096 one in 256.
func (p *HashRanges) place() place {
	found := place{attribute: attribute{slot: slotHash - int(p.field)}}
	next := uint64(0)
	for _, r := range p.ranges {
		for next = max(next, r.First>>56); next <= r.Last>>56; next++ {
			found.values = append(found.values, firstByte(next<<56))
		}
	}
	return found
}

// firstByte returns the first byte of a hash.
func firstByte(hash uint64) string { return everyByte[hash>>56:][:1] }

var everyByte = func() string {
	var all [256]byte
	for i := range all {
		all[i] = byte(i)
	}
	return string(all[:])
}()
