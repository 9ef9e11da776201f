package auth

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/gate/fairness"
	"github.com/watchfan/watchfan/proxy/gate/remember"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const (
	// answerTTL is how long kube-apiserver's own delegating servers believe a review
	// (k8s.io/apiserver pkg/server/options/authentication.go and authorization.go). kube-apiserver
	// believes a webhook for minutes, and a client would keep a revoked right that much longer.
	answerTTL = 10 * time.Second

	// A yes that has been used is reviewed again when a tenth of its time is left.
	renewedPart = 10
	// maxRenewed bounds the reviews that are kept for that, in bytes. Usual ones have 300.
	maxRenewed = 4 << 10

	// ReviewTimeout bounds one review.
	ReviewTimeout = 10 * time.Second
	// standingPatience is how long a watch with a standing yes waits for a review.
	standingPatience = 2 * time.Second
)

// APIServer is kube-apiserver, as the packages above see it.
type APIServer interface {
	// DoAs sends req with the credentials of id, and no others.
	DoAs(id Identity, req *http.Request) (*http.Response, error)
	// URL returns the address of a path on kube-apiserver.
	URL(path, rawQuery string) *url.URL
}

// Authorizer decides whether a client may read cached data. It asks kube-apiserver, so the
// cluster's own authorizers decide, with all attributes that they would see without the proxy. Its
// methods may be called from any goroutine.
type Authorizer struct {
	// Immutable.
	server                APIServer
	metrics               *Metrics
	log                   *slog.Logger
	allowedTTL, deniedTTL time.Duration // for which a decision is believed
	interval              time.Duration // between two reviews of an open watch
	reasons               bool          // whether decisions have them: only an audit log reads them
	queue                 *reviewQueue
	Owners                *Owners // knows the owners of tokens

	calls     remember.Coalescer[Question, Decision]
	decisions answers[Decision]
	names     nameCounts // of gets

	mu       sync.Mutex
	grants   map[Question]*grant
	standing int // how many grants have no watch
}

// NewAuthorizer returns an authorizer that asks server. tokens are those that server has accepted.
// Decisions have their reasons if reasons is true.
func NewAuthorizer(
	server APIServer, tokens *KnownTokens, opts *Options, reasons bool, m *Metrics, guard *exchange.Guard,
) *Authorizer {
	queue := newReviewQueue(tokens, m)
	return &Authorizer{
		server:     server,
		metrics:    m,
		log:        guard.Log,
		allowedTTL: opts.AuthorizationWebhookCacheAuthorizedTTL,
		deniedTTL:  opts.AuthorizationWebhookCacheUnauthorizedTTL,
		interval:   opts.AuthorizationRecheckInterval,
		reasons:    reasons,
		queue:      queue,
		Owners:     newOwners(server, queue, opts.AuthenticationTokenWebhookCacheTTL),
		calls:      remember.Coalescer[Question, Decision]{Guard: guard},
		grants:     make(map[Question]*grant),
	}
}

// Authorize says whether id may do what req asks for. Unless the decision is Allowed, Busy or
// Unauthenticated, the caller passes the request through, and kube-apiserver itself answers it. After an error, and at
// the end of ctx, the decision is neither.
//
// Watches rely on the standing yes of their grant too: see the package's documentation, Reviews.
func (a *Authorizer) Authorize(ctx context.Context, id Identity, req *request.Request) Decision {
	switch id.Kind {
	case KindOwn:
		return ownRights
	case KindAnonymous:
		return Decision{} // kube-apiserver answers
	}
	attributes := AttributesOf(req)
	if req.Verb == "get" && id.Kind == KindToken {
		return a.get(ctx, id, attributes)
	}
	q, review := ReviewFor(id, attributes)
	if req.Verb != "watch" {
		return a.decide(ctx, id, q, review)
	}
	yes, age := a.standingYes(q)
	if yes.Allowed() {
		if req.Resumes() && age <= a.interval+a.interval/10 {
			a.metrics.fromMemory.Inc()
			return yes
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, standingPatience)
		defer cancel()
	}
	d := a.decide(ctx, id, q, review)
	if d.outcome == unclear || d.outcome == busy {
		if yes, _ = a.standingYes(q); yes.Allowed() {
			return yes
		}
	}
	return d
}

// decide says whether id may do what a review asks. It remembers decisions for a while. It says
// busy at once if too many other reviews wait.
func (a *Authorizer) decide(ctx context.Context, id Identity, q Question, review []byte) Decision {
	if d, ok := a.recall(q); ok {
		return d
	}
	a.metrics.fromUpstream.Inc()
	d, _ := a.calls.Do(ctx, q, ReviewTimeout, func(ctx context.Context) Decision {
		if d, ok := a.decisions.get(q); ok { // a call that has just ended asked the same
			return d
		}
		return a.ask(ctx, q, id, review)
	})
	return d
}

// recall returns a decision that is remembered.
func (a *Authorizer) recall(q Question) (d Decision, ok bool) {
	if d, ok = a.decisions.get(q); ok {
		a.metrics.fromMemory.Inc()
	}
	return d, ok
}

// ask asks kube-apiserver when the queue of reviews permits it, and remembers the decision.
func (a *Authorizer) ask(ctx context.Context, q Question, id Identity, review []byte) Decision {
	end, err := a.queue.begin(ctx, id)
	if errors.Is(err, fairness.ErrRefused) {
		return Decision{outcome: busy}
	}
	if err != nil {
		return Decision{}
	}
	defer end()
	return a.answer(ctx, q, id, review)
}

// renewUsed has a yes asked for again before its time ends, if it has been used by then.
func (a *Authorizer) renewUsed(q Question, yes Decision, again func(context.Context) Decision) {
	soon := yes.asked.Add(a.allowedTTL - a.allowedTTL/renewedPart)
	a.decisions.known.CallAt(q, soon, func() {
		if a.decisions.known.Used(q) {
			a.calls.Start(q, ReviewTimeout, again)
		}
	})
}

// remember keeps a yes or a no to a question of id. A yes renews the open watches with the same
// question, and a no revokes them.
func (a *Authorizer) remember(id Identity, q Question, d Decision) {
	source := a.Source(id)
	switch d.outcome {
	case allowed:
		a.decisions.known.PutFor(source, q, d, d.asked, a.allowedTTL)
		a.renewGrant(q, d)
	case denied:
		a.decisions.put(source, q, d, d.asked, a.deniedTTL)
		a.denyGrant(q, d)
	}
}

// Remembered returns the number of decisions in memory.
func (a *Authorizer) Remembered() int { return a.decisions.known.Len() + a.decisions.strangers.Len() }

// BelievedFor returns how long the yes to a request is believed while the request waits. A watch
// that waits shows nothing that an open watch would not have shown, so its yes is believed for as
// long as that of an open watch. With a TTL of 0 no yes is believed.
func (a *Authorizer) BelievedFor(req *request.Request) time.Duration {
	if req.Verb == "watch" && a.allowedTTL > 0 {
		return max(a.allowedTTL, a.interval)
	}
	return a.allowedTTL
}

// Known reports whether id brings a token that kube-apiserver has accepted lately.
func (a *Authorizer) Known(id Identity) bool { return a.queue.tokens.Known(id) }

// answers remembers what kube-apiserver says about clients. strangers has what it says about tokens that
// it does not accept: strangers bring any number of them, and must not make it forget the others.
type answers[V any] struct {
	known, strangers remember.TTLCache[Question, V]
}

// get returns an answer that has not expired.
func (a *answers[V]) get(q Question) (value V, ok bool) {
	if value, ok = a.known.Get(q); ok {
		return value, true
	}
	return a.strangers.Get(q)
}

// put remembers an answer that a source has caused, in place of the one from when the source was known,
// or was not.
func (a *answers[V]) put(source account.Source, q Question, value V, asked time.Time, ttl time.Duration) {
	keep, forget := &a.known, &a.strangers
	if source.Stranger {
		keep, forget = forget, keep
	}
	forget.Put(q, value, asked, 0)
	keep.PutFor(source, q, value, asked, ttl)
}

// confirmPause is the time between the two reviews if the proxy may not see /readyz, which nobody may
// in that moment.
const confirmPause = 2 * time.Second

// answer asks a question and remembers the decision.
//
// A kube-apiserver that starts serves before it has read the roles and their bindings, and says no to
// everybody until then. So a no that would end open watches is believed only from a kube-apiserver that
// is ready, and only if it says no again. While it is not ready, the decision is unclear.
func (a *Authorizer) answer(ctx context.Context, q Question, id Identity, review []byte) Decision {
	asked := time.Now()
	d := a.review(ctx, id, review)
	if d.outcome == denied && a.granted(q) {
		if d = (Decision{}); a.confirmable(ctx) {
			asked = time.Now()
			d = a.review(ctx, id, review)
		}
	}
	d.asked = asked
	a.remember(id, q, d)
	if d.outcome == allowed && len(review) <= maxRenewed {
		a.renewUsed(q, d, func(ctx context.Context) Decision { return a.ask(ctx, q, id, review) })
	}
	return d
}

// granted reports whether open watches rely on the yes to a question.
func (a *Authorizer) granted(q Question) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.grants[q]
	return g != nil && len(g.watches) > 0
}

// confirmable reports whether kube-apiserver is ready. If it does not say so, confirmable waits for as
// long as kube-apiserver may need.
func (a *Authorizer) confirmable(ctx context.Context) bool {
	req := &http.Request{Method: http.MethodGet, URL: a.server.URL("/readyz", ""), Header: http.Header{}}
	resp, err := a.server.DoAs(Identity{Kind: KindOwn}, req.WithContext(ctx))
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 4<<10)) // the connection can then be used again
	resp.Body.Close()
	switch {
	case resp.StatusCode < http.StatusMultipleChoices:
		return true
	case resp.StatusCode >= http.StatusInternalServerError:
		return false
	}
	return exchange.Sleep(ctx, confirmPause)
}
