package fanout

import (
	"sync/atomic"

	"github.com/watchfan/watchfan/framing"
)

// group is the subscriptions that share a filter, and the frames they get: a singly linked list
// with one writer and any number of readers.
//
//  1. Only the cache's writer, under the cache's mutex, appends. It fills a node completely, then
//     stores it as the tail, then as its predecessor's next: no reader is ever ahead of the tail,
//     from which it is told how far behind it is.
//  2. A reader holds the node that it consumed last and goes on to next. A load that sees a node
//     sees all of it, and the nodes before it in order: readers take no lock, and a reader that
//     finds no next has everything.
//  3. Nothing points backwards. What every reader has passed is garbage, so a group holds exactly
//     what its slowest reader has not read, and that reader's bounds ([Limits]) limit it.
//
// TestGroupStress exercises 1 and 2 under the race detector, TestReaderNotAhead the order in 1,
// TestSlowReaderBound 3.
type group struct {
	filter *Filter
	place  place // in the index, which sets it

	// Guarded by the cache's mutex.
	members int
	gzip    int    // members that take gzip
	seen    uint64 // index.event when last looked at

	tail atomic.Pointer[node]

	// ending is set when the cache has ended the group's subscriptions and forgotten the group. It
	// is stored before parts are read, and adopt loads it after it has stored one: who is too late
	// for one is in time for the other.
	ending atomic.Pointer[Ending]

	// parts are the members by shard, for waking; nil where a shard has none.
	parts []atomic.Pointer[part]
}

// node is one frame of a group's list. All but next is immutable.
type node struct {
	frame           framing.Frame
	resourceVersion uint64
	received        MonotonicTime // see Event.Received
	frames, bytes   uint64        // in the list up to and including this node

	gzip *gzipNode // nil in a group none of whose members took gzip when it was appended

	next atomic.Pointer[node]
}

func newGroup(f *Filter, shards int) *group {
	g := &group{filter: f, parts: make([]atomic.Pointer[part], shards)}
	g.tail.Store(&node{})
	return g
}

// append adds a frame of an event to the list; see 1.
func (g *group) append(f framing.Frame, event *gzipFrames, rv uint64, received MonotonicTime) {
	last := g.tail.Load()
	n := &node{
		frame:           f,
		resourceVersion: rv,
		received:        received,
		frames:          last.frames + 1,
		bytes:           last.bytes + uint64(f.Len()),
	}
	if g.gzip > 0 {
		frame := event.of(f)
		n.gzip = &gzipNode{frame: frame, plain: last.plain().Followed(frame.plain)}
	}
	g.tail.Store(n)
	last.next.Store(n)
}

// wake tells each shard with members that the list has grown.
func (g *group) wake() {
	for i := range g.parts {
		if p := g.parts[i].Load(); p != nil {
			p.wake()
		}
	}
}
