package proxy

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
)

const (
	// answerTTL is how long kube-apiserver's own delegating servers believe a review
	// (k8s.io/apiserver pkg/server/options/authentication.go and authorization.go). The minutes for which kube-apiserver believes a webhook are
	// not for us: a right that is taken away would be had here for so much longer than there.
	answerTTL     = 10 * time.Second
	reviewTimeout = 10 * time.Second

	selfReviewPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	reviewPath     = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
	maxReviewBytes = 1 << 20
	// maxReason bounds what is kept of a reason, in bytes. One of RBAC's has the names of a binding, a role and a subject, usually of up to 253 bytes
	// each; a webhook's may be of any length. maxAnswers different ones are 16 MB.
	maxReason = 2 << 10

	// Open watches are asked about again every --authorization-recheck-interval, by default recheckInterval, and up to a tenth
	// more, by at most grantReviews requests at a time. One that has had no
	// yes for maxGrantAge intervals ends: five of them in which nobody could say.
	recheckInterval = time.Minute
	maxGrantAge     = 6
	grantReviews    = 16
)

// verdict is kube-apiserver's answer to a review.
type verdict int

const (
	verdictNone verdict = iota
	verdictNo
	verdictYes
	verdictBusy // nobody was asked: too many wait for reviews, and this one is refused (429)
)

// decision is a verdict and why. Thousands have one reason, which is in memory once, for as long as one of them has it.
type decision struct {
	verdict verdict
	reason  unique.Handle[string] // zero if there is none, or nobody wants to know
}

// because returns the reason, in the words of kube-apiserver's authorizers.
func (d decision) because() string {
	if d.reason == (unique.Handle[string]{}) {
		return ""
	}
	return d.reason.Value()
}

// ownRights is why the proxy itself may read.
var ownRights = unique.Make("the proxy's own identity, whose rights whoever reaches the insecure port has")

// authorizer decides who may read cached data by asking kube-apiserver, so that the
// cluster's own authorizers decide with all attributes they would see without the
// proxy. The owner of a token is asked about with that token (SelfSubjectAccessReview),
// which takes no rights of ours and no knowledge of who that is; a user that we know
// from a certificate or a front proxy is asked about by ourselves (SubjectAccessReview).
// Its methods may be called from any goroutine.
type authorizer struct {
	// Immutable.
	upstream      doer
	log           *slog.Logger
	yesTTL, noTTL time.Duration // for which a verdict is believed
	interval      time.Duration // after which an open watch is asked about again
	reasons       bool          // whether decisions have them: nobody but an audit log wants to know
	tokens        *knownTokens
	queue         *reviewQueue
	owners        *owners

	calls    coalescer[question, decision]
	verdicts answers[decision]

	mu      sync.Mutex
	grants  map[question]*grant
	vouched map[*openWatch]struct{} // those with a voucher
}

// grant is the permission that the open watches asking one question live on.
type grant struct {
	// Immutable. The identity is kept because the question will be asked again.
	question question
	id       identity
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

// newAuthorizer returns an authorizer that asks upstream. tokens are those that upstream has accepted. Decisions have their reasons if
// reasons is true.
func newAuthorizer(upstream doer, tokens *knownTokens, opts *AuthOptions, reasons bool, log *slog.Logger) *authorizer {
	queue := newReviewQueue(tokens)
	return &authorizer{
		upstream: upstream,
		log:      log,
		yesTTL:   opts.AuthorizationWebhookCacheAuthorizedTTL,
		noTTL:    opts.AuthorizationWebhookCacheUnauthorizedTTL,
		interval: opts.AuthorizationRecheckInterval,
		reasons:  reasons,
		tokens:   tokens,
		queue:    queue,
		owners:   newOwners(upstream, queue, opts.AuthenticationTokenWebhookCacheTTL),
		grants:   make(map[question]*grant),
		vouched:  make(map[*openWatch]struct{}),
	}
}

// authorize says whether id may do what req asks for. Unless that is a clear yes, for an error or the end of ctx too, the caller passes the
// request through, and kube-apiserver itself answers it.
func (a *authorizer) authorize(ctx context.Context, id identity, req *request) decision {
	switch id.kind {
	case kindOwn:
		return decision{verdictYes, ownRights}
	case kindAnonymous:
		return decision{} // nobody to ask about; upstream answers
	}
	return a.decide(ctx, id, attributesOf(req))
}

// decide says whether id may do what attributes say, from memory if it was asked a moment ago. It says verdictBusy at once
// if too many others wait to be asked about.
func (a *authorizer) decide(ctx context.Context, id identity, attributes resourceAttributes) decision {
	q, review := reviewFor(id, attributes)
	if d, ok := a.verdicts.get(q); ok {
		authorizedFromMemory.Inc()
		return d
	}
	authorizedFromUpstream.Inc()
	d, _ := a.calls.do(ctx, q, reviewTimeout, func(ctx context.Context) decision {
		end, err := a.queue.begin(ctx, id)
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
func unasked(err error) decision {
	if errors.Is(err, errReviewsBusy) {
		return decision{verdict: verdictBusy}
	}
	return decision{}
}

// watchGrant keeps asking, while Run runs, whether id may do what req asks for,
// and calls revoke when it may not any longer, or when nobody has been able to
// say so for too long. revoke is called at most once, by a goroutine of Run,
// and must not block. The caller calls release when the watch has ended; revoke
// is not called after that, except for a call that is under way. release returns
// why, if it was called. Open watches that ask the same question share one
// review. The proxy's own watches need none.
func (a *authorizer) watchGrant(id identity, req *request, revoke func()) (release func() (because string)) {
	if id.kind == kindOwn {
		return func() string { return "" }
	}
	q, review := reviewFor(id, attributesOf(req))
	w := &openWatch{voucher: id.voucher, revoke: revoke}

	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.grants[q]
	if g == nil {
		now := time.Now()
		g = &grant{question: q, id: id, review: review, watches: make(map[*openWatch]struct{}), lastYes: now, next: a.nextReview(now), resource: req.gvr}
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
func (a *authorizer) endLocked(w *openWatch) {
	g := w.grant
	delete(a.vouched, w)
	delete(g.watches, w)
	if len(g.watches) == 0 && a.grants[g.question] == g {
		delete(a.grants, g.question)
	}
}

func (a *authorizer) nextReview(now time.Time) time.Time {
	return now.Add(a.interval + rand.N(a.interval/10))
}

// Run asks about open watches until ctx ends. The reviews are spread over the
// interval, each watch's by when it began.
func (a *authorizer) Run(ctx context.Context) error {
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
func (a *authorizer) dueGrants(now time.Time, n int) (due, expired []*grant) {
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
func (a *authorizer) renew(ctx context.Context, g *grant) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	asked := time.Now()
	d := a.review(ctx, g.id, g.review)
	a.remember(g.question, d, asked)
	switch d.verdict {
	case verdictYes:
		a.mu.Lock()
		g.lastYes = time.Now()
		a.mu.Unlock()
	case verdictNo:
		a.revoke(g, "the client may no longer read, or is nobody any more", d.because())
	}
}

// revoke ends the watches that live on g, and says why. What kube-apiserver has told of it may name users, and is not for the log.
func (a *authorizer) revoke(g *grant, reason, told string) {
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
		a.log.Info("Revoked watches", "resource", resourceText(g.resource), "watches", len(watches), "reason", reason)
	}
	for w := range watches {
		w.revoke()
	}
}

// remember keeps a yes or a no to what was asked at asked.
func (a *authorizer) remember(q question, d decision, asked time.Time) {
	switch d.verdict {
	case verdictYes:
		a.verdicts.put(q, d, asked, a.yesTTL)
	case verdictNo:
		a.verdicts.put(q, d, asked, a.noTTL)
	}
}

// review asks kube-apiserver. A token that it does not take (401), or whose owner
// may not even ask (403), is denied.
// That we may not ask about others says nothing about them.
func (a *authorizer) review(ctx context.Context, id identity, review []byte) (d decision) {
	as, path := id, selfReviewPath
	if id.user != nil {
		as, path = identity{kind: kindOwn}, reviewPath
	}
	defer func() { accessReviews[d.verdict].Inc() }()
	code, answer, err := postReview(ctx, a.upstream, as, path, review, maxReviewBytes)
	a.tokens.heard(as, http.MethodPost, code)
	switch code {
	case http.StatusCreated, http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		if as.kind == kindOwn {
			reviewsRefused.Inc()
			return decision{}
		}
		return decision{verdict: verdictNo}
	default:
		return decision{}
	}
	var reviewed struct {
		Kind   string
		Status struct {
			Allowed, Denied bool
			Reason          string
		}
	}
	if err != nil || json.Unmarshal(answer, &reviewed) != nil || reviewed.Kind != reviewKind(id) {
		return decision{}
	}
	d.verdict = verdictNo
	if reviewed.Status.Allowed && !reviewed.Status.Denied {
		d.verdict = verdictYes
	}
	if a.reasons {
		d.reason = unique.Make(truncated(reviewed.Status.Reason, maxReason))
	}
	return d
}

// truncated returns the first most bytes of s, marked as kube-apiserver marks a user agent that it cuts.
func truncated(s string, most int) string {
	if len(s) > most {
		return s[:most] + "...TRUNCATED"
	}
	return s
}

// postReview has kube-apiserver answer a review that somebody asks for. code is 0 if it does not; answer is at most so many bytes of a good one.
func postReview(ctx context.Context, upstream doer, as identity, path string, review []byte, most int64) (code int, answer []byte, err error) {
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
func reviewKind(id identity) string {
	if id.user != nil {
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

// attributesOf returns what kube-apiserver itself would authorize req by (k8s.io/apiserver
// pkg/endpoints/filters/authorization.go).
func attributesOf(req *request) resourceAttributes {
	attributes := resourceAttributes{
		Namespace: req.namespace,
		Verb:      req.verb,
		Group:     req.gvr.Group,
		Version:   req.gvr.Version,
		Resource:  req.gvr.Resource,
		Name:      cmp.Or(req.name, req.selectorName),
	}
	if !req.legacyWatch && req.verb != "get" {
		attributes.FieldSelector = fieldAttributes(req.fields)
		attributes.LabelSelector = labelAttributes(req.labels)
	}
	return attributes
}

// reviewFor returns the review that id has to pass for attributes, and the question it
// stands for. Different users and different tokens have different questions.
func reviewFor(id identity, attributes resourceAttributes) (question, []byte) {
	spec := accessReviewSpec{ResourceAttributes: attributes}
	if u := id.user; u != nil {
		spec.User, spec.UID, spec.Groups, spec.Extra = u.name, u.uid, u.groups, u.extra
	}
	review, err := json.Marshal(accessReview{
		APIVersion: "authorization.k8s.io/v1",
		Kind:       reviewKind(id),
		Spec:       spec,
	})
	if err != nil {
		panic(err) // strings, and slices and maps of them, cannot fail
	}
	token := sha256.Sum256([]byte(id.token))
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
