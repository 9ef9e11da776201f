package fanout

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/btree"

	"github.com/watchfan/watchfan/framing"
)

// sharedSearch is the search for what a filter selects that no index answers for, such as one with
// only != or exists. All subscriptions and lists that need the result at about the same time share
// it. Each subscription spends its turns on the search until the search has ended. So it does not
// matter when one of them ends, or whether its client reads. If a subscription needs the result at
// another instant, the changes in between are applied to a copy.
type sharedSearch struct {
	filter *Filter
	used   MonotonicTime // guarded by sharedSearches.mu

	mu     sync.Mutex
	in     *instant // nil once the search has ended
	after  string   // key of the last object that was looked at
	result          // so far
	moment          // of the result
}

// result is what a search has found. It is kept only if it is a small part of the objects. A search
// with a larger result takes much less time than sending what it finds, and each subscription makes
// its own.
type result struct {
	found *btree.BTreeG[*framing.Object] // nil if there are more than most
	most  int
}

const (
	// A result is kept if it has at most smallResult objects, or at most one in smallShare of all.
	smallResult = 1024
	smallShare  = 8
	// mostSearches bounds the results that a cache keeps. searchFor is how long one is kept that
	// nobody asks for.
	mostSearches = 16
	searchFor    = time.Minute
	// foundBytes is the memory of an object in a result: a pointer in nodes that are about half full.
	foundBytes = 16
)

func newResult(in *instant) result {
	return result{found: newTree(), most: max(smallResult, in.tree.Len()/smallShare)}
}

func (r *result) add(o *framing.Object) {
	if r.found == nil {
		return
	}
	if r.found.ReplaceOrInsert(o); r.found.Len() > r.most {
		r.found = nil
	}
}

// advance continues the search until it ends or b is spent, and reports whether it has ended.
func (s *sharedSearch) advance(b *searchBudget) (ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.in == nil {
		return true
	}
	ended = true
	alone := search{in: s.in, filter: s.filter}
	alone.ascend(s.after, func(o *framing.Object, selected bool) bool {
		if b.spent() {
			ended = false
			return false
		}
		b.spend(s.filter.cost)
		s.after = o.Key
		if selected {
			s.add(o)
		}
		return s.found != nil
	})
	if ended {
		s.in = nil
	}
	return ended
}

// set sets the result of a whole search in another instant, if it is needed.
func (s *sharedSearch) set(in *instant, r result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.in != nil {
		s.in, s.result, s.moment = nil, r, in.moment
	}
}

// foundAt returns what the filter selects in an instant; nil if that is not known.
func (s *sharedSearch) foundAt(in *instant) *btree.BTreeG[*framing.Object] {
	s.mu.Lock()
	if s.in != nil || s.found == nil {
		s.mu.Unlock()
		return nil
	}
	found, then := s.found.Clone(), s.moment
	s.mu.Unlock()
	changes, ok := in.cache.changesBetween(in.moment, then)
	if !ok {
		return nil
	}
	apply := undoAll
	if in.number > then.number {
		apply = applyAll
	}
	apply(changes, func(prev, cur *framing.Object) {
		if cur != nil && s.filter.Match(cur) {
			found.ReplaceOrInsert(cur)
		} else if prev != nil {
			found.Delete(prev)
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(changes) > 0 && s.lineage == in.lineage && s.number < in.number {
		s.found, s.number = found.Clone(), in.number
	}
	return found
}

// serves reports whether the result may serve an instant.
func (s *sharedSearch) serves(in *instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.near(in.moment)
}

func (s *sharedSearch) bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found == nil {
		return 0
	}
	return int64(s.found.Len()) * foundBytes
}

// sharedSearches is the shared searches of a cache by the keys of their filters.
type sharedSearches struct {
	mu       sync.Mutex
	byFilter map[string]*sharedSearch
}

// of returns the shared search of a filter; nil if in has none.
func (ss *sharedSearches) of(in *instant, f *Filter) *sharedSearch {
	if in.cache.indexer == nil || in.lineage == 0 || in.tree.Len() < leastIndexed {
		return nil
	}
	now := MonotonicNow()
	ss.mu.Lock()
	defer ss.mu.Unlock()
	before := ss.byFilter[f.key]
	if before != nil && before.serves(in) {
		before.used = now
		return before
	}
	if before == nil && len(ss.byFilter) == mostSearches {
		oldest := slices.MinFunc(slices.Collect(maps.Values(ss.byFilter)), func(a, b *sharedSearch) int {
			return cmp.Compare(a.used, b.used)
		})
		delete(ss.byFilter, oldest.filter.key)
	}
	s := &sharedSearch{filter: f, used: now, in: in, result: newResult(in), moment: in.moment}
	ss.byFilter[f.key] = s
	return s
}

// sweep drops the results that were last used before a time.
func (ss *sharedSearches) sweep(before MonotonicTime) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	maps.DeleteFunc(ss.byFilter, func(_ string, s *sharedSearch) bool { return s.used < before })
}

func (ss *sharedSearches) bytes() (n int64) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for _, s := range ss.byFilter {
		n += s.bytes()
	}
	return n
}
