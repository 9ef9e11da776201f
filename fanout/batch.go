package fanout

import "github.com/watchfan/watchfan/framing"

// batch collects what is written to one client at once. A shard reuses it.
type batch struct {
	slices [][]byte
	bytes  int
	plain  int // bytes of the compressed slices before compression
	frames int
	oldest MonotonicTime // change.Received of the first live frame; 0 for none

	// run is the part of the prelude that has not been compressed and added yet. runBytes is its
	// size. runAlone says that it has frames that were made for this client.
	run      []framing.Frame
	runBytes int
	runAlone bool
}

const (
	// maxBatchFrames and maxBatchBytes bound one write, so that the clients of a shard take turns,
	// and bound what waits in memory, sealed, for each client that does not take a write at once.
	// 512 frames of at most two slices are the most that a writev takes (IOV_MAX is 1,024).
	maxBatchFrames = 512
	maxBatchBytes  = 64 << 10
	// maxBatchPlain bounds the bytes to compress for one write: each MiB takes 2 to 6 ms.
	maxBatchPlain = 1 << 20
)

func (b *batch) reset() {
	clear(b.slices)
	clear(b.run)
	*b = batch{slices: b.slices[:0], run: b.run[:0]}
}

func (b *batch) add(f framing.Frame) {
	if len(f.Head) > 0 {
		b.slices = append(b.slices, f.Head)
	}
	b.slices = append(b.slices, f.Body)
	b.bytes += f.Len()
	b.frames++
}

func (b *batch) addSlice(p []byte) {
	b.slices = append(b.slices, p)
	b.bytes += len(p)
}

func (b *batch) addChunk(c framing.GzipChunk, frames int) {
	b.addSlice(c.Bytes())
	b.plain += int(c.Plain.Len())
	b.frames += frames
}

func (b *batch) full() bool {
	return b.frames >= maxBatchFrames || b.bytes >= maxBatchBytes || b.plain >= maxBatchPlain
}

// add adds a frame that only this client is sent.
func (s *Subscription) add(b *batch, f framing.Frame) {
	if s.gzip == nil {
		b.add(f)
		return
	}
	c := framing.GzipStored(f)
	s.gzip.add(s.cursor, c)
	b.addChunk(c, 1)
}

// addRun adds a frame of the prelude, of object o. With gzip, the frame may wait for the others of its run:
// see endRun.
func (s *Subscription) addRun(b *batch, f framing.Frame, o *framing.Object) {
	f, own := s.opened(f)
	if own {
		s.add(b, f)
		return
	}
	if s.gzip == nil {
		b.add(f)
		return
	}
	b.run = append(b.run, f)
	b.runBytes += f.Len()
	b.runAlone = b.runAlone || o.Packed() && s.group.variant.Trim != framing.Lean
	if endsCompressedRun(b.runBytes, o.ResourceVersion) {
		s.endRun(b)
	}
}

func (s *Subscription) endRun(b *batch) {
	if len(b.run) == 0 {
		return
	}
	var c framing.GzipChunk
	if flusher := s.group.cache.flusher; b.runAlone { // nobody else has these frames
		c = flusher.metrics.compress(framing.Frame{}, b.run...)
	} else {
		c = flusher.runs.get(b.run)
	}
	s.gzip.add(s.cursor, c)
	b.addChunk(c, len(b.run))
	clear(b.run)
	b.run, b.runBytes, b.runAlone = b.run[:0], 0, false
}
