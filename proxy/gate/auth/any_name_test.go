package auth

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/gate/remember"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

const (
	mayGetPods = `{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}`
	mayGetTwo  = `{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"resourceNames":["p0","p1"]}`
)

// ruled is a kube-apiserver with rules. What it says and was asked is guarded by up.Mu.
type ruled struct {
	*Authorizer
	up         *proxytest.FakeUpstream[Identity]
	t          *testing.T
	rules      map[string]string // by the namespace that is asked for; the others have none
	incomplete string            // the rest of a rules review's status
	code       int               // of rules reviews, instead of 201
	allow      func(resourceAttributes) bool
	asked      [3]int // reviews of names, rules reviews, and reviews without a name
}

func newRuled(t *testing.T) *ruled {
	r := &ruled{t: t, rules: map[string]string{}, incomplete: `"incomplete":false`, code: 201,
		allow: func(resourceAttributes) bool { return true }}
	r.up = &proxytest.FakeUpstream[Identity]{Answer: r.answer}
	r.Authorizer = authorizerOf(r.up)
	return r
}

func (r *ruled) answer(id Identity, path string, body []byte) (int, string, error) {
	var review struct {
		Spec struct {
			Namespace          string
			ResourceAttributes resourceAttributes
		}
	}
	if err := json.Unmarshal(body, &review); err != nil {
		return 0, "", err
	}
	if path == RulesReviewPath {
		if r.asked[1]++; id.Kind != KindToken {
			return 0, "", fmt.Errorf("asked as %v", id.Kind)
		}
		const answer = `{"kind":"SelfSubjectRulesReview","spec":{},"status":{"resourceRules":[%s],"nonResourceRules":[],%s}}`
		return r.code, fmt.Sprintf(answer, r.rules[review.Spec.Namespace], r.incomplete), nil
	}
	get := review.Spec.ResourceAttributes
	if get.Name == "" {
		r.asked[2]++
	} else {
		r.asked[0]++
	}
	return 201, fmt.Sprintf(`{"kind":%q,"status":{"allowed":%t}}`, reviewKind(id), r.allow(get)), nil
}

// gets has pods of a namespace got, one each 100 ms, by names that nobody has got before. It returns how many were
// allowed.
func (r *ruled) gets(id Identity, namespace string, first, n int) (allowed int) {
	for i := range n {
		req := parse(r.t, fmt.Sprintf("/api/v1/namespaces/%s/pods/p%d", namespace, first+i))
		if r.allowed(r.t.Context(), id, req) {
			allowed++
		}
		time.Sleep(100 * time.Millisecond)
	}
	return allowed
}

// want compares what was asked since the last call.
func (r *ruled) want(what string, names, rules, nameless int) {
	r.t.Helper()
	synctest.Wait()
	r.up.Mu.Lock()
	defer r.up.Mu.Unlock()
	if want := [3]int{names, rules, nameless}; r.asked != want {
		r.t.Errorf("%s: %d reviews of names, rules, and without a name; want %d", what, r.asked, want)
	}
	r.asked = [3]int{}
}

// A token that may get any name is reviewed for four names, and then once in nine seconds for all. Its neighbour is
// reviewed by itself.
func TestAnyName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuled(t)
		r.rules[nowhere] = mayGetPods
		for i := range 20 {
			if n := r.gets(byToken("t"), fmt.Sprintf("n%d", i), 10*i, 10); n != 10 {
				t.Errorf("%d of 10 gets are allowed", n)
			}
		}
		r.want("20 s", manyNames, 3, 3)
		time.Sleep(2 * answerTTL) // one renewal is still due
		r.want("a pause", 0, 1, 1)
		r.gets(byToken("t"), "n", 0, 1)
		r.gets(byToken("u"), "n", 0, 1)
		r.want("after a pause, and another token", 2, 0, 0)
		r.gets(byToken("t"), "n", 1, manyNames-2)
		time.Sleep(answerTTL)
		r.gets(byToken("t"), "n", manyNames, manyNames-1)
		r.want("few names in 10 s", 2*manyNames-3, 0, 0)
		r.gets(byCertificate("jane"), "n", 0, 10)
		r.want("a certificate", 10, 0, 0)
		r.allowed(t.Context(), byToken("t"), parse(t, "/api/v1/namespaces/n/pods"))
		r.want("a list, which has no name", 0, 0, 1)
	})
}

// The right to get any name in one namespace is none in another.
func TestAnyNameOfNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuled(t)
		r.rules["n"] = mayGetPods
		r.allow = func(get resourceAttributes) bool { return get.Namespace == "n" }
		if n := r.gets(byToken("t"), "n", 0, 50); n != 50 {
			t.Errorf("%d of 50 gets are allowed", n)
		}
		r.want("its namespace", 2*manyNames, 2, 1)
		if n := r.gets(byToken("t"), "m", 0, 10); n != 0 {
			t.Errorf("%d gets are allowed in another namespace", n)
		}
		r.want("another namespace", 10, 0, 0)
	})
}

// Unless kube-apiserver says clearly that any name may be got, each is reviewed. It is asked that once a minute.
func TestNoAnyName(t *testing.T) {
	const names = 200 // 20 s
	const complete = `"incomplete":false`
	huge := strings.Repeat(mayGetTwo+",", maxRulesBytes/len(mayGetTwo)) + mayGetPods
	for name, c := range map[string]struct {
		rules, status   string
		code            int
		rulesN, without int
	}{
		"a webhook":                  {mayGetPods, `"incomplete":true,"evaluationError":"no rule resolution"`, 201, 1, 0},
		"an old server":              {mayGetPods, `"evaluationError":""`, 201, 1, 0},
		"conditions":                 {mayGetPods, complete + `,"conditional":[]`, 201, 1, 0},
		"conditions of a rule":       {strings.Replace(mayGetPods, "}", `,"conditions":[]}`, 1), complete, 201, 1, 0},
		"names":                      {mayGetTwo, complete, 201, 2, 0},
		"another verb":               {strings.ReplaceAll(mayGetPods, `"get"`, `"list"`), complete, 201, 2, 0},
		"another group":              {strings.ReplaceAll(mayGetPods, `""`, `"apps"`), complete, 201, 2, 0},
		"a subresource":              {strings.ReplaceAll(mayGetPods, "pods", "*/status"), complete, 201, 2, 0},
		"too much":                   {huge, complete, 201, 1, 0},
		"no right to ask":            {mayGetPods, complete, 403, 1, 0},
		"a right that scopes narrow": {mayGetPods, complete, 201, 2, 2},
		"no answer":                  {mayGetPods, complete, 500, (names - 1) / manyNames, 0},
		"a dangling binding":         {mayGetPods, complete + `,"evaluationError":"clusterrole not found"`, 201, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRuled(t)
				r.rules[nowhere], r.rules["n"], r.incomplete, r.code = c.rules, c.rules, c.status, c.code
				r.allow = func(get resourceAttributes) bool { return get.Name != "" && get.Name != "p100" }
				if n := r.gets(byToken("t"), "n", 0, names); n != names-1 {
					t.Errorf("%d of %d gets are allowed", n, names)
				}
				r.want("", names, c.rulesN, c.without)
			})
		})
	}
}

// A right that is taken back is gone within the time that any yes is believed, and without an answer too. A right
// that has come is seen a minute later.
func TestAnyNameIsBelievedNoLonger(t *testing.T) {
	for name, lose := range map[string]func(*ruled){
		"the rule is gone":         func(r *ruled) { r.rules[nowhere] = "" },
		"the rule has names now":   func(r *ruled) { r.rules[nowhere] = mayGetTwo },
		"a webhook has come":       func(r *ruled) { r.incomplete = `"incomplete":true` },
		"kube-apiserver is silent": func(r *ruled) { r.code = 500 },
		"the token has scopes":     func(*ruled) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRuled(t)
				r.rules[nowhere] = mayGetPods
				if n := r.gets(byToken("t"), "n", 0, 50); n != 50 {
					t.Errorf("%d of 50 gets are allowed", n)
				}
				r.want("before", manyNames, 1, 1)
				r.up.Mu.Lock()
				lose(r)
				r.allow = func(resourceAttributes) bool { return false }
				r.up.Mu.Unlock()
				r.gets(byToken("t"), "n", 50, int(answerTTL/(100*time.Millisecond)))
				if n := r.gets(byToken("t"), "n", 200, 100); n != 0 {
					t.Errorf("%d gets are allowed 10 s later", n)
				}
				r.up.Mu.Lock()
				r.rules[nowhere], r.incomplete, r.code = mayGetPods, `"incomplete":false`, 201
				r.allow = func(resourceAttributes) bool { return true }
				r.up.Mu.Unlock()
				time.Sleep(unprovenFor)
				r.gets(byToken("t"), "n", 400, manyNames)
				r.up.Mu.Lock()
				r.asked = [3]int{}
				r.up.Mu.Unlock()
				r.gets(byToken("t"), "n", 500, 50)
				r.want("when it has come back", 0, 0, 0)
			})
		})
	}
}

// However many tokens and resources there are, few counts of names are kept.
func TestNameCountsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuled(t)
		jane, joe := r.Source(byCertificate("jane")), r.Source(byCertificate("joe"))
		for i := range remember.Most + 100 {
			r.names.count(jane, Question{1, byte(i), byte(i >> 8)}, Question{1}, time.Hour)
		}
		if n := r.names.all.Len(); n > remember.Most {
			t.Errorf("%d counts are kept", n)
		}
		if n := r.names.count(joe, Question{2}, Question{1}, 0); n != 1 {
			t.Errorf("%d names, with no time in which a yes is believed", n)
		}
	})
}
