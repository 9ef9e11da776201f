package auth

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/request"
)

// Each open watch is asked about again after --authorization-recheck-interval (by default
// recheckInterval) and up to a tenth more. At most grantReviews of these reviews are under way. A
// watch that has got no yes for maxGrantAge intervals ends: kube-apiserver has then failed to
// answer in five of them.
const (
	recheckInterval = time.Minute
	maxGrantAge     = 6
	grantReviews    = 16
)

// grant is kube-apiserver's permission for the open watches that share one question.
type grant struct {
	// Immutable. The identity is kept to ask the question again.
	question Question
	id       Identity
	review   []byte
	resource schema.GroupVersionResource

	// Guarded by Authorizer.mu.
	watches map[*openWatch]struct{}
	lastYes time.Time
	next    time.Time // when to ask again
	revoked string    // why it was revoked; empty before that
}

type openWatch struct {
	grant       *grant
	certificate *verifiedCertificate // nil if the client has shown a token; used by Run alone
	revoke      func()
	revoked     string // why this watch alone was revoked; guarded by Authorizer.mu
}

// WatchGrant asks again and again, while Run runs, whether id may do what req asks for. It calls
// revoke when the client may not any longer, or when kube-apiserver has not answered for too long.
// revoke is called at most once, by a goroutine of Run, and must not block. The caller calls
// release when the watch has ended. After that, revoke is not called, except for a call that is
// under way. release returns the reason if revoke was called. Open watches with the same question
// share one review. The proxy's own watches need none.
func (a *Authorizer) WatchGrant(id Identity, req *request.Request, revoke func()) (release func() (because string)) {
	if id.Kind == KindOwn {
		return func() string { return "" }
	}
	q, review := ReviewFor(id, AttributesOf(req))
	w := &openWatch{certificate: id.certificate, revoke: revoke}

	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.grants[q]
	if g == nil {
		now := time.Now()
		g = &grant{question: q, id: id, review: review, watches: make(map[*openWatch]struct{}), lastYes: now, next: a.nextReview(now), resource: req.GVR}
		a.grants[q] = g
	}
	w.grant = g
	g.watches[w] = struct{}{}
	if w.certificate != nil {
		a.certified[w] = struct{}{}
	}
	return func() string {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.endLocked(w)
		return cmp.Or(w.revoked, g.revoked)
	}
}

// endLocked forgets a watch, and its grant with the last watch.
func (a *Authorizer) endLocked(w *openWatch) {
	g := w.grant
	delete(a.certified, w)
	delete(g.watches, w)
	if len(g.watches) == 0 && a.grants[g.question] == g {
		delete(a.grants, g.question)
	}
}

func (a *Authorizer) nextReview(now time.Time) time.Time {
	return now.Add(a.interval + rand.N(a.interval/10))
}

// Run asks about open watches until ctx ends. The reviews are spread over the interval, because
// each grant's interval counts from its beginning. Then Run waits for all reviews that are under
// way, those of Authorize included, and lets no other begin.
func (a *Authorizer) Run(ctx context.Context) error {
	defer a.calls.End()
	var reviews sync.WaitGroup
	defer reviews.Wait()
	free := make(chan struct{}, grantReviews)
	tick := time.NewTicker(a.interval / 60)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		a.recheckCertificates(time.Now())
		due, expired := a.dueGrants(time.Now(), cap(free)-len(free))
		for _, g := range expired {
			a.revokeGrant(g, "kube-apiserver has not said for too long whether the client may read", "")
		}
		for _, g := range due {
			free <- struct{}{} // never blocks: only this loop adds, and due is no longer than what was free
			reviews.Go(func() {
				defer func() { <-free }()
				a.renew(ctx, g)
			})
		}
	}
}

// dueGrants returns at most n of the grants whose next review is due, those that have waited
// longest first. It also returns all grants that have had no yes for too long.
func (a *Authorizer) dueGrants(now time.Time, n int) (due, expired []*grant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range a.grants {
		switch {
		case now.Sub(g.lastYes) >= maxGrantAge*a.interval:
			expired = append(expired, g)
		case !now.Before(g.next):
			due = append(due, g)
		}
	}
	slices.SortFunc(due, func(g, h *grant) int { return g.next.Compare(h.next) })
	due = due[:min(n, len(due))]
	for _, g := range due {
		g.next = a.nextReview(now)
	}
	return due, expired
}

// renew asks a grant's question again.
func (a *Authorizer) renew(ctx context.Context, g *grant) {
	ctx, cancel := context.WithTimeout(ctx, ReviewTimeout)
	defer cancel()
	asked := time.Now()
	d := a.review(ctx, g.id, g.review)
	a.remember(g.question, d, asked)
	switch d.outcome {
	case allowed:
		a.mu.Lock()
		g.lastYes = time.Now()
		a.mu.Unlock()
	case denied:
		a.revokeGrant(g, "the client may no longer read, or is nobody any more", d.Reason())
	}
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
		delete(a.grants, g.question)
	}
	for w := range watches {
		delete(a.certified, w)
	}
	a.mu.Unlock()
	if len(watches) > 0 {
		a.log.Info("Revoked watches", "resource", request.ResourceText(g.resource), "watches", len(watches), "reason", reason)
	}
	for w := range watches {
		w.revoke()
	}
}
