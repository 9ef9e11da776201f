package fanout

import (
	"cmp"
	"sync/atomic"

	"github.com/VictoriaMetrics/metrics"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/watchfan/watchfan/framing"
)

// group is the subscriptions that share a filter and a Variant, and the frames that they get: a
// singly linked list with one writer and any number of readers.
//
//  1. Only the cache's writer appends, under the cache's mutex. It fills a node completely, then
//     stores it as the tail, and then as its predecessor's next. So no reader is ever ahead of the
//     tail, from which its lag is computed.
//  2. A reader holds the node that it consumed last, and continues with next. A load that sees a
//     node sees all of it, and all nodes before it in order. So readers take no lock, and a reader
//     that finds no next has read everything.
//  3. Nothing points backwards. Nodes that every reader has passed are garbage. So a group holds
//     exactly the frames that its slowest reader has not read, and that reader's bounds ([Limits])
//     limit them.
//
// TestGroupStress exercises 1 and 2 under the race detector, TestReaderNotAhead the order in 1,
// TestSlowReaderBound 3.
type group struct {
	cache   *Cache // immutable, as filter is
	filter  *Filter
	variant *Variant // immutable; see Request.Variant
	place   place    // in the index; set by the index

	// Guarded by the cache's mutex.
	members int
	beside  int    // members that no client is sent anything of
	gzip    int    // members that take gzip
	seen    uint64 // index.lookup of the last visit

	tail atomic.Pointer[node]

	// ending is set when the cache has ended the group's subscriptions and dropped the group. It is
	// stored before parts are read, and adopt loads it after it has stored a part. So a
	// subscription that is too late to be found among the parts sees the ending. It is stored before
	// progress moves on without the list. So who loads it after progress knows whether progress says
	// anything of the list.
	ending atomic.Pointer[Ending]

	// parts are the members by shard, to wake them; nil for a shard that has none.
	parts []atomic.Pointer[part]
}

// node is one frame of a group's list. All but next is immutable.
type node struct {
	frame           framing.Frame
	resourceVersion uint64
	received        MonotonicTime // see change.Received
	frames, bytes   uint64        // of the list up to and including this node

	gzip *gzipNode // nil if no member of the group took gzip when the node was appended

	next atomic.Pointer[node]
}

func newGroup(f *Filter, shards int) *group {
	g := &group{filter: f, parts: make([]atomic.Pointer[part], shards)}
	g.tail.Store(&node{})
	return g
}

// append adds a frame to the list: see 1. shared are the compressed forms of the frames of one
// change, for all groups.
func (g *group) append(f framing.Frame, shared *gzipFrames, rv uint64, received MonotonicTime) {
	last := g.tail.Load()
	n := &node{
		frame:           f,
		resourceVersion: rv,
		received:        received,
		frames:          last.frames + 1,
		bytes:           last.bytes + uint64(f.Len()),
	}
	if g.gzip > 0 {
		frame := shared.of(f)
		n.gzip = &gzipNode{frame: frame, plain: last.plain().Followed(frame.plain)}
	}
	g.tail.Store(n)
	last.next.Store(n)
}

func (g *group) wake(lends bool) {
	for i := range g.parts {
		if p := g.parts[i].Load(); p != nil {
			p.wake(lends)
		}
	}
}

// groupKey tells the groups of a cache apart.
type groupKey struct {
	filter  string
	variant *Variant
}

func (g *group) key() groupKey { return groupKey{g.filter.key, g.variant} }

// groupLocked returns the group for a request, which may be a new one; nil if its filter would cost
// too much.
func (c *Cache) groupLocked(r Request) *group {
	f, variant := r.Filter, cmp.Or(r.Variant, Whole)
	key := groupKey{f.key, variant}
	if g := c.groups[key]; g != nil {
		return g
	}
	g := newGroup(f, len(c.flusher.shards))
	g.cache, g.variant = c, variant
	if f.cost > 0 && c.filtersSize+f.size > maxFilterBytes || !c.index.add(g) {
		c.flusher.metrics.costly.Inc()
		return nil
	}
	c.groups[key] = g
	c.viewed = c.viewed || f.Selects()
	c.filtersSize += f.size
	c.flusher.metrics.filterBytes.Add(float64(f.size))
	return g
}

// maxFilterBytes bounds the memory of a cache's filters, except those that cost nothing. Clients
// usually need a few hundred bytes each. A thousand of the largest filters that the proxy accepts
// fit.
const maxFilterBytes = 64 << 20

func (c *Cache) dropLocked(g *group) {
	c.index.remove(g)
	c.filtersSize -= g.filter.size
	c.flusher.metrics.filterBytes.Add(-float64(g.filter.size))
}

// Variant is what subscriptions with the same filter may differ in, and still share everything but
// their group. Its address identifies it. It is immutable.
type Variant struct {
	// Trim is the form of all objects; nil leaves them whole. If it selects objects or is quiet, the
	// filters of its clients are made with [Filter.In].
	Trim *framing.Trim
	// Account counts the subscriptions and what they are sent; nil for none.
	Account *Account
	// Namespaces selects the objects by their namespaces' labels; nil for all.
	Namespaces labels.Selector
}

// Whole is the Variant of clients that are in no view and ask for whole objects.
var Whole = &Variant{}

// Lean is the Variant of clients that ask for objects without metadata.managedFields (KEP-5958).
var Lean = &Variant{Trim: framing.Lean}

// Account counts subscriptions that belong together, such as those of a view, the bytes that are written
// to them, and the events that they are not sent because their Trim is quiet. All fields are set.
type Account struct {
	Subscriptions *metrics.Gauge
	Bytes         *metrics.Counter
	Quiet         *metrics.Counter
}
