package fanout

import (
	"cmp"
	"slices"
	"time"

	"github.com/watchfan/watchfan/framing"
)

// Keeper is a [Sink] that answers for the memory that its subscription keeps because its client does
// not read. Kept is given the bytes that it keeps now, 0 for none. It reports false if those are too
// many; then the subscription is evicted. Kept must not wait.
type Keeper interface {
	Kept(bytes int64) (ok bool)
}

const (
	// countEvery is the time between two counts of what parked subscriptions keep. What is kept for
	// less is not counted.
	countEvery = time.Second
	// mostStalled is how long a client may take for one batch of its initial events, or after its
	// connection has reached its maximum age.
	mostStalled = time.Minute
)

// countParked counts what the shard's subscriptions keep whose clients do not read, and evicts those
// that keep too much, or do not go on with their initial events.
//
// Initial events keep the versions of that time. A subscription whose filter selects a part of its
// collection soon keeps that part alone; see settle. Only versions that the cache has given up since
// are held for the client, and subscriptions that began one after another keep most of them
// together. So the bytes that were given up between two of their beginnings count for all that began
// before, in equal shares.
func (sh *shard) countParked() {
	if sh.sweeps++; sh.sweeps%int(countEvery/sweepEvery) != 0 {
		return
	}
	var held []*Subscription
	budget := newSearchBudget()
	for i := len(sh.subs) - 1; i >= 0; i-- { // evict may remove the last one looked at
		s := sh.subs[i]
		parkedFor := sh.now - s.parkedAt
		switch {
		case s.ends():
		case s.prelude != nil && s.prelude.initial:
			if s.blocked && parkedFor >= MonotonicTime(mostStalled) {
				sh.evict(s)
			} else if sh.now-s.prelude.since >= MonotonicTime(countEvery) {
				s.prelude.settle(&budget)
				held = append(held, s)
			}
		case s.blocked && parkedFor >= MonotonicTime(countEvery):
			sh.keep(s, maxBatchBytes)
		case s.kept && !s.blocked:
			sh.keep(s, 0)
		}
	}
	sh.share(held)
}

// share divides what caches have given up among the subscriptions that keep it.
func (sh *shard) share(held []*Subscription) {
	byCache := make(map[*Cache][]*Subscription)
	for _, s := range held {
		byCache[s.group.cache] = append(byCache[s.group.cache], s)
	}
	for cache, subs := range byCache {
		slices.SortFunc(subs, func(a, b *Subscription) int { return cmp.Compare(a.prelude.base, b.prelude.base) })
		until, shares := cache.givenUp.Load(), make([]uint64, len(subs))
		share := uint64(0)
		for i := len(subs) - 1; i >= 0; i-- { // those before it keep what it keeps, too
			share += (until - subs[i].prelude.base) / uint64(i+1)
			until = subs[i].prelude.base
			shares[i] = share
		}
		for i, s := range subs {
			sh.keep(s, maxBatchBytes+int64(s.prelude.keeps(shares[i])))
		}
	}
}

func (sh *shard) keep(s *Subscription, bytes int64) {
	k, ok := s.sink.(Keeper)
	if !ok {
		return
	}
	s.kept = bytes > 0
	if !k.Kept(bytes) && bytes > 0 {
		sh.evict(s)
	}
}

// evict ends a subscription that is too far behind, or keeps too much.
func (sh *shard) evict(s *Subscription) {
	if e, ok := s.sink.(Evictee); ok {
		e.Evicted(s.state())
	}
	s.endAs(&Ending{Reason: Evicted})
	s.release()
	sh.serve(s)
}

// settle replaces the collection of that time by the objects that are still to be sent, if the
// filter selects only a part. It goes on in the next turn when the budget is spent.
func (p *prelude) settle(budget *searchBudget) {
	x := p.search
	if x == nil || !x.filter.partial() || budget.spent() {
		return
	}
	x.prepare()
	whole := true
	x.ascend(max(p.settled, p.after), func(o *framing.Object, selected bool) bool {
		if budget.spent() {
			whole = false
			return false
		}
		budget.spend(x.filter.cost)
		if p.settled = o.Key; selected {
			p.rest = append(p.rest, o)
			p.restBytes += uint64(o.Size())
		}
		return true
	})
	if whole {
		p.search = nil
	}
}

// keeps returns how many bytes of a share of what was given up the prelude can keep.
func (p *prelude) keeps(share uint64) uint64 {
	if p.search != nil {
		return share
	}
	return min(share, p.restBytes)
}

// ascend calls visit for each object that is still to be looked at, until visit returns false.
func (p *prelude) ascend(visit func(o *framing.Object, selected bool) bool) {
	if p.search != nil {
		p.search.ascend(p.after, visit)
		return
	}
	for i, o := range p.rest {
		if o.Key > p.after && !visit(o, true) {
			clear(p.rest[:i])
			p.rest = p.rest[i:]
			return
		}
	}
}
