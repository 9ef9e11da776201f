package fanout

import (
	"slices"
	"sync"
	"time"

	"github.com/watchfan/watchfan/framing"
)

// compressedRuns keeps compressed runs of initial events and of replays. Clients that are sent the
// same frames share a run, whatever their filters and snapshots. Where a run ends depends only on
// its own frames. So clients that join while objects change share all runs in which nothing has
// changed.
//
// Its methods may be called from any goroutine.
//
// A run is found by the addresses of all its frames, without an allocation. Many runs begin with the same
// frame.
type compressedRuns struct {
	metrics *Metrics

	mu      sync.Mutex
	byFirst map[*byte][]*compressedRun
	bytes   int
	swept   time.Time
}

// compressedRun is some consecutive frames, compressed once.
type compressedRun struct {
	starts []*byte // where the frames start, which identifies them
	compressedOnce

	// Guarded by compressedRuns.mu.
	size int // 0 until compressed
	used time.Time
}

const (
	// A run has minRun to maxRun bytes. Longer runs compress better, because the start of a run
	// can't refer to earlier bytes. With shorter runs, less has to be compressed again when an
	// object changes.
	minRun = 64 << 10
	maxRun = 256 << 10

	// maxRuns bounds the compressed bytes that are kept. runFor is how long a run is kept that
	// nobody asks for.
	maxRuns = 64 << 20
	runFor  = time.Minute
)

// endsCompressedRun reports whether a run of this many bytes ends with the object at
// resourceVersion rv. Beyond minRun, it ends with one object in sixteen.
func endsCompressedRun(bytes int, rv uint64) bool {
	const mixed = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio
	return bytes >= maxRun || bytes >= minRun && rv*mixed>>60 == 0
}

// get returns frames as one chunk. It keeps the frames and not the slice.
func (r *compressedRuns) get(frames []framing.Frame) framing.GzipChunk {
	x := r.find(frames)
	x.once.Do(func() {
		x.chunk = r.metrics.compress(framing.Frame{}, frames...)
		r.account(x)
	})
	return x.chunk
}

func (r *compressedRuns) find(frames []framing.Frame) *compressedRun {
	now := time.Now()
	first := frames[0].Start()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.byFirst[first] {
		if slices.EqualFunc(x.starts, frames, func(s *byte, f framing.Frame) bool { return s == f.Start() }) {
			x.used = now
			return x
		}
	}
	x := &compressedRun{starts: make([]*byte, len(frames)), used: now}
	for i := range frames {
		x.starts[i] = frames[i].Start()
	}
	r.byFirst[first] = append(r.byFirst[first], x)
	return x
}

// account adds a compressed run to the total, and drops the least recently used runs until the
// others fit.
func (r *compressedRuns) account(x *compressedRun) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x.size = len(x.chunk.Bytes())
	r.bytes += x.size
	for r.bytes > maxRuns {
		r.forgetLocked(slices.MinFunc(r.allLocked(), func(a, b *compressedRun) int { return a.used.Compare(b.used) }))
	}
}

// allLocked returns the runs that have been compressed.
func (r *compressedRuns) allLocked() (all []*compressedRun) {
	for _, same := range r.byFirst {
		for _, x := range same {
			if x.size > 0 {
				all = append(all, x)
			}
		}
	}
	return all
}

func (r *compressedRuns) forgetLocked(x *compressedRun) {
	r.bytes -= x.size
	first := x.starts[0]
	r.byFirst[first] = slices.DeleteFunc(r.byFirst[first], func(y *compressedRun) bool { return x == y })
	if len(r.byFirst[first]) == 0 {
		delete(r.byFirst, first)
	}
}

// sweep drops the runs that nobody has asked for during runFor. It looks for them once in runFor/8.
func (r *compressedRuns) sweep(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.swept) < runFor/8 {
		return
	}
	r.swept = now
	for _, x := range r.allLocked() {
		if now.Sub(x.used) > runFor {
			r.forgetLocked(x)
		}
	}
}
