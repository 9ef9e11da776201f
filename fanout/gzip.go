package fanout

import (
	"sync"
	"sync/atomic"

	"github.com/watchfan/watchfan/framing"
)

// compressedOnce is something that is compressed once, by the first shard that needs it. Another that needs
// it meanwhile waits.
type compressedOnce struct {
	once  sync.Once
	chunk framing.GzipChunk
}

// compress makes a chunk, and counts it; see [framing.GzipFrames].
func compress(before framing.Frame, frames ...framing.Frame) framing.GzipChunk {
	c := framing.GzipFrames(before, frames...)
	compressions.Inc()
	return c
}

// form is a frame as clients that take gzip get it, shared by all lists that it stands in.
type gzipFrame struct {
	frame framing.Frame
	plain framing.Checksum
	alone compressedOnce
	lists atomic.Int32 // how many have it compressed behind the frame before
}

// chunk returns the frame compressed alone, to be sent behind anything.
func (f *gzipFrame) chunk() framing.GzipChunk {
	f.alone.once.Do(func() { f.alone.chunk = compress(framing.Frame{}, f.frame) })
	return f.alone.chunk
}

// forms are the forms of one event's frames: one for each event type, at most.
type gzipFrames []*gzipFrame

// of returns the form of f. Frames are equal if their bodies are in the same place.
func (fs *gzipFrames) of(f framing.Frame) *gzipFrame {
	for _, have := range *fs {
		if &have.frame.Body[0] == &f.Body[0] {
			return have
		}
	}
	made := &gzipFrame{frame: f, plain: f.Checksum()}
	*fs = append(*fs, made)
	return made
}

// listed is what a node has besides in a group with members that take gzip.
type gzipNode struct {
	// Immutable.
	frame *gzipFrame
	plain framing.Checksum // of the list's frames up to and including this one, since members last began to take gzip

	afterPrev compressedOnce // the frame, compressed behind the one before it in the list
}

// plain is that of the list up to n; zero where no member takes gzip, and the next one to do so
// begins to count.
func (n *node) plain() framing.Checksum {
	if n.gzip == nil {
		return framing.Checksum{}
	}
	return n.gzip.plain
}

// maxAfterPrev bounds in how many lists an event is compressed behind the one before, which saves
// three quarters but must be done for each list. In others it is sent as it is alone, so that the
// cost of an event does not grow with the number of filters that select it.
const maxAfterPrev = 8

// chunkAfter returns the frame of n as it is sent right behind that of prev, the node before.
func (n *node) chunkAfter(prev *node) framing.GzipChunk {
	z := n.gzip
	z.afterPrev.once.Do(func() {
		if z.frame.lists.Add(1) > maxAfterPrev {
			z.afterPrev.chunk = z.frame.chunk()
		} else {
			z.afterPrev.chunk = compress(prev.frame, n.frame)
		}
	})
	return z.afterPrev.chunk
}

// gzipMember is how far the gzip member has come that a client is being sent: nothing but what its
// end must tell. A stretch of the list is added when it is left, by what the list itself counts, so
// that an event adds nothing. Its owner is the subscription's.
type gzipMember struct {
	sent      framing.Checksum // of all before the stretch
	from      framing.Checksum // of the list in front of the stretch
	inStretch bool             // what was sent last is the frame that the subscription's cursor is at
}

// next returns what is sent of n, the node behind prev.
func (m *gzipMember) next(prev, n *node) framing.GzipChunk {
	if m.inStretch {
		return n.chunkAfter(prev)
	}
	m.inStretch, m.from = true, prev.plain()
	return n.gzip.frame.chunk()
}

// leave ends the stretch, if there is one, at node last.
func (m *gzipMember) leave(last *node) {
	if m.inStretch {
		m.sent, m.inStretch = m.sent.Followed(last.plain().After(m.from)), false
	}
}

// add counts what is not of the list, and comes behind node last.
func (m *gzipMember) add(last *node, c framing.GzipChunk) {
	m.leave(last)
	m.sent = m.sent.Followed(c.Plain)
}
