package auth

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/watchfan/watchfan/proxy/request"
)

const (
	// AnswerTTL is how long kube-apiserver's own delegating servers believe a review
	// (k8s.io/apiserver pkg/server/options/authentication.go and authorization.go). The minutes for
	// which kube-apiserver believes a webhook are not for us: a right that is taken away would be
	// had here for so much longer than there.
	AnswerTTL     = 10 * time.Second
	ReviewTimeout = 10 * time.Second

	selfReviewPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	reviewPath     = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
	maxReviewBytes = 1 << 20
	// maxReason bounds what is kept of a reason, in bytes. One of RBAC's has the names of a
	// binding, a role and a subject, usually of up to 253 bytes each; a webhook's may be of any
	// length. maxAnswers different ones are 16 MB.
	maxReason = 2 << 10

	// Open watches are asked about again every --authorization-recheck-interval, by default
	// recheckInterval, and up to a tenth more, by at most grantReviews requests at a time. One that
	// has had no yes for maxGrantAge intervals ends: five of them in which nobody could say.
	recheckInterval = time.Minute
	maxGrantAge     = 6
	grantReviews    = 16
)

// verdict is kube-apiserver's answer to a review.
type verdict int

const (
	verdictNone verdict = iota
	verdictNo
	VerdictYes
	VerdictBusy // nobody was asked: too many wait for reviews, and this one is refused (429)
)

// Decision is a verdict and why. Thousands have one reason, which is in memory once, for as long as
// one of them has it.
type Decision struct {
	Verdict verdict
	Reason  unique.Handle[string] // zero if there is none, or nobody wants to know
}

// Because returns the reason, in the words of kube-apiserver's authorizers.
func (d Decision) Because() string {
	if d.Reason == (unique.Handle[string]{}) {
		return ""
	}
	return d.Reason.Value()
}

// ownRights is why the proxy itself may read.
var ownRights = unique.Make("the proxy's own identity, whose rights whoever reaches the insecure port has")

// Authorizer decides who may read cached data by asking kube-apiserver, so that the
// cluster's own authorizers decide with all attributes they would see without the
// proxy. The owner of a token is asked about with that token (SelfSubjectAccessReview),
// which takes no rights of ours and no knowledge of who that is; a user that we know
// from a certificate or a front proxy is asked about by ourselves (SubjectAccessReview).
// Its methods may be called from any goroutine.
type Authorizer struct {
	// Immutable.
	upstream      Doer
	log           *slog.Logger
	YesTTL, noTTL time.Duration // for which a verdict is believed
	interval      time.Duration // after which an open watch is asked about again
	reasons       bool          // whether decisions have them: nobody but an audit log wants to know
	tokens        *KnownTokens
	Queue         *reviewQueue
	Owners        *Owners

	calls    Coalescer[Question, Decision]
	Verdicts TTLCache[Decision]

	mu      sync.Mutex
	grants  map[Question]*grant
	vouched map[*openWatch]struct{} // those with a voucher
}

// grant is the permission that the open watches asking one question live on.
type grant struct {
	// Immutable. The identity is kept because the question will be asked again.
	question Question
	id       Identity
	review   []byte
	resource schema.GroupVersionResource

	// Guarded by authorizer.mu.
	watches map[*openWatch]struct{}
	lastYes time.Time
	next    time.Time // when to ask again
	revoked string    // why, once it is
}

type openWatch struct {
	grant   *grant
	voucher *voucher // nil: the token speaks for itself; used by Run alone
	revoke  func()
	revoked string // why, if it is this watch alone; guarded by authorizer.mu
}

// NewAuthorizer returns an authorizer that asks upstream. tokens are those that upstream has
// accepted. Decisions have their reasons if reasons is true.
func NewAuthorizer(upstream Doer, tokens *KnownTokens, opts *Options, reasons bool, log *slog.Logger) *Authorizer {
	queue := NewReviewQueue(tokens)
	return &Authorizer{
		upstream: upstream,
		log:      log,
		YesTTL:   opts.AuthorizationWebhookCacheAuthorizedTTL,
		noTTL:    opts.AuthorizationWebhookCacheUnauthorizedTTL,
		interval: opts.AuthorizationRecheckInterval,
		reasons:  reasons,
		tokens:   tokens,
		Queue:    queue,
		Owners:   NewOwners(upstream, queue, opts.AuthenticationTokenWebhookCacheTTL),
		grants:   make(map[Question]*grant),
		vouched:  make(map[*openWatch]struct{}),
	}
}

// Authorize says whether id may do what req asks for. Unless that is a clear yes, for an error or
// the end of ctx too, the caller passes the request through, and kube-apiserver itself answers it.
func (a *Authorizer) Authorize(ctx context.Context, id Identity, req *request.Request) Decision {
	switch id.Kind {
	case KindOwn:
		return Decision{VerdictYes, ownRights}
	case KindAnonymous:
		return Decision{} // nobody to ask about; upstream answers
	}
	return a.decide(ctx, id, AttributesOf(req))
}

// decide says whether id may do what attributes say, from memory if it was asked a moment ago. It
// says verdictBusy at once if too many others wait to be asked about.
func (a *Authorizer) decide(ctx context.Context, id Identity, attributes resourceAttributes) Decision {
	q, review := ReviewFor(id, attributes)
	if d, ok := a.Verdicts.Get(q); ok {
		authorizedFromMemory.Inc()
		return d
	}
	authorizedFromUpstream.Inc()
	d, _ := a.calls.Do(ctx, q, ReviewTimeout, func(ctx context.Context) Decision {
		end, err := a.Queue.begin(ctx, id)
		if err != nil {
			return unasked(err)
		}
		defer end()
		asked := time.Now()
		d := a.review(ctx, id, review)
		a.remember(q, d, asked)
		return d
	})
	return d
}

// unasked is the decision where the queue has let no review begin.
func unasked(err error) Decision {
	if errors.Is(err, errReviewsBusy) {
		return Decision{Verdict: VerdictBusy}
	}
	return Decision{}
}

// WatchGrant keeps asking, while Run runs, whether id may do what req asks for,
// and calls revoke when it may not any longer, or when nobody has been able to
// say so for too long. revoke is called at most once, by a goroutine of Run,
// and must not block. The caller calls release when the watch has ended; revoke
// is not called after that, except for a call that is under way. release returns
// why, if it was called. Open watches that ask the same question share one
// review. The proxy's own watches need none.
func (a *Authorizer) WatchGrant(id Identity, req *request.Request, revoke func()) (release func() (because string)) {
	if id.Kind == KindOwn {
		return func() string { return "" }
	}
	q, review := ReviewFor(id, AttributesOf(req))
	w := &openWatch{voucher: id.voucher, revoke: revoke}

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
	if w.voucher != nil {
		a.vouched[w] = struct{}{}
	}
	return func() string {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.endLocked(w)
		return cmp.Or(w.revoked, g.revoked)
	}
}

// endLocked forgets a watch, and its grant if it was the last.
func (a *Authorizer) endLocked(w *openWatch) {
	g := w.grant
	delete(a.vouched, w)
	delete(g.watches, w)
	if len(g.watches) == 0 && a.grants[g.question] == g {
		delete(a.grants, g.question)
	}
}

func (a *Authorizer) nextReview(now time.Time) time.Time {
	return now.Add(a.interval + rand.N(a.interval/10))
}

// Run asks about open watches until ctx ends. The reviews are spread over the
// interval, each watch's by when it began.
func (a *Authorizer) Run(ctx context.Context) error {
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
		a.checkVouchers(time.Now())
		due, expired := a.dueGrants(time.Now(), cap(free)-len(free))
		for _, g := range expired {
			a.revoke(g, "kube-apiserver has not said for too long whether the client may read", "")
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

// dueGrants returns at most n of the grants whose time has come, those that have
// waited longest first, and all that have gone without an answer for too long.
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
	switch d.Verdict {
	case VerdictYes:
		a.mu.Lock()
		g.lastYes = time.Now()
		a.mu.Unlock()
	case verdictNo:
		a.revoke(g, "the client may no longer read, or is nobody any more", d.Because())
	}
}

// revoke ends the watches that live on g, and says why. What kube-apiserver has told of it may name
// users, and is not for the log.
func (a *Authorizer) revoke(g *grant, reason, told string) {
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
		delete(a.vouched, w)
	}
	a.mu.Unlock()
	if len(watches) > 0 {
		a.log.Info("Revoked watches", "resource", request.ResourceText(g.resource), "watches", len(watches), "reason", reason)
	}
	for w := range watches {
		w.revoke()
	}
}

// remember keeps a yes or a no to what was asked at asked.
func (a *Authorizer) remember(q Question, d Decision, asked time.Time) {
	switch d.Verdict {
	case VerdictYes:
		a.Verdicts.Put(q, d, asked, a.YesTTL)
	case verdictNo:
		a.Verdicts.Put(q, d, asked, a.noTTL)
	}
}

// review asks kube-apiserver. A token that it does not take (401), or whose owner
// may not even ask (403), is denied.
// That we may not ask about others says nothing about them.
func (a *Authorizer) review(ctx context.Context, id Identity, review []byte) (d Decision) {
	as, path := id, selfReviewPath
	if id.User != nil {
		as, path = Identity{Kind: KindOwn}, reviewPath
	}
	defer func() { accessReviews[d.Verdict].Inc() }()
	code, answer, err := postReview(ctx, a.upstream, as, path, review, maxReviewBytes)
	a.tokens.Heard(as, http.MethodPost, code)
	switch code {
	case http.StatusCreated, http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		if as.Kind == KindOwn {
			reviewsRefused.Inc()
			return Decision{}
		}
		return Decision{Verdict: verdictNo}
	default:
		return Decision{}
	}
	var reviewed struct {
		Kind   string
		Status struct {
			Allowed, Denied bool
			Reason          string
		}
	}
	if err != nil || json.Unmarshal(answer, &reviewed) != nil || reviewed.Kind != reviewKind(id) {
		return Decision{}
	}
	d.Verdict = verdictNo
	if reviewed.Status.Allowed && !reviewed.Status.Denied {
		d.Verdict = VerdictYes
	}
	if a.reasons {
		d.Reason = unique.Make(Truncated(reviewed.Status.Reason, maxReason))
	}
	return d
}

// Truncated returns the first most bytes of s, marked as kube-apiserver marks a user agent that it
// cuts.
func Truncated(s string, most int) string {
	if len(s) > most {
		return s[:most] + "...TRUNCATED"
	}
	return s
}

// postReview has kube-apiserver answer a review that somebody asks for. code is 0 if it does not;
// answer is at most so many bytes of a good one.
func postReview(ctx context.Context, upstream Doer, as Identity, path string, review []byte, most int64) (code int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, upstream.URL(path, "").String(), bytes.NewReader(review))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := upstream.DoAs(as, req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusCreated || resp.StatusCode == http.StatusOK {
		answer, err = io.ReadAll(io.LimitReader(resp.Body, most))
	}
	return resp.StatusCode, answer, err
}

// reviewKind is the kind of the review that id has to pass.
func reviewKind(id Identity) string {
	if id.User != nil {
		return "SubjectAccessReview"
	}
	return "SelfSubjectAccessReview"
}

// accessReview is what we send of a SelfSubjectAccessReview or a SubjectAccessReview of
// authorization.k8s.io/v1, with the field names of k8s.io/api/authorization/v1,
// which nothing else here needs.
type accessReview struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"`
	Spec       accessReviewSpec `json:"spec"`
}

type accessReviewSpec struct {
	User   string              `json:"user,omitempty"` // it and the next three of a SubjectAccessReview only
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`

	ResourceAttributes resourceAttributes `json:"resourceAttributes"`
}

type resourceAttributes struct {
	Namespace     string              `json:"namespace,omitempty"`
	Verb          string              `json:"verb"`
	Group         string              `json:"group,omitempty"`
	Version       string              `json:"version"`
	Resource      string              `json:"resource"`
	Subresource   string              `json:"subresource,omitempty"`
	Name          string              `json:"name,omitempty"`
	FieldSelector *selectorAttributes `json:"fieldSelector,omitempty"`
	LabelSelector *selectorAttributes `json:"labelSelector,omitempty"`
}

type selectorAttributes struct {
	Requirements []requirementAttributes `json:"requirements"`
}

type requirementAttributes struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values,omitempty"`
}

// AttributesOf returns what kube-apiserver itself would authorize req by (k8s.io/apiserver
// pkg/endpoints/filters/authorization.go).
func AttributesOf(req *request.Request) resourceAttributes {
	attributes := resourceAttributes{
		Namespace: req.Namespace,
		Verb:      req.Verb,
		Group:     req.GVR.Group,
		Version:   req.GVR.Version,
		Resource:  req.GVR.Resource,
		Name:      req.ObjectName(),
	}
	if !req.LegacyWatch && req.Verb != "get" {
		attributes.FieldSelector = fieldAttributes(req.Fields)
		attributes.LabelSelector = labelAttributes(req.Labels)
	}
	return attributes
}

// ReviewFor returns the review that id has to pass for attributes, and the question it
// stands for. Different users and different tokens have different questions.
func ReviewFor(id Identity, attributes resourceAttributes) (Question, []byte) {
	spec := accessReviewSpec{ResourceAttributes: attributes}
	if u := id.User; u != nil {
		spec.User, spec.UID, spec.Groups, spec.Extra = u.Name, u.UID, u.Groups, u.Extra
	}
	review, err := json.Marshal(accessReview{
		APIVersion: "authorization.k8s.io/v1",
		Kind:       reviewKind(id),
		Spec:       spec,
	})
	if err != nil {
		panic(err) // strings, and slices and maps of them, cannot fail
	}
	token := sha256.Sum256([]byte(id.Token))
	return sha256.Sum256(append(token[:], review...)), review
}

func fieldAttributes(sel fields.Selector) *selectorAttributes {
	var attributes selectorAttributes
	for _, r := range sel.Requirements() {
		attributes.add(r.Field, r.Operator, []string{r.Value})
	}
	return attributes.orNil()
}

func labelAttributes(sel labels.Selector) *selectorAttributes {
	var attributes selectorAttributes
	requirements, _ := sel.Requirements()
	for _, r := range requirements {
		attributes.add(r.Key(), r.Operator(), r.ValuesUnsorted())
	}
	return attributes.orNil()
}

// add adds a requirement, unless it is one that a review cannot express (a
// label's > and <): leaving it out asks for more, never for less.
func (s *selectorAttributes) add(key string, op selection.Operator, values []string) {
	r := requirementAttributes{Key: key, Values: values}
	switch op {
	case selection.Equals, selection.DoubleEquals, selection.In:
		r.Operator = "In"
	case selection.NotEquals, selection.NotIn:
		r.Operator = "NotIn"
	case selection.Exists:
		r.Operator, r.Values = "Exists", nil
	case selection.DoesNotExist:
		r.Operator, r.Values = "DoesNotExist", nil
	default:
		return
	}
	slices.Sort(r.Values)
	s.Requirements = append(s.Requirements, r)
}

func (s *selectorAttributes) orNil() *selectorAttributes {
	if len(s.Requirements) == 0 {
		return nil
	}
	return s
}
