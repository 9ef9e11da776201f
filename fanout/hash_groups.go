package fanout

import (
	"cmp"
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

// mostHashEntries bounds the memory of hashGroups, and the time that a group takes to join: 1 ms. N
// parts that do not overlap have N entries. A group for which there is no room is asked about every
// change.
const mostHashEntries = 8192

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

// add takes a group in. It reports false, and takes nothing in, if there is no room.
func (s *hashGroups) add(g *group) bool {
	if s.segments == nil {
		s.segments = []segment{{}}
	}
	for _, r := range g.filter.part.ranges {
		i := s.begin(r.First)
		if r.Last < math.MaxUint64 {
			s.begin(r.Last + 1)
		}
		for ; i < len(s.segments) && s.segments[i].first <= r.Last; i++ {
			s.segments[i].groups = append(s.segments[i].groups, g)
			s.entries++
		}
	}
	if s.entries > mostHashEntries {
		s.remove(g)
		return false
	}
	return true
}

// begin makes a segment begin at a hash, for one more range, and returns its index.
func (s *hashGroups) begin(hash uint64) int {
	i, found := s.search(hash)
	if !found {
		before := s.segments[i-1].groups
		s.segments = slices.Insert(s.segments, i, segment{bucket: bucket{groups: slices.Clone(before)}, first: hash})
		s.entries += len(before)
	}
	s.segments[i].ends++
	return i
}

// remove takes a group out.
func (s *hashGroups) remove(g *group) {
	for _, r := range g.filter.part.ranges {
		i, _ := s.search(r.First)
		for ; i < len(s.segments) && s.segments[i].first <= r.Last; i++ {
			s.segments[i].leave(g)
			s.entries--
		}
		s.end(r.First)
		if r.Last < math.MaxUint64 {
			s.end(r.Last + 1)
		}
	}
}

// end takes back what begin has done for one range. A segment with no range's end at its beginning
// has the same groups as the one before.
func (s *hashGroups) end(hash uint64) {
	i, _ := s.search(hash)
	if s.segments[i].ends--; s.segments[i].ends == 0 && i > 0 {
		s.entries -= len(s.segments[i].groups)
		s.segments = slices.Delete(s.segments, i, i+1)
	}
}
