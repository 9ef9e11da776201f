package auth

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/base/semaphore"
	"github.com/watchfan/watchfan/proxy/gate/remember"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const (
	recheckInterval = time.Minute   // between two reviews of an open watch, and up to a tenth more
	maxGrantAge     = 6             // intervals without a yes, after which a watch ends
	grantReviews    = 16            // of open watches, under way at most
	ticks           = 60            // of Run in an interval
	maxStanding     = remember.Most // grants that no watch has; each stands until its next review is due
)

// grant is kube-apiserver's permission for the open watches that share one question.
type grant struct {
	// Immutable. The identity is kept to ask the question again.
	question Question
	id       Identity
	review   []byte
	resource schema.GroupVersionResource

	// Guarded by Authorizer.mu.
	watches []*OpenWatch // in no order
	yes     Decision     // the last one
	next    time.Time    // when to ask again
	revoked string       // why it was revoked; empty before that
}

// OpenWatch is what the authorizer keeps of an open watch. It is part of the caller's watch, and
// costs no other memory. The zero value is a watch that needs no grant.
type OpenWatch struct {
	watch       Revocable
	grant       *grant               // nil for none
	certificate *verifiedCertificate // nil if the client has shown a token; used by Run alone
	index       int32                // in grant.watches, if it is there; guarded by Authorizer.mu
	invalid     bool                 // revoked because of its certificate; guarded by Authorizer.mu
}

// Revocable is a watch that can be revoked. Revoke is called at most once, on another goroutine than
// WatchGrant, and must not block.
type Revocable interface{ Revoke() }

// WatchGrant asks again and again, while Run runs, whether id may do what req asks for. yes is the
// decision that has allowed the watch. WatchGrant revokes the watch when the client may not any
// longer, or when kube-apiserver has not answered for too long. It sets w, which the caller gives to
// Release when the watch has ended. Open watches with the same question share one review.
func (a *Authorizer) WatchGrant(w *OpenWatch, id Identity, req *request.Request, yes Decision, watch Revocable) {
	*w = OpenWatch{watch: watch, certificate: id.certificate}
	if id.Kind == KindOwn {
		return
	}
	q, review := ReviewFor(id, AttributesOf(req))

	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.grants[q]
	if g == nil {
		now := time.Now()
		g = &grant{
			question: q, id: id, review: review, resource: req.GVR,
			yes: yes, next: a.nextReview(yes.asked),
		}
		g.yes.asked = a.latest(yes.asked, now)
		if a.deniedSince(q, yes) {
			g.next = now
		}
		a.grants[q] = g
	} else if len(g.watches) == 0 {
		a.standing--
	}
	w.grant, w.index = g, int32(len(g.watches))
	g.watches = append(g.watches, w)
}

// Release forgets a watch that has ended. After that, the watch is not revoked, except for a call
// that is under way. Release returns the reason if the watch was revoked.
func (a *Authorizer) Release(w *OpenWatch) (because string) {
	if w.grant == nil {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.endLocked(w)
	if w.invalid {
		return certificateInvalid
	}
	return w.grant.revoked
}

// openLocked reports whether the grant knows w.
func (w *OpenWatch) openLocked() bool {
	open := w.grant.watches
	return int(w.index) < len(open) && open[w.index] == w
}

// endLocked forgets a watch. Its grant stands for a while after the last watch.
func (a *Authorizer) endLocked(w *OpenWatch) {
	if !w.openLocked() {
		return
	}
	g := w.grant
	end := len(g.watches) - 1
	moved := g.watches[end]
	g.watches[w.index], moved.index = moved, w.index
	g.watches[end] = nil
	if g.watches = g.watches[:end]; end == 0 {
		g.watches = nil
		if a.standing++; a.standing > maxStanding || len(g.review) > maxRenewed {
			a.forgetLocked(g)
		}
	}
}

// forgetLocked forgets a grant that no watch has.
func (a *Authorizer) forgetLocked(g *grant) {
	delete(a.grants, g.question)
	a.standing--
}

// standingYes returns the last yes to a question that open watches ask, or that a watch asked which
// has ended since the last review. The yes is believed for as long as for open watches. age is the
// time since it was asked for. Without such a yes the decision is unclear. With a TTL of 0 no yes
// is believed.
func (a *Authorizer) standingYes(q Question) (yes Decision, age time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	g, now := a.grants[q], time.Now()
	if g == nil || a.allowedTTL == 0 || a.overLocked(g, now) || a.deniedSince(q, g.yes) {
		return Decision{}, 0
	}
	return g.yes, now.Sub(g.yes.asked)
}

// deniedSince reports whether kube-apiserver is remembered to have said no later than yes. The grant
// of a watch that begins on such a yes did not exist yet when the no came.
func (a *Authorizer) deniedSince(q Question, yes Decision) bool {
	d, known := a.decisions.known.Peek(q)
	if !known {
		d, _ = a.decisions.strangers.Peek(q)
	}
	return d.outcome == denied && d.asked.After(yes.asked)
}

// overLocked reports whether a grant ends: it has had no yes for too long, or it has no watch and
// its review is due.
func (a *Authorizer) overLocked(g *grant, now time.Time) bool {
	return now.Sub(g.yes.asked) >= maxGrantAge*a.interval || len(g.watches) == 0 && !now.Before(g.next)
}

// renewGrant notes a yes for the grant with a question. It spares the grant's own review.
func (a *Authorizer) renewGrant(q Question, yes Decision) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if g := a.grants[q]; g != nil && yes.asked.After(g.yes.asked) {
		g.yes, g.next = yes, a.nextReview(yes.asked)
	}
}

// denyGrant revokes the grant with a question, unless it has had a yes that was asked for later
// than no.
func (a *Authorizer) denyGrant(q Question, no Decision) {
	a.mu.Lock()
	g := a.grants[q]
	late := g == nil || g.yes.asked.After(no.asked)
	a.mu.Unlock()
	if !late {
		a.revokeGrant(g, "the client may no longer read, or is nobody any more", no.Reason())
	}
}

func (a *Authorizer) nextReview(now time.Time) time.Time {
	return now.Add(a.interval + rand.N(a.interval/10))
}

// Run asks about open watches until ctx ends. The reviews are spread over the interval, because
// each grant's interval counts from its beginning. Then Run waits for all reviews that are under
// way, those of Authorize included, and lets no other begin.
func (a *Authorizer) Run(ctx context.Context) {
	defer a.calls.End()
	var reviews sync.WaitGroup
	defer reviews.Wait()
	free := semaphore.New(grantReviews)
	var pending atomic.Int64 // reviews that are under way, or wait for a place
	for last := time.Now(); exchange.Sleep(ctx, a.interval/ticks); {
		now := time.Now()
		if now.Sub(last) > a.interval {
			a.resumeGrants(now)
		}
		last = now
		a.recheckCertificates(now)
		due, expired := a.dueGrants(now, int(pending.Load()))
		for _, g := range expired {
			a.revokeGrant(g, "kube-apiserver has not said for too long whether the client may read", "")
		}
		pending.Add(int64(len(due)))
		for _, g := range due {
			reviews.Go(func() {
				defer pending.Add(-1)
				if free.Acquire(ctx) == nil {
					defer free.Release()
					ctx, cancel := context.WithTimeout(ctx, ReviewTimeout)
					defer cancel()
					a.answer(ctx, g.question, g.id, g.review)
				}
			})
		}
	}
}

// resumeGrants gives each grant an interval for its next review, because this process has stood still and
// could not ask: nobody has been sent anything meanwhile either.
func (a *Authorizer) resumeGrants(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range a.grants {
		g.yes.asked = a.latest(g.yes.asked, now)
	}
}

// latest returns when a yes was asked for that may be older than six intervals, as with short ones. The
// review that is due then has one interval.
func (a *Authorizer) latest(asked, now time.Time) time.Time {
	if oldest := now.Add(-(maxGrantAge - 1) * a.interval); asked.Before(oldest) {
		return oldest
	}
	return asked
}

// dueGrants returns grants whose next review is due, those that have waited longest first. There are no more
// than a tick may begin, so that all that are due at the same time, as after a halt, take half an interval.
// It also returns all grants that have had no yes for too long.
func (a *Authorizer) dueGrants(now time.Time, pending int) (due, expired []*grant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	most := max(0, grantReviews+len(a.grants)/(ticks/2)-pending)
	for _, g := range a.grants {
		switch {
		case len(g.watches) == 0:
			if a.overLocked(g, now) {
				a.forgetLocked(g)
			}
		case a.overLocked(g, now):
			expired = append(expired, g)
		case !now.Before(g.next):
			due = append(due, g)
		}
	}
	slices.SortFunc(due, func(g, h *grant) int { return g.next.Compare(h.next) })
	due = due[:min(most, len(due))]
	for _, g := range due {
		g.next = a.nextReview(now)
	}
	return due, expired
}

// revokeGrant ends the watches of g, and says why. The log leaves out kube-apiserver's own words
// (told), which may name users.
func (a *Authorizer) revokeGrant(g *grant, reason, told string) {
	because := reason
	if told != "" {
		because += ": " + told
	}
	a.mu.Lock()
	watches := g.watches
	g.watches, g.revoked = nil, cmp.Or(g.revoked, because)
	if a.grants[g.question] == g {
		if delete(a.grants, g.question); len(watches) == 0 {
			a.standing--
		}
	}
	a.mu.Unlock()
	if len(watches) > 0 {
		a.log.Info("Revoked watches", "resource", request.ResourceText(g.resource), "watches", len(watches), "reason", reason)
	}
	for _, w := range watches {
		w.watch.Revoke()
	}
}
