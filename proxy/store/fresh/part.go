package fresh

import (
	"context"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const (
	// While other resources are written, a read's part of the collection is listed although its question is
	// not answered, if no question has been for twice as long as the quickest took, within these bounds.
	// Kube-apiserver answers at once, or else both when it knows how far etcd is.
	soon, mostSoon = 3 * time.Millisecond, 10 * time.Millisecond
	// easyWait is that time for a read that passes through then. An answer that comes at once is sooner.
	easyWait = 10 * time.Millisecond
	// straysFor is how long other resources count as written after a question has shown it.
	straysFor = time.Second
	// mostParts is how many lists of parts are under way at a time. More would fill the queue that
	// kube-apiserver has for this client (API Priority and Fairness), in which its watches begin too.
	mostParts = 64
	// mostProved bounds the parts that are known to be proved as of one resourceVersion.
	mostProved = 4096
	// Beside lists of parts that cost upstream as much as one of the whole collection, reads
	// gather for that: for gatherParts, or until upstream answers a question, because it will then answer all.
	gatherParts = 20 * time.Millisecond
)

// partList is a list of a part of the collection, for all reads that arrived before it began.
type partList struct {
	need  Need
	began time.Time // zero before; guarded by Prover.mu

	donec  chan struct{} // closed when result and err are set; never sent on
	result fanout.Proof
	err    error
}

// wholeKey is the key of the whole collection. Those of filters are of printable characters.
const wholeKey = "\x00"

// key tells needs apart.
func (n Need) key() string {
	if n.Filter == nil {
		return wholeKey
	}
	return n.Filter.Key()
}

// provePart is Prove for a part of a collection that is not small. A list of the part costs upstream less
// than the read itself.
func (p *Prover) provePart(ctx context.Context, timeout time.Duration, need Need) (fanout.Proof, error) {
	arrived := time.Now()
	q := p.join(timeout, need)
	if q == nil {
		return fanout.Proof{}, fanout.ErrClosed
	}
	exchange.Waits(ctx)
	for answered := false; !answered; {
		wait := p.patience(arrived)
		if wait <= 0 {
			break
		}
		select {
		case <-q.saidc:
			if !q.ahead {
				return q.await(ctx)
			}
			if pr, ok := p.provedPart(q.version, need); ok {
				return pr, nil
			}
			answered = true
		case <-time.After(wait):
		case <-ctx.Done():
			return fanout.Proof{}, context.Cause(ctx)
		}
	}
	l := p.listPart(timeout, need, arrived)
	if l == nil {
		return fanout.Proof{}, fanout.ErrClosed
	}
	select {
	case <-l.donec:
		return l.result, l.err
	case <-ctx.Done():
		return fanout.Proof{}, context.Cause(ctx)
	}
}

// patience returns how much longer a read that has arrived waits for a question.
func (p *Prover) patience(arrived time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.strayed) >= straysFor {
		return straysFor
	}
	if p.said.After(arrived) {
		arrived = p.said
	}
	return time.Until(arrived.Add(max(soon, min(2*p.quick, mostSoon))))
}

// provedPart returns the proof of what is needed as of resourceVersion rv, if a list has proved it.
func (p *Prover) provedPart(rv uint64, need Need) (pr fanout.Proof, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pr = p.partly
	if pr.AsOf == rv && pr.Epoch == p.Cache.Epoch() && pr.At == p.Cache.Progress() {
		_, ok = p.proved[need.key()]
	}
	return pr, ok
}

// listPart returns a list of what is needed that has begun after a time, or will begin. It is one of the
// whole collection if there are many others, and nil once the server stops.
func (p *Prover) listPart(timeout time.Duration, need Need, after time.Time) *partList {
	l := &partList{need: need, donec: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	whole := p.lists[wholeKey]
	for _, running := range []*partList{p.lists[need.key()], whole} {
		if running != nil && (running.began.IsZero() || running.began.After(after)) {
			return running
		}
	}
	if whole == nil && (p.running+1)*listedPerPart > p.Cache.Stats().Objects {
		l.need = Need{}
	}
	if !p.spawn(func(ctx context.Context) { p.runPart(ctx, timeout, l) }) {
		return nil
	}
	p.lists[l.need.key()] = l
	p.running++
	return l
}

// runPart runs a list, and ends it.
func (p *Prover) runPart(ctx context.Context, timeout time.Duration, l *partList) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch {
	case l.need.Filter == nil:
		p.gatherPart(ctx)
	case p.turns.Acquire(ctx) == nil: // or the list fails too
		defer p.turns.Release()
	}
	p.mu.Lock()
	l.began = time.Now()
	p.mu.Unlock()
	l.result, l.err = p.proveByList(ctx, l.need)
	p.count("part", l.err, time.Since(l.began))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running--
	if p.lists[l.need.key()] == l {
		delete(p.lists, l.need.key())
	}
	close(l.donec)
}

// gatherPart lets reads gather for a list of the whole collection.
func (p *Prover) gatherPart(ctx context.Context) {
	p.mu.Lock()
	var said chan struct{}
	wait := soon
	for _, q := range p.asked {
		if !q.ahead {
			said, wait = q.saidc, gatherParts
		}
	}
	p.mu.Unlock()
	select {
	case <-said:
	case <-time.After(wait):
	case <-ctx.Done():
	}
}
