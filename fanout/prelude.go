package fanout

import "github.com/watchfan/watchfan/framing"

// prelude is what a subscription sends before its group's list.
type prelude struct {
	initial     bool    // initial events: those that search finds, or rest; otherwise a replay
	search      *search // nil once rest is set; see settle
	after       string  // key of the last object that was looked at
	endBookmark bool    // sent after them

	// Of initial events; see countParked.
	since     MonotonicTime // when the prelude began
	base      uint64        // Cache.givenUp at that time
	settled   string        // key of the last object that settle has looked at
	rest      []*framing.Object
	restBytes uint64 // of rest when it was set

	// Of a replay: the changes of the history from the number next on, before the number end.
	next, end uint64
}

// fillSnapshot adds initial events and reports whether those were the last.
func (s *Subscription) fillSnapshot(b *batch) (done bool) {
	done = true
	budget := newSearchBudget()
	p := s.prelude
	if p.search != nil {
		p.search.prepare()
	}
	p.ascend(func(o *framing.Object, selected bool) bool {
		if b.full() || budget.spent() {
			done = false
			return false
		}
		budget.spend(s.group.filter.cost)
		p.after = o.Key
		if selected {
			s.addRun(b, o.TrimmedFrame(s.group.variant.Trim, framing.Added), o)
		}
		return true
	})
	s.endRun(b)
	if !done {
		return false
	}
	if form := s.group.cache.bookmarkForm.Load(); p.endBookmark && form != nil && form.HasEnd() {
		s.add(b, form.Frame(s.startVersion, true))
	}
	return true
}

// fillReplay adds changes from the history and reports whether those were the last. ok is false if it
// adds nothing because the history has forgotten some of them.
func (s *Subscription) fillReplay(b *batch, scratch []numbered) (done, ok bool) {
	defer s.endRun(b)
	budget := newSearchBudget()
	looked, missed := 0, 0
	defer func() { s.group.cache.noteMissedChanges(s.group.filter, looked, missed) }()
	over := func() bool { return b.full() || budget.spent() }
	for !over() {
		changes, ok := s.group.cache.replay(scratch[:0], s.group.filter, s.prelude.next, s.prelude.end)
		if !ok {
			added := b.frames > 0 || len(b.run) > 0
			return false, added // what has been added is sent first, and the next batch comes to this again
		}
		if len(changes) == 0 {
			return true, true
		}
		for _, e := range changes {
			if over() {
				break // it is read again next time
			}
			budget.spend(2 * s.group.filter.cost) // the version before, and this one
			s.prelude.next = e.number + 1
			looked++
			if f, ok, _ := e.frameFor(s.group.filter, s.group.variant.Trim); ok {
				s.addRun(b, f, e.Object)
				s.startVersion = e.sentVersion()
			} else {
				missed++
			}
		}
		clear(changes)
	}
	return false, true
}

// replayStep is how many changes are read from the history at once.
const replayStep = 64

// replay appends to dst the next changes from a number on that may concern f.
func (c *Cache) replay(dst []numbered, f *Filter, from, end uint64) ([]numbered, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.history.read(c.history.search(f), dst, from, end, replayStep)
}
