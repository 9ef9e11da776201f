package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/remember"
)

const (
	// manyNames is how many names of a resource a token must have been allowed to get, each by a review of its own
	// and all within the time that a yes is believed, before it is asked whether it may get any name.
	manyNames = 4
	// unprovenFor is how long it is remembered that kube-apiserver does not say so.
	unprovenFor = time.Minute
	// maxRulesBytes bounds the answer to a rules review. That of cluster-admin has 1 KB, and a rule 100 bytes.
	maxRulesBytes = 256 << 10

	// nowhere is a namespace that cannot exist. No RoleBinding is there, so the rules there are those of all
	// namespaces, and of objects that have none.
	nowhere = "*"
)

// anyName is the question whether a token may get a resource's objects of any name: in a namespace, or everywhere.
type anyName struct {
	question Question
	id       Identity
	get      resourceAttributes // without a name; everywhere without a namespace
	review   []byte             // of get
}

// anyNames returns the questions whose yes is one to a get, too: everywhere, and in its namespace.
func anyNames(id Identity, get resourceAttributes) iter.Seq[anyName] {
	return func(yield func(anyName) bool) {
		get := get
		get.Name = ""
		for _, namespace := range slices.Compact([]string{"", get.Namespace}) {
			get.Namespace = namespace
			q, review := ReviewFor(id, get)
			if !yield(anyName{q, id, get, review}) {
				return
			}
		}
	}
}

// get is decide for a get of a token. A token that may get any name needs no review of this one: see the package's
// documentation, Names.
func (a *Authorizer) get(ctx context.Context, id Identity, get resourceAttributes) Decision {
	q, review := ReviewFor(id, get)
	if d, ok := a.recall(q); ok {
		return d
	}
	wider := anyNames(id, get)
	for w := range wider {
		if d, _ := a.decisions.get(w.question); d.Allowed() {
			a.metrics.fromMemory.Inc()
			return d
		}
	}
	d := a.decide(ctx, id, q, review)
	if d.Allowed() {
		a.widen(q, wider)
	}
	return d
}

// widen counts a name that was allowed. If there are many, it has the first of the wider questions asked that
// kube-apiserver has not said no to. Nobody waits for the answer.
func (a *Authorizer) widen(q Question, wider iter.Seq[anyName]) {
	for w := range wider {
		switch d, known := a.decisions.get(w.question); {
		case known && d.outcome == denied:
			continue
		case !known && a.names.count(a.Source(w.id), w.question, q, a.allowedTTL) == manyNames:
			a.calls.Start(w.question, ReviewTimeout, func(ctx context.Context) Decision { return a.prove(ctx, w) })
		}
		return
	}
}

// prove asks a wider question when the queue of reviews permits it, and remembers what kube-apiserver says. If it
// says nothing, an earlier yes ends at its time.
func (a *Authorizer) prove(ctx context.Context, w anyName) Decision {
	end, err := a.queue.begin(ctx, w.id)
	if err != nil {
		return Decision{}
	}
	defer end()
	asked := time.Now()
	d, said := a.proof(ctx, w)
	a.metrics.rules[d.outcome].Inc()
	switch d.asked = asked; {
	case d.Allowed():
		a.remember(w.id, w.question, d)
		a.renewUsed(w.question, d, func(ctx context.Context) Decision { return a.prove(ctx, w) })
	case said:
		a.decisions.put(a.Source(w.id), w.question, d, asked, unprovenFor)
	}
	return d
}

// proof is allowed if the token may get any name, denied if it may not, and unclear if an authorizer may decide by
// the name. said reports whether kube-apiserver has answered.
func (a *Authorizer) proof(ctx context.Context, w anyName) (d Decision, said bool) {
	namespace := w.get.Namespace
	if namespace == "" {
		namespace = nowhere
	}
	var rules RulesReview
	code, _, err := postReview(ctx, a.server, w.id, RulesReviewPath, RulesReviewFor(namespace), maxRulesBytes, &rules)
	switch {
	case code == 0 || apistatus.Busy(code):
		return Decision{}, false
	case err != nil || !rules.Complete():
		return Decision{}, true
	}
	if _, all := rules.Names(w.get.Verb, w.get.Group, w.get.Resource); !all {
		return Decision{outcome: denied}, true
	}
	d = a.review(ctx, w.id, w.review)
	return d, d.outcome != unclear
}

// nameCounts counts the names that tokens were allowed to get, for each wider question. The zero value is empty.
type nameCounts struct {
	all remember.TTLCache[Question, nameCount]
}

type nameCount struct {
	n     int
	last  Question // of the name that was counted last
	since time.Time
}

// count returns how many names have been counted for a question since the first one, which was a time ago at most.
// After manyNames it begins anew.
func (c *nameCounts) count(source account.Source, of, name Question, within time.Duration) int {
	got, ok := c.all.Get(of)
	switch {
	case !ok:
		got.since = time.Now()
	case got.last == name: // of callers that have shared a review
		return 0
	}
	if got.n++; got.n == manyNames {
		within = 0
	}
	got.last = name
	c.all.PutFor(source, of, got, got.since, within)
	return got.n
}

// RulesReviewPath is where a SelfSubjectRulesReview is posted.
const RulesReviewPath = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"

// RulesReviewFor returns the SelfSubjectRulesReview about a namespace, in JSON.
func RulesReviewFor(namespace string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview","spec":{"namespace":%q}}`, namespace)
}

// RulesReview is the answer to a SelfSubjectRulesReview (authorization.k8s.io/v1), as far as it is read.
type RulesReview struct {
	Status rulesStatus
}

type rulesStatus struct {
	ResourceRules    []struct{ Verbs, APIGroups, Resources, ResourceNames []string }
	NonResourceRules json.RawMessage
	EvaluationError  string // also of bindings to roles that there are not; the rules are good all the same
	Incomplete       *bool
	unknown          bool // it has members that are not known
}

func (s *rulesStatus) UnmarshalJSON(b []byte) error {
	type known rulesStatus
	strict := json.NewDecoder(bytes.NewReader(b))
	strict.DisallowUnknownFields()
	s.unknown = strict.Decode((*known)(new(rulesStatus))) != nil
	return json.Unmarshal(b, (*known)(s))
}

// Complete reports whether these are all rules of the cluster's authorizers about the user.
func (r *RulesReview) Complete() bool {
	return r.Status.Incomplete != nil && !*r.Status.Incomplete && !r.Status.unknown
}

// Names returns the names of a resource's objects to which the user may do what a verb says. all says that there is
// a rule without names, which is for all objects.
func (r *RulesReview) Names(verb, group, resource string) (names []string, all bool) {
	for _, rule := range r.Status.ResourceRules {
		has := func(in []string, s string) bool { return slices.Contains(in, s) || slices.Contains(in, "*") }
		if has(rule.Verbs, verb) && has(rule.APIGroups, group) && has(rule.Resources, resource) {
			names = append(names, rule.ResourceNames...)
			all = all || len(rule.ResourceNames) == 0
		}
	}
	slices.Sort(names)
	return slices.Compact(names), all
}
