package lane

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/exchange"
	"github.com/watchfan/watchfan/proxy/reflector"
)

// Part is the part of a collection that one filter selects.
type Part struct {
	Filter    *fanout.Filter
	Selection reflector.Selection // the same, as upstream is asked for it
}

// key identifies the part. nil, the whole collection, has none.
func (p *Part) key() string {
	if p == nil {
		return ""
	}
	return p.Filter.Key()
}

const (
	// mostListed is the size, in bytes, up to which a whole collection is listed. Kube-apiserver
	// needs longer to answer a client's list of more than that than scouts need.
	mostListed = 256 << 20
	// A whole collection is listed rather than a part, because it serves all, if that takes up to
	// quickList, or if questions wait for different parts, up to quickLists. perListed is what a
	// list takes for each object, as long as none has been made.
	quickList  = 10 * time.Millisecond
	quickLists = 75 * time.Millisecond
	perListed  = 10 * time.Microsecond
	// Lists take at most 1/listShare of the time, to spare kube-apiserver. If the wait for the next
	// list and the list take listWait or more together, scouts are sooner.
	listShare = 4
	listWait  = time.Second
)

// startLists has a goroutine list what questions wait for, unless it does.
func (p *prover) startLists(timeout time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, _, ok := p.nextListLocked(); ok && !p.listing {
		p.listing = p.lane.lanes.Spawn(func(ctx context.Context) { p.listAll(ctx, timeout) })
	}
}

// listAll lists for as long as a question waits for something that may be listed soon.
func (p *prover) listAll(ctx context.Context, timeout time.Duration) {
	for {
		p.mu.Lock()
		part, wait, ok := p.nextListLocked()
		if !ok || ctx.Err() != nil {
			p.listing = false
			p.mu.Unlock()
			return
		}
		if wait > 0 {
			p.mu.Unlock()
			exchange.Sleep(ctx, wait)
			continue
		}
		waiting := p.waitingLocked(part)
		p.mu.Unlock()
		p.list(ctx, timeout, part, waiting)
	}
}

// list makes one proof by a list for all that wait for it. It gives up if they have all ended
// before. If the list fails, they wait for scouts.
func (p *prover) list(ctx context.Context, timeout time.Duration, part *Part, waiting []*proof) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	var watching sync.WaitGroup
	gaveUp := false
	watching.Go(func() {
		for _, pr := range waiting {
			select {
			case <-pr.donec:
			case <-ctx.Done():
				return
			}
		}
		gaveUp = true
		cancel()
	})
	began := time.Now()
	result, err := p.lane.proveByList(ctx, part)
	cancel()
	watching.Wait()
	took := time.Since(began)
	if gaveUp = gaveUp && err != nil; !gaveUp {
		p.lane.metrics.proved("list", err, took)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listAgain = began.Add(max(questionEvery, listShare*took))
	if part == nil {
		p.listTook = took
	}
	switch {
	case err == nil:
		p.proveLocked(waiting, result)
	case !gaveUp:
		p.listAgain = began.Add(took + listWait)
	}
}

// nextListLocked returns what is listed next, for the request that has waited for longest, and the
// time until then. ok is false if no list would be of use.
func (p *prover) nextListLocked() (part *Part, wait time.Duration, ok bool) {
	wait = time.Until(p.listAgain)
	if p.lane.lanes.spareLists || wait >= listWait {
		return nil, 0, false
	}
	var first *proof // that a list may serve
	s, several := p.lane.Cache.Stats(), false
	took := cmp.Or(p.listTook, time.Duration(s.Objects)*perListed)
	whole := s.Bytes <= mostListed && wait+took < listWait
	for _, q := range p.asked {
		for _, pr := range q.proofs {
			switch {
			case !q.seeking || pr.part == nil && !whole:
			case first == nil:
				first = pr
			case pr.part.key() != first.part.key():
				several = true
			}
		}
	}
	switch {
	case first == nil:
		return nil, 0, false
	case whole && (took <= quickList || several && took <= quickLists):
		return nil, wait, true
	}
	return first.part, wait, true
}

// waitingLocked returns the proofs that a list of part serves that begins now, and closes them. A
// list of the whole collection serves all.
func (p *prover) waitingLocked(part *Part) (waiting []*proof) {
	add := func(q *question) {
		for _, pr := range q.proofs {
			if part == nil || pr.part.key() == part.key() {
				pr.closed = true
				waiting = append(waiting, pr)
			}
		}
	}
	for _, q := range p.asked {
		add(q)
	}
	if p.next != nil {
		add(p.next)
	}
	return waiting
}

// proveLocked ends proofs, unless they have ended. A question that has no others is not asked, or
// waits no longer.
func (p *prover) proveLocked(proofs []*proof, result fanout.Proof) {
	for _, pr := range proofs {
		if !pr.ended {
			pr.end(result, nil)
		}
	}
	left := func(q *question) int {
		q.proofs = slices.DeleteFunc(q.proofs, func(pr *proof) bool { return pr.ended })
		return len(q.proofs)
	}
	for _, q := range p.asked {
		if left(q) == 0 && q.cancel != nil {
			q.cancel(errProved)
		}
	}
	if p.next != nil && left(p.next) == 0 {
		p.next = nil
	}
}

// proveByList lists the collection, or a part of it, and waits until the cache holds the same
// objects or is newer.
func (l *Lane) proveByList(ctx context.Context, part *Part) (fanout.Proof, error) {
	before, selection := l.Cache.Progress(), reflector.Selection{}
	if part != nil {
		selection = part.Selection
	}
	versions, asOf, err := l.collection.ListVersions(ctx, selection)
	if err != nil {
		return fanout.Proof{}, fmt.Errorf("prove freshness of %s: %w", l, err)
	}
	if err := l.reached(asOf, before); err != nil {
		return fanout.Proof{}, fmt.Errorf("prove freshness of %s: %w", l, err)
	}
	for {
		epoch := l.Cache.Epoch()
		snapshot := l.Cache.Snapshot()
		if then, ok := l.Cache.SnapshotAt(asOf); ok && !sameVersions(then, part, versions) {
			l.reflector.RequireRelist(asOf)
			return fanout.Proof{}, fmt.Errorf("prove freshness of %s: the cache differs from upstream at %d", l, asOf)
		}
		if snapshot.ResourceVersion >= asOf || sameVersions(snapshot, part, versions) {
			return fanout.Proof{Epoch: epoch, At: snapshot.ResourceVersion, AsOf: asOf, Part: part != nil}, nil
		}
		if err := l.Cache.WaitFor(ctx, snapshot.ResourceVersion+1); err != nil {
			l.breakLate(err)
			return fanout.Proof{}, fmt.Errorf("prove freshness of %s: at %d, upstream at %d: %w",
				l, snapshot.ResourceVersion, asOf, err)
		}
	}
}

// sameVersions reports whether a part of a snapshot has the same objects in the same versions.
func sameVersions(s fanout.Snapshot, part *Part, versions map[string]uint64) bool {
	same, n := true, 0
	compare := func(o *framing.Object) bool {
		n++
		same = versions[o.Key] == o.ResourceVersion
		return same
	}
	if part == nil {
		s.All(compare)
	} else {
		s.Ascend(part.Filter, "", compare)
	}
	return same && n == len(versions)
}
