package lane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// prover proves that a lane's cache is as new as upstream was at some time after a request. The
// package comment says how.
//
// Questions to upstream begin at least questionEvery apart, and overlap. Each serves the requests
// that came before it. So one goroutine runs while a request waits for its question (loop), one for
// each question until it is answered, one while the collection is listed, and one for each scout.
type prover struct {
	lane *Lane

	mu      sync.Mutex
	next    *question   // has not been asked; nil if nobody waits for it
	asked   []*question // that are not answered, in the order in which they were asked
	began   time.Time   // the last question
	looping bool        // loop runs

	scouts   int       // under way
	scouted  time.Time // when the last scout began
	bookmark uint64    // the newest that a scout has brought

	listing   bool          // listAll runs
	listTook  time.Duration // the last list
	listAgain time.Time     // when the next list may begin
}

// question is asked upstream once for all requests that came before.
type question struct {
	seeking bool // upstream has said its resourceVersion, and the cache is not known to have reached it
	cancel  context.CancelCauseFunc

	donec  chan struct{} // closed when result and err are set; never sent on
	result fanout.Proof
	err    error
}

const (
	// questionEvery is the least time between the beginnings of two questions. It is how often
	// kube-apiserver asks etcd (progressRequestPeriod in k8s.io/apiserver/pkg/storage/cacher).
	questionEvery = 100 * time.Millisecond
	// smallCollection is the size, in bytes, up to which a collection is listed and nothing else is
	// asked.
	smallCollection = 256 << 10
	// busyFor is how long after a change a resource counts as busy, and busyWait how long a question
	// waits for the stream of a busy resource before anything else is tried.
	busyFor  = time.Second
	busyWait = 30 * time.Millisecond
	// slowCollection is the size, in bytes, from which a list of the metadata of a quiet collection
	// may take 50 ms.
	slowCollection = 16 << 20
)

// errProved ends the wait of a question that a list has answered.
var errProved = errors.New("proved by a list")

// prove returns a proof of a state at or after the call, made within the time that ctx and timeout
// allow.
func (p *prover) prove(ctx context.Context, timeout time.Duration) (fanout.Proof, error) {
	p.mu.Lock()
	if p.next == nil {
		p.next = &question{donec: make(chan struct{})}
	}
	q := p.next
	if !p.looping {
		p.looping = p.lane.lanes.Spawn(func(ctx context.Context) { p.loop(ctx, timeout) })
	}
	looping := p.looping
	p.mu.Unlock()
	if !looping {
		return fanout.Proof{}, fanout.ErrClosed
	}
	exchange.Waits(ctx)
	select {
	case <-q.donec:
		return q.result, q.err
	case <-ctx.Done():
		return fanout.Proof{}, context.Cause(ctx)
	}
}

// loop asks questions for as long as a request waits for one.
func (p *prover) loop(ctx context.Context, timeout time.Duration) {
	for {
		p.mu.Lock()
		if p.next == nil { // from here on another loop may run
			p.looping = false
			p.mu.Unlock()
			return
		}
		wait := time.Until(p.began.Add(questionEvery))
		p.mu.Unlock()
		exchange.Sleep(ctx, wait)
		p.mu.Lock()
		q := p.next
		p.next, p.began = nil, time.Now()
		p.asked = append(p.asked, q)
		p.mu.Unlock()
		if !p.lane.lanes.Spawn(func(ctx context.Context) { p.ask(ctx, timeout, q) }) {
			p.end(q, fanout.Proof{}, fanout.ErrClosed)
		}
	}
}

// ask asks one question, and ends it.
func (p *prover) ask(ctx context.Context, timeout time.Duration, q *question) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	q.cancel = cancel // before anybody else knows that it is seeking
	once, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	began := time.Now()
	result, method, err := p.provedState(once, timeout, q)
	if err == nil || !errors.Is(context.Cause(ctx), errProved) {
		p.lane.metrics.proved(method, err, time.Since(began))
	}
	p.end(q, result, err)
}

// end ends a question, unless it has ended.
func (p *prover) end(q *question, result fanout.Proof, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.asked, q); i >= 0 {
		p.asked = slices.Delete(p.asked, i, i+1)
		q.result, q.err = result, err
		close(q.donec)
	}
}

// seekingLocked returns the questions that wait for the cache to reach their resourceVersion.
func (p *prover) seekingLocked() (seeking []*question) {
	for _, q := range p.asked {
		if q.seeking {
			seeking = append(seeking, q)
		}
	}
	return seeking
}

// provedState answers one question, and returns the method.
func (p *prover) provedState(ctx context.Context, timeout time.Duration, q *question) (fanout.Proof, string, error) {
	l := p.lane
	if l.Cache.Stats().Bytes <= smallCollection {
		pr, err := l.proveByList(ctx)
		return pr, "list", err
	}
	epoch, before := l.Cache.Epoch(), l.Cache.Progress()
	rv, err := l.collection.CurrentVersion(ctx)
	if err == nil {
		err = l.reached(rv, before)
	}
	if err != nil {
		return fanout.Proof{}, "stream", fmt.Errorf("prove freshness of %s: %w", l, err)
	}
	pr := fanout.Proof{Epoch: epoch, At: rv, AsOf: rv}
	if l.Cache.Progress() >= rv || l.busy() && l.waitFor(ctx, rv, busyWait) == nil {
		return pr, "stream", nil
	}
	if err := p.seek(ctx, timeout, q, rv); err != nil {
		return fanout.Proof{}, "watch", fmt.Errorf("prove freshness of %s: %w", l, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bookmark >= rv {
		return pr, "watch", nil
	}
	return pr, "stream", nil
}

// seek waits until the cache is known to have reached rv, and has scouts and lists see to that.
func (p *prover) seek(ctx context.Context, timeout time.Duration, q *question, rv uint64) error {
	p.mu.Lock()
	q.seeking = true
	p.mu.Unlock()
	p.startLists(timeout)
	return p.await(ctx, timeout, rv)
}

// await waits until the cache is known to have reached rv, and sends scouts, of up to timeout each.
func (p *prover) await(ctx context.Context, timeout time.Duration, rv uint64) error {
	for {
		again := p.sendScout(timeout)
		err := p.lane.waitFor(ctx, rv, again)
		if err == nil || errors.Is(err, fanout.ErrClosed) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// reached returns an error if upstream, whose state is that of rv, is behind what the cache held
// before upstream was asked: etcd has been restored. Resuming the lane's watch shows that.
func (l *Lane) reached(rv, before uint64) error {
	if rv >= before {
		return nil
	}
	l.reflector.BreakWatch()
	return fmt.Errorf("upstream is at %d, the cache at %d", rv, before)
}

// ProvesSlowly reports whether a proof may take longer than kube-apiserver takes for a page.
func (l *Lane) ProvesSlowly() bool { return !l.busy() && l.Cache.Stats().Bytes > slowCollection }

// busy reports whether the resource has changed lately.
func (l *Lane) busy() bool { return time.Since(l.reflector.Status().LastChange) < busyFor }

// waitFor waits until the cache has reached rv, for d at most.
func (l *Lane) waitFor(ctx context.Context, rv uint64, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return l.Cache.WaitFor(ctx, rv)
}

// breakLate breaks the lane's upstream watch if err says that the time was over before the watch
// had brought what upstream has.
func (l *Lane) breakLate(err error) {
	if errors.Is(err, context.DeadlineExceeded) {
		l.reflector.BreakWatch()
	}
}
