package fanout

import (
	"github.com/google/btree"

	"github.com/watchfan/watchfan/framing"
)

// collection is the objects of a cache at one instant: by key, and by the values of the indexed
// attributes. All its trees have the same objects at any time.
type collection struct {
	tree    *btree.BTreeG[*framing.Object]
	indexes []*secondaryIndex
}

func newCollection() collection { return collection{tree: newTree()} }

// degree is the B-trees': while a snapshot is held, a change copies a few nodes of up to 63 items.
const degree = 32

func newTree() *btree.BTreeG[*framing.Object] {
	return btree.NewG(degree, func(a, b *framing.Object) bool { return a.Key < b.Key })
}

// store replaces the version prev of an object by the version cur. Either is nil if there is none.
func (c *collection) store(prev, cur *framing.Object) {
	if cur != nil {
		c.tree.ReplaceOrInsert(cur)
	} else {
		c.tree.Delete(prev)
	}
	for _, x := range c.indexes {
		x.store(prev, cur)
	}
}

// clone returns a copy. The two share all nodes that neither changes afterwards. It takes the same
// time for any number of objects.
func (c *collection) clone() collection {
	clone := collection{tree: c.tree.Clone()}
	for _, x := range c.indexes {
		clone.indexes = append(clone.indexes, x.clone())
	}
	return clone
}

// index returns the index of an attribute; nil if there is none.
func (c *collection) index(a attribute) *secondaryIndex {
	for _, x := range c.indexes {
		if x.attribute == a {
			return x
		}
	}
	return nil
}
