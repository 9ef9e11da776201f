package fanout

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/framing"
)

// The tests' access to the inside of the package.

const (
	BookmarkEvery    = bookmarkEvery
	SweepEvery       = sweepEvery
	QuietFor         = quietFor
	LastBytesTimeout = lastBytesTimeout
	MaxBatchFrames   = maxBatchFrames
	MaxBatchBytes    = maxBatchBytes
	Window           = window
	RunFor           = runFor
	MaxRuns          = maxRuns
	MaxSearchWork    = maxSearchWork
	MaxScopeCost     = maxScopeCost
	MaxBatchPlain    = maxBatchPlain
	InspectAtOnce    = inspectAtOnce
	MaxDueBytes      = maxDueBytes
	MostGaps         = mostGaps
	WastedFor        = wastedFor
	MaxIndexes       = maxIndexes
	IndexIdleFor     = indexIdleFor
	EntryBytes       = entryBytes
	KeepIndexFor     = keepIndexFor
	PackAfter        = packAfter
	MostStalled      = mostStalled
	SweepIndexes     = sweepIndexes
)

// Change is one change, as the history keeps it.
type Change = change

// FrameFor returns the frame of the change for a filter's clients with a Trim, or with none.
func (e *change) FrameFor(f *Filter, t *framing.Trim) (framing.Frame, bool) {
	frame, ok, _ := e.frameFor(f, t)
	return frame, ok
}

// Index is the index of groups, with the groups by filter.
type Index struct {
	index
	groups map[*Filter]*group
}

// Add reports whether the filter was accepted.
func (x *Index) Add(f *Filter) bool {
	if x.groups == nil {
		x.groups = make(map[*Filter]*group)
	}
	g := newGroup(f, 0)
	if !x.add(g) {
		return false
	}
	x.groups[f] = g
	return true
}

func (x *Index) Remove(f *Filter) {
	x.remove(x.groups[f])
	delete(x.groups, f)
}

// Concerned counts how often the index visits each filter.
func (x *Index) Concerned(e *change) map[*Filter]int {
	visits := make(map[*Filter]int)
	x.concerned(e, func(g *group) { visits[g.filter]++ })
	return visits
}

func (x *Index) Empty() bool { return len(x.scopes) == 0 }

// Cost is the most that one version of an object can cost within a namespace.
func (x *Index) Cost(namespace string) int {
	if sc := x.scopes[namespace]; sc != nil {
		return sc.cost
	}
	return 0
}

// Cost is the cost of evaluating the filter.
func (f *Filter) Cost() int { return f.cost }

// Size is the filter's memory in bytes.
func (f *Filter) Size() int { return f.size }

// Adopt makes a Flusher that does not run own its subscriptions.
func (f *Flusher) Adopt() {
	for _, sh := range f.shards {
		for _, s := range sh.posted {
			sh.takeUp(s)
		}
		sh.posted = nil
	}
}

// Answer makes a Flusher that does not run answer its inspections, and returns their number.
func (f *Flusher) Answer() (n int) {
	for _, sh := range f.shards {
		asked := sh.calls
		sh.calls = nil
		for _, answer := range asked {
			answer()
		}
		n += len(asked)
	}
	return n
}

// Appended is the resourceVersion of the last frame in the list of a subscription's group.
func (s *Subscription) Appended() uint64 { return s.group.tail.Load().resourceVersion }

// Step takes a frame, if there is one, and returns how many are left. It replaces a shard: the
// subscription must not have one.
func (s *Subscription) Step() (left uint64) {
	if next := s.cursor.next.Load(); next != nil {
		s.cursor = next
	}
	left, _ = s.behind()
	return left
}

// Fill fills batches until nothing is left, and returns what would be written, the number of its
// frames, and that of the batches. It replaces a shard: the subscription must not have one.
func (s *Subscription) Fill() (wire []byte, frames, batches int) {
	for more := true; more; batches++ {
		var b batch
		more, _ = s.fill(&b, make([]numbered, 0, replayStep), math.MaxUint64)
		wire, frames = append(wire, slices.Concat(b.slices...)...), frames+b.frames
	}
	return wire, frames, batches
}

// Replay is the changes that a replay for f looks at after a resourceVersion.
func (c *Cache) Replay(f *Filter, rv uint64) (n int) {
	for at := c.history.seek(rv); ; {
		changes, ok := c.replay(nil, f, at, math.MaxUint64)
		if len(changes) == 0 || !ok {
			return n
		}
		n += len(changes)
		at = changes[len(changes)-1].number + 1
	}
}

// Counted reports whether the list of a subscription's group keeps checksums for members that take
// gzip.
func (s *Subscription) Counted() bool { return s.group.tail.Load().gzip != nil }

// OnAsk makes the cache call f with each filter that the writer asks about a change.
func (c *Cache) OnAsk(f func(*Filter)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.index.onAsk = func(g *group) { f(g.filter) }
}

// Runs are the compressed runs of a Flusher.
type Runs struct{ compressedRuns }

func NewRuns() *Runs {
	return &Runs{compressedRuns{metrics: NewMetrics(metrics.NewSet()), byFirst: make(map[*byte][]*compressedRun)}}
}

func (r *Runs) Get(frames ...framing.Frame) framing.GzipChunk { return r.get(frames) }
func (r *Runs) Bytes() int                                    { return r.bytes }

// RunsKept returns how many compressed runs are kept.
func (f *Flusher) RunsKept() (n int) {
	f.runs.mu.Lock()
	defer f.runs.mu.Unlock()
	for _, same := range f.runs.byFirst {
		n += len(same)
	}
	return n
}

// attributeOf returns the name, the first field of the tests, or a label.
func attributeOf(key string) attribute {
	switch key {
	case "metadata.name":
		return attribute{slot: slotName}
	case "spec.node":
		return attribute{}
	}
	return attribute{slot: slotLabel, label: key}
}

// BuildIndex builds an index. rest is called after each step.
func (c *Cache) BuildIndex(key string, rest func() bool) { c.buildIndex(attributeOf(key), nil, rest) }

// BuildIndexOf builds the index of what a filter selects, if no other may serve it.
func (c *Cache) BuildIndexOf(f *Filter) {
	if p := f.searched(); len(p) == 1 && p[0].attribute.slot == slotFilter {
		c.buildIndex(p[0].attribute, f, func() bool { return true })
	}
}

// DropIndexes gives up all indexes.
func (c *Cache) DropIndexes() { c.shedIndexes() }

// Demand is the number of indexes that are wanted and not built yet, and of attributes whose demand
// is known.
func (c *Cache) Demand() (wanted, known int) {
	c.demand.mu.Lock()
	defer c.demand.mu.Unlock()
	return len(c.demand.wanted), len(c.demand.missed)
}

// BuildWanted builds the wanted indexes of all caches.
func (x *Indexer) BuildWanted() { x.buildWanted(func() bool { return !x.pauses() }) }

// SweepAt gives up what is unused at a time.
func (x *Indexer) SweepAt(now time.Time) { x.sweep(MonotonicOf(now)) }

// Pack packs the objects of all caches, or unpacks them, as it would at a time.
func (x *Indexer) Pack(now time.Time) { x.pack(MonotonicOf(now), func() bool { return true }) }

// Repack packs all objects, or unpacks them.
func (c *Cache) Repack(pack bool) {
	if pack {
		c.beginPacking()
	} else {
		c.mu.Lock()
		c.packing = nil
		c.mu.Unlock()
	}
	for from, more := "", true; more; {
		from, more = c.packStep(from)
	}
}

// Search is a search of a snapshot in turns, as a subscription makes it.
type Search struct {
	search *search
	after  string
}

func NewSearch(s Snapshot, f *Filter) *Search {
	return &Search{search: &search{in: s.instant, filter: f}}
}

// Turn looks at about as many objects as work says. It returns those that are selected, and whether
// the search has ended.
func (s *Search) Turn(work int) (objects []*framing.Object, done bool) {
	budget := searchBudget{work: maxSearchWork - work, until: time.Now().Add(time.Hour)}
	s.search.prepare()
	done = true
	s.search.ascend(s.after, func(o *framing.Object, selected bool) bool {
		if budget.spent() {
			done = false
			return false
		}
		budget.spend(0)
		s.after = o.Key
		if selected {
			objects = append(objects, o)
		}
		return true
	})
	return objects, done
}

// By is what the search goes over: "key", "index" of values, "filter", or "all".
func (s *Search) By() string {
	if !s.search.planned {
		s.search.plan()
	}
	switch x := s.search; {
	case x.key != "":
		return "key"
	case x.index != nil && x.index.filter != nil:
		return "filter"
	case x.index != nil:
		return "index"
	}
	return "all"
}

// Indexes is the number of indexes of the snapshot. It panics if one does not have the snapshot's
// objects.
func (s Snapshot) Indexes() int {
	for _, x := range s.indexes {
		want := 0
		for o := range s.All {
			if v, ok := x.of(o); ok {
				want++
				if e, ok := x.tree.Get(entry{v, o}); !ok || e.object != o {
					panic(fmt.Sprintf("%+v: %s with %q is not there", x.attribute, o.Key, v))
				}
			}
		}
		if x.tree.Len() != want {
			panic(fmt.Sprintf("%+v: %d objects, want %d", x.attribute, x.tree.Len(), want))
		}
	}
	return len(s.indexes)
}

// HasIndex reports whether the snapshot has the index of a label.
func (s Snapshot) HasIndex(label string) bool { return s.index(attributeOf(label)) != nil }

// Shard returns the index of the shard that serves the carrier's subscriptions.
func (c *Carrier) Shard() int { return c.shard.Load().index }
