package fanout

import (
	"sync"
	"time"

	"github.com/google/btree"

	"github.com/watchfan/watchfan/framing"
)

// sharedSearch is the search for what a filter selects that no index answers for, such as one with
// only != or exists. All subscriptions and lists that need the result at about the same time share
// it. Each subscription spends its turns on the search until the search is complete. So it does not
// matter when one of them ends, or whether its client reads. If a subscription needs the result at
// another instant, the changes in between are applied to a copy.
//
// The result is kept only if it is a small part of the objects. A search with a larger result takes
// much less time than sending what it finds, and each subscription makes its own.
type sharedSearch struct {
	filter *Filter
	cache  *Cache

	// used is guarded by sharedSearches.mu.
	used MonotonicTime

	mu     sync.Mutex
	in     *instant // nil once the search has ended
	after  string   // key of the last object that was looked at
	result result

	// What was found is the state at this place in the cache's changes; see type instant.
	lineage, number uint64
}

// searchState says how far a shared search is.
type searchState uint8

const (
	searching searchState = iota
	complete
	tooLarge // its result is too large to be kept
)

// result is what a search has found so far.
type result struct {
	state searchState
	most  int                            // objects that may be found
	found *btree.BTreeG[*framing.Object] // nil if tooLarge
}

const (
	// A result is kept if it has at most smallResult objects, or at most one in smallShare of all.
	smallResult = 1024
	smallShare  = 8
	// mostApplied bounds the changes that are applied to a result, or to an index, for another
	// instant.
	mostApplied = 1024
	// mostSearches bounds the results that a cache keeps. searchFor is how long one is kept that
	// nobody asks for.
	mostSearches = 16
	searchFor    = time.Minute
)

func newResult(in *instant) *result {
	return &result{found: newTree(), most: max(smallResult, in.tree.Len()/smallShare)}
}

// add adds an object that the filter selects.
func (r *result) add(o *framing.Object) {
	if r.state == tooLarge {
		return
	}
	if r.found.ReplaceOrInsert(o); r.found.Len() > r.most {
		r.state, r.found = tooLarge, nil
	}
}

// end notes that all objects were looked at.
func (r *result) end() {
	if r.state == searching {
		r.state = complete
	}
}

// advance continues the search until it ends or b is spent.
func (s *sharedSearch) advance(b *searchBudget) searchState {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.result.state != searching {
		return s.result.state
	}
	ended := true
	alone := search{in: s.in, filter: s.filter}
	alone.ascend(s.after, func(o *framing.Object, selected bool) bool {
		if b.spent() {
			ended = false
			return false
		}
		b.spend(s.filter.cost)
		s.after = o.Key
		if selected {
			s.result.add(o)
		}
		return s.result.state == searching
	})
	if ended {
		s.result.end()
		s.in = nil
	}
	return s.result.state
}

// set sets the result of a whole search in another instant, if it is needed.
func (s *sharedSearch) set(in *instant, r *result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.result.state == searching {
		r.end()
		s.result, s.lineage, s.number, s.in = *r, in.lineage, in.number, nil
	}
}

// foundAt returns what the filter selects in an instant; nil if that is not known.
func (s *sharedSearch) foundAt(in *instant) *btree.BTreeG[*framing.Object] {
	s.mu.Lock()
	if s.result.state != complete {
		s.mu.Unlock()
		return nil
	}
	found, lineage, number := s.result.found.Clone(), s.lineage, s.number
	s.mu.Unlock()
	changes, ok := s.cache.changesBetween(in, lineage, number)
	if !ok {
		return nil
	}
	applyAll(changes, in.number > number, func(prev, cur *framing.Object) {
		if cur != nil && s.filter.Match(cur) {
			found.ReplaceOrInsert(cur)
		} else if prev != nil {
			found.Delete(prev)
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(changes) > 0 && s.lineage == in.lineage && s.number < in.number {
		s.result.found, s.number = found.Clone(), in.number
	}
	return found
}

// near reports whether the result may serve an instant.
func (s *sharedSearch) near(in *instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lineage == in.lineage && max(s.number, in.number)-min(s.number, in.number) <= mostApplied
}

// sharedSearches is the shared searches of a cache by the keys of their filters.
type sharedSearches struct {
	mu       sync.Mutex
	byFilter map[string]*sharedSearch
}

// of returns the shared search of a filter; nil if in has none.
func (ss *sharedSearches) of(in *instant, f *Filter) *sharedSearch {
	c := in.cache
	if c.indexer == nil || in.lineage == 0 || in.tree.Len() < leastIndexed {
		return nil
	}
	now := MonotonicNow()
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if s := ss.byFilter[f.key]; s != nil && s.near(in) {
		s.used = now
		return s
	}
	s := &sharedSearch{
		filter: f, cache: c, used: now, in: in, result: *newResult(in), lineage: in.lineage, number: in.number,
	}
	if ss.byFilter == nil {
		ss.byFilter = make(map[string]*sharedSearch)
	}
	if ss.byFilter[f.key] == nil && len(ss.byFilter) == mostSearches {
		ss.dropOldestLocked()
	}
	ss.byFilter[f.key] = s
	c.indexer.note(c)
	return s
}

func (ss *sharedSearches) dropOldestLocked() {
	var oldest *sharedSearch
	for _, s := range ss.byFilter {
		if oldest == nil || s.used < oldest.used {
			oldest = s
		}
	}
	delete(ss.byFilter, oldest.filter.key)
}

// sweep drops the results that were last used before a time, and reports whether any are left.
func (ss *sharedSearches) sweep(before MonotonicTime) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for key, s := range ss.byFilter {
		if s.used < before {
			delete(ss.byFilter, key)
		}
	}
	return len(ss.byFilter) > 0
}

// bytes returns the memory of the results.
func (ss *sharedSearches) bytes() (n int64) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for _, s := range ss.byFilter {
		s.mu.Lock()
		if s.result.found != nil {
			n += int64(s.result.found.Len()) * foundBytes
		}
		s.mu.Unlock()
	}
	return n
}

// foundBytes is the memory of an object in a result: a pointer in nodes that are about half full.
const foundBytes = 16
