package fresh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/base/exposition"
	"github.com/watchfan/watchfan/proxy/base/semaphore"
	"github.com/watchfan/watchfan/proxy/store/reflector"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

var (
	freshnessProofs = exposition.Describe("counter", "watchfan_freshness_proofs_total",
		"Attempts to prove that the cache is as new as a consistent read requires, by method and result.")
	freshnessProofSeconds = exposition.Describe("counter", "watchfan_freshness_proof_seconds_total",
		"Time spent on proofs of freshness.")
)

// Prover proves that a reflector's cache is as new as upstream was at some time after a request. Its
// methods may be called from any goroutine.
//
// A question to upstream begins when the last is answered, or overlapAfter it began, and only if a read
// waits for it. It serves the reads that came before it. One goroutine runs for each question until it
// is answered, one for each list of a part, one while the collection is listed, and one for each scout.
type Prover struct {
	// Immutable.
	*reflector.Reflector
	spawn      func(func(context.Context)) bool
	spareLists bool
	seconds    *metrics.FloatCounter

	proofs, unproven atomic.Uint64

	again chan struct{} // has a token if the next question need not wait

	mu      sync.Mutex
	next    *question     // has not been asked; nil if nobody waits for it
	asked   []*question   // that are not answered, in the order in which they were asked
	began   time.Time     // the last question
	reads   int           // that had joined it
	took    time.Duration // upstream's last answer to a question
	said    time.Time     // when that came
	quick   time.Duration // the quickest of late
	quickAt time.Time     // when that was noted
	version uint64        // upstream's newest
	since   time.Time     // when an answer first said so
	quiet   bool          // the last one said so, quietFor later
	strayed time.Time     // when upstream was last found ahead, by writes to other resources
	latest  fanout.Proof  // by a list
	later   *question     // that reads join which gather; nil if none does

	// See part.go.
	turns   semaphore.Semaphore  // of lists of parts
	lists   map[string]*partList // the latest of each part, by its filter's key, while it is under way
	running int                  // lists under way
	partly  fanout.Proof         // of the parts that have been proved as of the newest resourceVersion
	proved  map[string]struct{}  // their filters' keys

	scouts   int       // under way
	scouted  time.Time // when the last scout began
	bookmark uint64    // the newest that a scout has brought

	listing   bool          // listAll runs
	listed    time.Time     // when the last list ended
	listTook  time.Duration // the last list
	listAgain time.Time     // when the next list may begin, unless its reads pay for it
	listFails bool          // the last list has failed
}

// New returns a prover for what r follows. spawn runs a function on a goroutine, and reports false
// if it does not. spareLists keeps large collections from being listed.
func New(r *reflector.Reflector, spawn func(func(context.Context)) bool, spareLists bool) *Prover {
	for _, method := range []string{"list", "stream"} {
		for _, result := range []string{"ok", "failed"} {
			r.Series.Counter(freshnessProofs, "method", method, "result", result)
		}
	}
	return &Prover{
		Reflector: r, spawn: spawn, spareLists: spareLists, again: make(chan struct{}, 1),
		turns: semaphore.New(mostParts), lists: make(map[string]*partList), proved: make(map[string]struct{}),
		seconds: r.Series.Set.NewFloatCounter(r.Series.Name(freshnessProofSeconds)),
	}
}

// question is asked upstream once for all requests that came before.
type question struct {
	reads   int           // that have joined
	fullc   chan struct{} // closed when as many have joined as the last question had; nil if none waits for that
	whole   bool          // a read needs the whole collection
	pays    bool          // such a read costs upstream more than a list of the collection's metadata
	seeking bool          // upstream has said its resourceVersion, and the cache is not known to have reached it
	cancel  context.CancelCauseFunc

	saidc   chan struct{} // closed when upstream has answered, and what follows is set; never sent on
	ahead   bool          // the cache is not known to have reached version
	version uint64        // as upstream said

	donec  chan struct{} // closed when result and err are set; never sent on
	result fanout.Proof
	err    error
}

const (
	// gatherFor is how long reads gather that share a proof, however quickly upstream would answer.
	gatherFor = 250 * time.Millisecond
	// overlapAfter is the age from which an unanswered question does not keep the next from being asked.
	// Kube-apiserver makes it wait for etcd, for up to 100 ms (progressRequestPeriod in
	// k8s.io/apiserver/pkg/storage/cacher). Those that wait are answered at the same time.
	overlapAfter = 10 * time.Millisecond
	// manyReads is how many reads of the last question the next waits for.
	manyReads = 4
	// smallCollection is the size, in bytes, up to which a collection is listed and nothing else is
	// asked, unless upstream is quiet.
	smallCollection = 256 << 10
	// quietFor is how long nothing was written to a quiet upstream.
	quietFor = time.Second
	// busyFor is how long after a change a resource counts as busy, and busyWait how long a question
	// waits for the stream of a busy resource before anything else is tried. Reads that can be proved in
	// part wait as long as upstream took to answer, or for soon.
	busyFor  = time.Second
	busyWait = 30 * time.Millisecond
	// slowCollection is the size, in bytes, from which a list of the metadata of a quiet collection
	// may take 50 ms.
	slowCollection = 16 << 20
)

// errProved ends the wait of a question that a list has answered.
var errProved = errors.New("proved by a list")

// ErrAhead says that upstream is ahead of the cache's stream, so a proof would need more than a question.
var ErrAhead = errors.New("upstream is ahead")

// Need is what a read needs a proof of. The zero Need is the whole collection.
type Need struct {
	// Selection is what the read selects, and Filter selects the same from the cache. If Filter is nil,
	// that is everything.
	reflector.Selection
	Filter *fanout.Filter
	// Little says that the read costs upstream less than a list of the whole collection's metadata.
	Little bool
}

// Prove returns a proof of a state at or after the call, made within the time that ctx and timeout
// allow. It may be in part, of what the read needs.
func (p *Prover) Prove(ctx context.Context, timeout time.Duration, need Need) (fanout.Proof, error) {
	if need.Filter != nil && p.Cache.Stats().Objects > listedPerPart {
		return p.provePart(ctx, timeout, need)
	}
	return p.join(timeout, Need{Little: need.Little}).await(ctx)
}

// ProveEasily is Prove for a read that upstream answers as easily as a question, and without waiting. It
// returns ErrAhead if a question is not enough, or not answered soon.
func (p *Prover) ProveEasily(ctx context.Context, timeout time.Duration) (fanout.Proof, error) {
	if p.strays() && !p.busy() {
		return fanout.Proof{}, ErrAhead
	}
	q := p.join(timeout, Need{Filter: fanout.Everything})
	if q == nil {
		return fanout.Proof{}, fanout.ErrClosed
	}
	exchange.Waits(ctx)
	select {
	case <-q.saidc:
		if !q.ahead {
			return q.await(ctx)
		}
	case <-time.After(easyWait):
	case <-ctx.Done():
	}
	return fanout.Proof{}, ErrAhead
}

// ProveLater is Prove for reads of which there are too many: those of a quarter of a second share one proof.
func (p *Prover) ProveLater(ctx context.Context, timeout time.Duration) (fanout.Proof, error) {
	return p.gather(timeout).await(ctx)
}

// await waits for the answer. q is nil once the server stops.
func (q *question) await(ctx context.Context) (fanout.Proof, error) {
	if q == nil {
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

// gather returns the question of the reads that gather now, which is asked when they have. It returns nil
// once the server stops.
func (p *Prover) gather(timeout time.Duration) *question {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.later != nil {
		return p.later
	}
	q := &question{donec: make(chan struct{})}
	if !p.spawn(func(ctx context.Context) {
		defer close(q.donec)
		exchange.Sleep(ctx, gatherFor)
		p.mu.Lock()
		p.later = nil
		p.mu.Unlock()
		q.result, q.err = p.Prove(ctx, timeout, Need{Little: true})
	}) {
		return nil
	}
	p.later = q
	return q
}

// join returns the question that is asked next, and sees to that. It returns nil once the server
// stops.
func (p *Prover) join(timeout time.Duration, need Need) *question {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == nil && !p.beginLocked(timeout) {
		return nil
	}
	q := p.next
	if q.reads++; q.reads == p.reads && q.fullc != nil {
		close(q.fullc)
	}
	q.whole = q.whole || need.Filter == nil
	q.pays = q.pays || need.Filter == nil && !need.Little
	return q
}

// beginLocked begins the next question, which is asked when it is its turn.
func (p *Prover) beginLocked(timeout time.Duration) bool {
	q := &question{donec: make(chan struct{}), saidc: make(chan struct{})}
	turn := time.NewTimer(time.Until(p.began.Add(overlapAfter)))
	if !p.spawn(func(ctx context.Context) {
		defer turn.Stop()
		select {
		case <-turn.C:
		case <-p.again:
		case <-ctx.Done():
		}
		p.awaitReads(ctx, q)
		p.ask(ctx, timeout, q)
	}) {
		return false
	}
	p.next = q
	return true
}

// awaitReads waits for as many reads as the last question had, if they were many, for half as long as a
// question takes. Clients that were answered together ask again together.
func (p *Prover) awaitReads(ctx context.Context, q *question) {
	p.mu.Lock()
	wait := p.quick / 2
	if q.reads < p.reads && p.reads >= manyReads {
		q.fullc = make(chan struct{})
	}
	p.mu.Unlock()
	if q.fullc == nil {
		return
	}
	select {
	case <-q.fullc:
	case <-time.After(wait):
	case <-ctx.Done():
	}
}

// ask asks the next question, and ends it.
func (p *Prover) ask(ctx context.Context, timeout time.Duration, q *question) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	once, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	began := time.Now()
	p.mu.Lock()
	q.cancel = cancel
	p.next, p.began, p.reads = nil, began, q.reads
	p.asked = append(p.asked, q)
	select {
	case <-p.again:
	default:
	}
	p.mu.Unlock()
	result, method, err := p.provedState(once, timeout, q)
	if err == nil || err != ErrAhead && !errors.Is(context.Cause(ctx), errProved) {
		p.count(method, err, time.Since(began))
	}
	p.end(q, result, err)
}

// noteVersionLocked notes that upstream was at rv. It may have gone on since.
func (p *Prover) noteVersionLocked(rv uint64) {
	if rv > p.version {
		p.version, p.since = rv, time.Now()
	}
	p.quiet = rv == p.version && time.Since(p.since) >= quietFor
}

// answered notes that upstream is at rv, which it took a time to say. If upstream has not been written
// to since the latest list, it returns the proof by that list. ok is false if the cache has gone on.
func (p *Prover) answered(rv uint64, took time.Duration) (latest fanout.Proof, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteVersionLocked(rv)
	p.took = took
	if took < p.quick || time.Since(p.quickAt) >= straysFor {
		p.quick, p.quickAt = took, time.Now()
	}
	return p.latest, rv == p.latest.AsOf && p.latest.Epoch == p.Cache.Epoch() && p.latest.At == p.Cache.Progress()
}

// end ends a question, unless it has ended.
func (p *Prover) end(q *question, result fanout.Proof, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.asked, q); i >= 0 {
		p.asked = slices.Delete(p.asked, i, i+1)
		q.result, q.err = result, err
		close(q.donec)
		p.saidLocked(q)
	}
}

// saidLocked notes that upstream has answered a question, so the next may be asked.
func (p *Prover) saidLocked(q *question) {
	select {
	case <-q.saidc:
		return
	default:
	}
	close(q.saidc)
	p.said = time.Now()
	select {
	case p.again <- struct{}{}:
	default:
	}
}

// strays reports whether other resources have been written lately while the collection was not.
func (p *Prover) strays() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.strayed) < straysFor
}

// count counts an attempt at a proof.
func (p *Prover) count(method string, err error, took time.Duration) {
	result, n := "ok", &p.proofs
	if err != nil {
		result, n = "failed", &p.unproven
	}
	n.Add(1)
	p.Series.Counter(freshnessProofs, "method", method, "result", result).Inc()
	p.seconds.Add(took.Seconds())
}

// Attempts returns how many attempts at a proof have succeeded and failed.
func (p *Prover) Attempts() (proofs, unproven uint64) { return p.proofs.Load(), p.unproven.Load() }

// seekingLocked returns the questions that wait for the cache to reach their resourceVersion.
func (p *Prover) seekingLocked() (seeking []*question) {
	for _, q := range p.asked {
		if q.seeking {
			seeking = append(seeking, q)
		}
	}
	return seeking
}

// provedState answers one question, and returns the method.
func (p *Prover) provedState(ctx context.Context, timeout time.Duration, q *question) (fanout.Proof, string, error) {
	small := q.whole && p.Cache.Stats().Bytes <= smallCollection
	if small && !p.isQuiet() {
		return p.proveSmall(ctx)
	}
	epoch, before := p.Cache.Epoch(), p.Cache.Shown()
	asked := time.Now()
	rv, err := p.Collection.CurrentVersion(ctx, timeout)
	took := time.Since(asked)
	if err == nil {
		err = p.reached(rv, before)
	}
	if err != nil {
		return fanout.Proof{}, "stream", p.failed(err)
	}
	if latest, ok := p.answered(rv, took); ok {
		return latest, "quiet", nil
	}
	pr := fanout.Proof{Epoch: epoch, At: rv, AsOf: rv}
	if p.Cache.Progress() >= rv || p.busy() && p.waitFor(ctx, rv, min(max(soon, took), busyWait)) == nil {
		return pr, "stream", nil
	}
	if p.noteAhead(q, rv); !q.whole {
		return pr, "stream", ErrAhead
	}
	if p.busy() && p.waitFor(ctx, rv, busyWait) == nil {
		return pr, "stream", nil
	}
	if small {
		return p.proveSmall(ctx)
	}
	p.seek(q, timeout)
	if err := p.await(ctx, timeout, rv); err != nil {
		return fanout.Proof{}, "watch", p.failed(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bookmark >= rv {
		return pr, "watch", nil
	}
	return pr, "stream", nil
}

// noteAhead notes that upstream is at rv, which the cache is not known to have reached.
func (p *Prover) noteAhead(q *question, rv uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q.ahead, q.version, p.strayed = true, rv, time.Now()
	p.saidLocked(q)
}

// proveSmall answers one question by a list of a small collection.
func (p *Prover) proveSmall(ctx context.Context) (fanout.Proof, string, error) {
	pr, err := p.proveByList(ctx, Need{})
	return pr, "list", err
}

// failed wraps the error of a proof.
func (p *Prover) failed(err error) error {
	return fmt.Errorf("prove freshness of %s: %w", p.Collection, err)
}

// reachTimeout is how long a scout of Reach may take.
const reachTimeout = 5 * time.Second

// Reach waits until the cache has reached resourceVersion rv. Scouts see to that, so a quiet
// resource takes seconds. One without a watch cache upstream may never get there.
func (p *Prover) Reach(ctx context.Context, rv uint64) error {
	if p.Collection.Uncached() {
		return p.Cache.WaitFor(ctx, rv)
	}
	return p.await(ctx, reachTimeout, rv)
}

// await waits until the cache is known to have reached rv, and sends scouts, of up to timeout each.
func (p *Prover) await(ctx context.Context, timeout time.Duration, rv uint64) error {
	for {
		again := p.sendScout(timeout)
		err := p.waitFor(ctx, rv, again)
		if err == nil || errors.Is(err, fanout.ErrClosed) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// reached returns an error if upstream, whose state is that of rv, is behind what clients were shown
// before upstream was asked: etcd has been restored. Resuming the reflector's watch shows that.
func (p *Prover) reached(rv, before uint64) error {
	if rv >= before {
		return nil
	}
	p.BreakWatch()
	return fmt.Errorf("upstream is at %d, shown up to %d", rv, before)
}

// Slow reports whether a proof may take longer than kube-apiserver takes for a page.
func (p *Prover) Slow() bool {
	return !p.busy() && p.Cache.Stats().Bytes > slowCollection && !p.isQuiet()
}

// isQuiet reports whether upstream was quiet when it last answered.
func (p *Prover) isQuiet() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.quiet
}

// busy reports whether the resource has changed lately.
func (p *Prover) busy() bool { return time.Since(p.Status().LastChange) < busyFor }

// waitFor waits until the cache has reached rv, for d at most.
func (p *Prover) waitFor(ctx context.Context, rv uint64, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return p.Cache.WaitFor(ctx, rv)
}

// breakLate breaks the reflector's watch if err says that the time was over before the watch had
// brought what upstream has.
func (p *Prover) breakLate(err error) {
	if errors.Is(err, context.DeadlineExceeded) {
		p.BreakWatch()
	}
}
