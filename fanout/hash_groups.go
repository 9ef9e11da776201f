package fanout

import (
	"cmp"
	"iter"
	"math"
	"slices"
)

// hashGroups is the groups of a scope that are found by the hash of a field. The ends of all their
// ranges divide the hashes into segments. Each segment has the groups with a range that covers it.
// So the groups that a hash concerns are found with one binary search, and no other is looked at.
// The zero value has no groups.
//
//	group a   0 ───────── 7f…
//	group b               80… ───────── ff…
//	group c        40… ───────── bf…
//	segments  a   a,c     b,c    b
type hashGroups struct {
	segments []segment // in order; the first begins at 0
	entries  int       // of the groups of all segments together; 0 without groups
}

// segment is the hashes from first to where the next segment begins.
type segment struct {
	bucket
	first uint64
	ends  int // number of ranges that begin here, or end just before
}

const (
	// mostHashEntries bounds the memory of hashGroups. N parts that do not overlap have N entries.
	mostHashEntries = 8192
	// mostEntriesOfOne bounds the entries that one group adds, and so the time that it takes to join.
	// A part of a collection that is divided evenly adds one or two.
	mostEntriesOfOne = 1024
)

// at returns the groups that a hash concerns. There must be a group.
func (s *hashGroups) at(hash uint64) *bucket {
	i, found := s.search(hash)
	if !found {
		i--
	}
	return &s.segments[i].bucket
}

// search returns the index of the segment that begins at a hash, or of the one after it.
func (s *hashGroups) search(hash uint64) (i int, found bool) {
	return slices.BinarySearchFunc(s.segments, hash, func(s segment, hash uint64) int { return cmp.Compare(s.first, hash) })
}

// add takes a group in. It reports false, and changes nothing, if there is no room: such a group is
// asked about every change. The work is one pass over the segments, and mostEntriesOfOne at most.
func (s *hashGroups) add(g *group) bool {
	if s.segments == nil {
		s.segments = []segment{{}}
	}
	cuts := g.filter.part.cuts()
	more := s.growth(cuts, g.filter.part.ranges)
	if more > mostEntriesOfOne || s.entries+more > mostHashEntries {
		return false
	}
	s.entries += more
	s.cut(cuts)
	for i := range s.within(g.filter.part.ranges) {
		s.segments[i].groups = append(s.segments[i].groups, g)
	}
	return true
}

// cuts returns where the ranges begin, and where the hashes behind them begin, in order.
func (p *HashRanges) cuts() []uint64 {
	cuts := make([]uint64, 0, 2*len(p.ranges))
	for _, r := range p.ranges {
		if cuts = append(cuts, r.First); r.Last < math.MaxUint64 {
			cuts = append(cuts, r.Last+1)
		}
	}
	return cuts
}

// growth returns how many entries a group with these ranges would add: its own, and those of the
// groups whose segments it would divide.
func (s *hashGroups) growth(cuts []uint64, ranges []HashRange) (more int) {
	for _, hash := range cuts {
		if i, found := s.search(hash); !found {
			more += len(s.segments[i-1].groups)
		}
	}
	for _, r := range ranges {
		from, begins := s.search(r.First)
		to, ends := s.search(r.Last)
		more += to - from // segments that begin in the range, but for one at its last hash
		if ends {
			more++
		}
		if !begins {
			more++ // will begin with the range
		}
	}
	return more
}

// cut makes segments begin at the cuts.
func (s *hashGroups) cut(cuts []uint64) {
	all := make([]segment, 0, len(s.segments)+len(cuts))
	rest := s.segments
	for _, hash := range cuts {
		for len(rest) > 0 && rest[0].first <= hash {
			all, rest = append(all, rest[0]), rest[1:]
		}
		if last := &all[len(all)-1]; last.first < hash {
			all = append(all, segment{bucket: bucket{groups: slices.Clone(last.groups)}, first: hash})
		}
		all[len(all)-1].ends++
	}
	s.segments = append(all, rest...)
}

// within yields the indexes of the segments in the ranges, at whose ends segments begin.
func (s *hashGroups) within(ranges []HashRange) iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, r := range ranges {
			i, _ := s.search(r.First)
			for ; i < len(s.segments) && s.segments[i].first <= r.Last; i++ {
				if !yield(i) {
					return
				}
			}
		}
	}
}

// remove takes a group out. A segment with no range's end at its beginning has the same groups as the
// one before, and goes.
func (s *hashGroups) remove(g *group) {
	for i := range s.within(g.filter.part.ranges) {
		s.segments[i].leave(g)
		s.entries--
	}
	for _, hash := range g.filter.part.cuts() {
		i, _ := s.search(hash)
		s.segments[i].ends--
	}
	s.segments = slices.DeleteFunc(s.segments, func(x segment) bool {
		gone := x.ends == 0 && x.first > 0
		if gone {
			s.entries -= len(x.groups)
		}
		return gone
	})
}
