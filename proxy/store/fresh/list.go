package fresh

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const (
	// mostListed is the size, in bytes, up to which a collection is listed. Kube-apiserver needs
	// longer to answer a client's list of more than that than scouts need.
	mostListed = 256 << 20
	// A list is expected to take as long as the last one, for listBelieved after that. Then
	// kube-apiserver may be faster, and perListed for each object is expected, as before the first.
	listBelieved = time.Minute
	perListed    = 10 * time.Microsecond
	// listedPerPart is how many objects' metadata cost kube-apiserver as much as a list of a part: 7 µs each. A list
	// of a part takes 0.25 to 0.6 ms, and a part, as the pods of a node, has about 50.
	listedPerPart = 100
	// A list that its reads don't pay for begins listEvery after the last or later, and such lists take at
	// most 1/listShare of the time, to spare kube-apiserver. If the wait for the next list and the list take
	// listWait or more together, scouts are sooner.
	listEvery = 100 * time.Millisecond
	listShare = 4
	listWait  = time.Second
)

// seek makes a question wait for lists, and has a goroutine make them, unless it does or none would be of use.
func (p *Prover) seek(q *question, timeout time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q.seeking = true
	if _, ok := p.nextListLocked(); ok && !p.listing {
		p.listing = p.spawn(func(ctx context.Context) { p.listAll(ctx, timeout) })
	}
}

// nextListLocked returns the time until the next list. ok is false if none would be of use.
func (p *Prover) nextListLocked() (wait time.Duration, ok bool) {
	seeking := p.seekingLocked()
	if p.listFails || !slices.ContainsFunc(seeking, func(q *question) bool { return q.pays }) {
		wait = max(0, time.Until(p.listAgain))
	}
	s, took := p.Cache.Stats(), p.listTook
	if time.Since(p.listed) >= listBelieved {
		took = time.Duration(s.Objects) * perListed
	}
	return wait, !p.spareLists && s.Bytes <= mostListed && wait+took < listWait && len(seeking) > 0
}

// listAll lists for as long as a question waits that a list may soon answer.
func (p *Prover) listAll(ctx context.Context, timeout time.Duration) {
	for {
		p.mu.Lock()
		wait, ok := p.nextListLocked()
		waiting := p.seekingLocked()
		if !ok || ctx.Err() != nil {
			p.listing = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		if wait > 0 {
			exchange.Sleep(ctx, wait)
			continue
		}
		p.list(ctx, timeout, waiting)
	}
}

// list makes one proof by a list, for all questions that wait for it. If it fails, they wait for scouts.
func (p *Prover) list(ctx context.Context, timeout time.Duration, waiting []*question) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	result, err := p.proveByList(ctx, Need{})
	took := time.Since(began)
	p.count("list", err, took)
	p.mu.Lock()
	p.listed, p.listTook, p.listFails = time.Now(), took, err != nil
	// Most of the time, kube-apiserver waits for its own cache, for a list as for a question.
	work := max(took-p.took, time.Duration(p.Cache.Stats().Objects)*perListed)
	p.listAgain = began.Add(max(listEvery, listShare*work))
	if err != nil {
		p.listAgain = began.Add(took + listWait)
	}
	p.mu.Unlock()
	if err != nil {
		return
	}
	for _, q := range waiting {
		p.end(q, result, nil)
		q.cancel(errProved)
	}
}

// proveByList lists the collection, or the part that is needed, and waits until the cache holds the same
// objects or is newer.
func (p *Prover) proveByList(ctx context.Context, need Need) (fanout.Proof, error) {
	before := p.Cache.Shown()
	versions := make(map[string]uint64)
	meta, err := p.Collection.ListPart(ctx, need.Selection, func(id framing.Identity) error {
		versions[string(id.AppendKey(nil))] = id.ResourceVersion
		return nil
	})
	asOf := meta.ResourceVersion
	if err == nil {
		err = p.reached(asOf, before)
	}
	for err == nil {
		epoch, snapshot := p.Cache.Epoch(), p.Cache.Snapshot()
		if then, ok := p.Cache.SnapshotAt(asOf); ok && !need.sameVersions(then, versions) {
			if need.Filter == nil {
				p.RequireRelist(asOf)
			}
			return fanout.Proof{}, p.failed(fmt.Errorf("the cache differs from upstream at %d", asOf))
		}
		if snapshot.ResourceVersion >= asOf || need.sameVersions(snapshot, versions) {
			pr := fanout.Proof{Epoch: epoch, At: snapshot.ResourceVersion, AsOf: asOf, Part: need.Filter != nil}
			p.note(pr, need)
			return pr, nil
		}
		if err = p.Cache.WaitFor(ctx, snapshot.ResourceVersion+1); err != nil {
			p.breakLate(err)
			err = fmt.Errorf("at %d, upstream at %d: %w", snapshot.ResourceVersion, asOf, err)
		}
	}
	return fanout.Proof{}, p.failed(err)
}

// note notes a proof by a list.
func (p *Prover) note(pr fanout.Proof, need Need) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteVersionLocked(pr.AsOf)
	switch {
	case !pr.Part:
		p.latest = pr
		return
	case pr == p.partly:
	case pr.Epoch == p.partly.Epoch && pr.AsOf < p.partly.AsOf:
		return
	default:
		p.partly = pr
		clear(p.proved)
	}
	if len(p.proved) < mostProved {
		p.proved[need.key()] = struct{}{}
	}
}

// sameVersions reports whether what is needed of a snapshot are these objects in these versions.
func (n Need) sameVersions(s fanout.Snapshot, versions map[string]uint64) bool {
	same, count := true, 0
	each := func(o *framing.Object) bool {
		count++
		same = versions[o.Key] == o.ResourceVersion
		return same
	}
	if n.Filter == nil {
		s.All(each)
	} else {
		s.Ascend(n.Filter, "", each)
	}
	return same && count == len(versions)
}
