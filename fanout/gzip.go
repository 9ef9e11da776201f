package fanout

import (
	"sync"
	"sync/atomic"

	"github.com/watchfan/watchfan/framing"
)

// compressedOnce is something that is compressed once, by the first shard that needs it. Other
// shards that need it meanwhile wait.
type compressedOnce struct {
	once  sync.Once
	chunk framing.GzipChunk
}

// compress returns frames as a chunk and counts the compression: see [framing.GzipFrames].
func (m *Metrics) compress(before framing.Frame, frames ...framing.Frame) framing.GzipChunk {
	c := framing.GzipFrames(before, frames...)
	m.compressions.Inc()
	return c
}

// gzipFrame is a frame as clients that take gzip get it. All lists that hold the frame share it.
type gzipFrame struct {
	frame framing.Frame
	plain framing.Checksum
	alone compressedOnce
	lists atomic.Int32 // how many lists have it compressed after their previous frame
}

// chunk returns the frame compressed alone, which may be sent after anything.
func (f *gzipFrame) chunk(m *Metrics) framing.GzipChunk {
	f.alone.once.Do(func() { f.alone.chunk = m.compress(framing.Frame{}, f.frame) })
	return f.alone.chunk
}

// gzipFrames are the frames of one change: at most one for each event type and Trim.
type gzipFrames []*gzipFrame

func (fs *gzipFrames) of(f framing.Frame) *gzipFrame {
	for _, have := range *fs {
		if have.frame.Start() == f.Start() {
			return have
		}
	}
	made := &gzipFrame{frame: f, plain: f.Checksum()}
	*fs = append(*fs, made)
	return made
}

// gzipNode is a node's additional part, in a group with members that take gzip.
type gzipNode struct {
	// Immutable.
	frame *gzipFrame
	plain framing.Checksum // of the list up to and including this frame, since members last began to take gzip

	afterPrev compressedOnce // the frame, compressed after the previous one of the list
}

// plain is the checksum of the list up to n. It is zero while no member takes gzip, and counting
// begins again when one does.
func (n *node) plain() framing.Checksum {
	if n.gzip == nil {
		return framing.Checksum{}
	}
	return n.gzip.plain
}

// maxAfterPrev bounds in how many lists a frame is compressed after the previous one. That saves
// three quarters of the bytes, but has to be done for each list. Other lists send the frame
// compressed alone. So the cost of an event does not grow with the number of filters that select
// it.
const maxAfterPrev = 8

// chunkAfter returns the frame of n, to be sent right after the frame of prev, the node before n.
func (n *node) chunkAfter(prev *node, m *Metrics) framing.GzipChunk {
	z := n.gzip
	z.afterPrev.once.Do(func() {
		if z.frame.lists.Add(1) > maxAfterPrev {
			z.afterPrev.chunk = z.frame.chunk(m)
		} else {
			z.afterPrev.chunk = m.compress(prev.frame, n.frame)
		}
	})
	return z.afterPrev.chunk
}

// gzipMember is the state of the gzip member that a client is being sent: only what the member's
// end needs. A stretch of the list is added when it ends, with the checksums that the list itself
// keeps. So an event adds nothing. It has the same owner as its subscription.
type gzipMember struct {
	sent      framing.Checksum // of everything before the stretch
	from      framing.Checksum // of the list before the stretch
	inStretch bool             // what was sent last is the frame at the subscription's cursor
}

// next returns what is sent for n, the node after prev.
func (m *gzipMember) next(prev, n *node, counts *Metrics) framing.GzipChunk {
	if m.inStretch {
		return n.chunkAfter(prev, counts)
	}
	m.inStretch, m.from = true, prev.plain()
	return n.gzip.frame.chunk(counts)
}

// leave ends the current stretch, if there is one, at node last.
func (m *gzipMember) leave(last *node) {
	if m.inStretch {
		m.sent, m.inStretch = m.sent.Followed(last.plain().After(m.from)), false
	}
}

// add adds a chunk that is not of the list. It comes after node last.
func (m *gzipMember) add(last *node, c framing.GzipChunk) {
	m.leave(last)
	m.sent = m.sent.Followed(c.Plain)
}
