package fresh

import (
	"context"
	"fmt"
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
	// listedPerRead is how many objects' metadata cost kube-apiserver as much as a small read: 7 µs each,
	// and 0.25 to 0.6 ms.
	listedPerRead = 50
	// Lists take at most 1/listShare of the time, to spare kube-apiserver. If the wait for the next
	// list and the list take listWait or more together, scouts are sooner.
	listShare = 4
	listWait  = time.Second
)

// startLists has a goroutine list what questions wait for, unless it does.
func (p *Prover) startLists(timeout time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.nextListLocked(); ok && !p.listing {
		p.listing = p.spawn(func(ctx context.Context) { p.listAll(ctx, timeout) })
	}
}

// nextListLocked returns the time until the next list. ok is false if none would be of use.
func (p *Prover) nextListLocked() (wait time.Duration, ok bool) {
	wait = max(0, time.Until(p.listAgain))
	s, took := p.Cache.Stats(), p.listTook
	if time.Since(p.listed) >= listBelieved {
		took = time.Duration(s.Objects) * perListed
	}
	return wait, !p.spareLists && s.Bytes <= mostListed && wait+took < listWait && len(p.seekingLocked()) > 0
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
	result, err := p.proveByList(ctx)
	took := time.Since(began)
	p.count("list", err, took)
	p.mu.Lock()
	p.listed, p.listTook = time.Now(), took
	// Most of the time, kube-apiserver waits for its own cache, for a list as for a question.
	work := max(took-p.took, time.Duration(p.Cache.Stats().Objects)*perListed)
	p.listAgain = began.Add(max(questionEvery, listShare*work))
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

// proveByList lists the collection, and waits until the cache holds the same objects or is newer.
func (p *Prover) proveByList(ctx context.Context) (fanout.Proof, error) {
	before := p.Cache.Progress()
	versions := make(map[string]uint64)
	meta, err := p.Collection.ListIdentities(ctx, 0, "", 0, func(id framing.Identity) error {
		versions[string(id.AppendKey(nil))] = id.ResourceVersion
		return nil
	})
	asOf := meta.ResourceVersion
	if err == nil {
		err = p.reached(asOf, before)
	}
	for err == nil {
		epoch, snapshot := p.Cache.Epoch(), p.Cache.Snapshot()
		if then, ok := p.Cache.SnapshotAt(asOf); ok && !sameVersions(then, versions) {
			p.RequireRelist(asOf)
			return fanout.Proof{}, p.failed(fmt.Errorf("the cache differs from upstream at %d", asOf))
		}
		if snapshot.ResourceVersion >= asOf || sameVersions(snapshot, versions) {
			pr := fanout.Proof{Epoch: epoch, At: snapshot.ResourceVersion, AsOf: asOf}
			p.mu.Lock()
			p.noteVersionLocked(asOf)
			p.latest = pr
			p.mu.Unlock()
			return pr, nil
		}
		if err = p.Cache.WaitFor(ctx, snapshot.ResourceVersion+1); err != nil {
			p.breakLate(err)
			err = fmt.Errorf("at %d, upstream at %d: %w", snapshot.ResourceVersion, asOf, err)
		}
	}
	return fanout.Proof{}, p.failed(err)
}

// sameVersions reports whether a snapshot has the same objects in the same versions.
func sameVersions(s fanout.Snapshot, versions map[string]uint64) bool {
	same, n := true, 0
	s.All(func(o *framing.Object) bool {
		n++
		same = versions[o.Key] == o.ResourceVersion
		return same
	})
	return same && n == len(versions)
}
