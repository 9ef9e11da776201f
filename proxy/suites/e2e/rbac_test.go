package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

var rbacSteps = flag.Int("rbac.steps", 8, "changes of rights in the test of RBAC; at least 24 in make nightly")

// TestRBAC: "nothing is shown to a client that kube-apiserver would not let read it".
//
// Rights change at random, while people who identify themselves in every way read and watch at
// random. A model of RBAC says who was allowed what at which time, and from this follows what a
// client may have received, what it must have received, and which watches had to end. Refusals are
// in kube-apiserver's own words.
//
// A change comes into force at some time between its write and the moment when watchfan has refused each request that
// needed a right that is taken back, and has ended each such watch. The test waits for this before the next change. The
// last change deletes an account.
func TestRBAC(t *testing.T) {
	parallel(t)
	steps := *rbacSteps
	if nightly {
		steps = max(steps, 24)
	}
	// A yes is remembered for longer than the time between re-checks. So a later request shows that a
	// re-check's answer is remembered.
	s := newCertified(t, "--authorization-webhook-cache-authorized-ttl=2s",
		"--authorization-webhook-cache-unauthorized-ttl=1s", "--authorization-recheck-interval=1s")
	rng := steady.Rand(t)
	createNamespaces(t, s.direct, rbacNamespaces...)
	createCRD(t, s.direct, "rbac.ex.io", "Thing", "Namespaced")
	readers := s.readers(t)
	var people []person
	for _, r := range readers[1:] { // the first is nobody
		people = append(people, r.person)
	}

	w := &rbacReading{all: demands()}
	first := firstRights(rng, people)
	first.create(t, s.direct)
	w.begin(first)
	agrees(t, s.direct, people, w.all, first)
	uris := writeObjects(t, s.direct)
	ctx, leave := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { rewriteObjects(t, s.direct, uris, ctx.Done()) })
	for _, r := range readers {
		own := rand.New(rand.NewPCG(rng.Uint64(), 0))
		work.Go(func() { r.readAll(ctx.Done(), w, own) })
		for range 5 {
			own := rand.New(rand.NewPCG(rng.Uint64(), 0))
			work.Go(func() { r.watchAll(ctx, w, own) })
		}
	}
	finish := func() { leave(); work.Wait() }
	defer finish()

	for range steps {
		_, last := w.now()
		c, who, what := last.draw(rng, people, w.all)
		w.change(t, readers, c.after, func() {
			c.apply(t, s.direct)
			steady.Until(t, "change of rights", func() error { return reviewed(s.direct, who, what, c.after.allow(who, what)) })
		})
	}
	_, last := w.now()
	settled := last
	doomed := readers[len(readers)-1]
	last.gone = doomed.name
	w.change(t, readers, last, func() {
		s.direct.remove(t, "/api/v1/namespaces/r1/serviceaccounts/doomed")
		steady.Until(t, "end of a token", func() error { // kube-apiserver trusts it for 10 s
			if resp := doomed.theirs.get(t, "/version"); resp.status != http.StatusUnauthorized {
				return fmt.Errorf("%d", resp.status)
			}
			return nil
		})
	})
	finish()
	agrees(t, s.direct, people, w.all, settled) // a review does not ask whether there is an account
	j := &judge{ledger: &w.ledger}
	for _, r := range readers {
		for _, o := range r.seen {
			if err := j.fault(o); err != nil {
				if j.failed++; j.failed <= 10 {
					t.Errorf("%s: %v", o, err)
				}
			}
		}
	}
	t.Logf("%d changes; %d answers: %d from the cache, %d refused, %d refusals compared; %d watches from the cache with "+
		"%d events, %d revoked",
		len(w.entries)-1, j.answers, j.cached, j.refused, w.refusals.Load(), j.watches, j.events, j.revoked)
	if j.cached < 5*steps || j.refused < 5*steps || w.refusals.Load() < int64(j.refused/4) || j.watches < steps ||
		j.events < 10*steps || j.revoked == 0 {
		t.Error("that is too little to show anything")
	}
}

// readers are people who identify themselves in every way. The first has a token without an owner.
// The last one's account can be deleted.
func (s *certified) readers(t *testing.T) []*reader {
	t.Helper()
	group := func(groups ...string) []string { return append(groups, "system:authenticated") }
	way := func(how string, p person, ours, theirs *target, headers ...string) *reader {
		return &reader{person: p, how: how, ours: ours, theirs: theirs, header: row{}.with(headers...).header}
	}
	token := func(how string, p person, token string, headers ...string) *reader {
		theirs := s.cluster.as(t, "")
		theirs.token = token
		return way(how, p, s.proxy.secure(t, token), theirs, headers...)
	}
	certificate := func(how string, p person, of *authority, name string, groups []string, headers ...string) *reader {
		ours, theirs := s.ways(t, of.client(t, name, groups...))
		return way(how, p, ours, theirs, headers...)
	}
	all := []*reader{token("bad token", person{groups: group()}, "bad")} // whom no rule names
	for _, p := range []person{{"jane", group("devs")}, {"joe", group("devs", "ops")}} {
		all = append(all, certificate("certificate", p, s.users, p.name, p.groups[:len(p.groups)-1]))
	}
	for _, p := range []person{{"fred", group("ops")}, {"fay", group()}} {
		headers := []string{"X-Remote-User", p.name}
		for _, g := range p.groups[:len(p.groups)-1] {
			headers = append(headers, "X-Remote-Group", g)
		}
		all = append(all, certificate("front proxy", p, s.fronts, "front", nil, headers...))
	}
	ivy, ike := person{"ivy", group("devs")}, person{"ike", group()}
	all = append(all, certificate("impersonated by certificate", ivy, s.users, "boss", []string{"system:masters"},
		"Impersonate-User", "ivy", "Impersonate-Group", "devs"))
	all = append(all, token("impersonated by token", ike, s.cluster.token(t, "admin"), "Impersonate-User", "ike"))
	for _, a := range [][2]string{{"r1", "sam"}, {"r2", "sue"}, {"r1", "doomed"}} {
		p := person{"system:serviceaccount:" + a[0] + ":" + a[1],
			group("system:serviceaccounts", "system:serviceaccounts:"+a[0])}
		all = append(all, token("token", p, serviceAccountToken(t, s.direct, a[0], a[1])))
	}
	for i, r := range all { // some of each kind speak HTTP/2
		if i%2 == 1 {
			r.how, r.ours, r.theirs = r.how+", HTTP/2", r.ours.http2(), r.theirs.http2()
			t.Cleanup(r.ours.close)
			t.Cleanup(r.theirs.close)
		}
	}
	return all
}

// serviceAccountToken makes a service account and returns a token of it.
func serviceAccountToken(t *testing.T, admin *target, namespace, name string) string {
	t.Helper()
	uri := "/api/v1/namespaces/" + namespace + "/serviceaccounts"
	admin.create(t, uri, fmt.Sprintf(`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":%q}}`, name))
	return requestToken(t, admin, uri+"/"+name)
}

// requestToken returns a new token of a service account.
func requestToken(t *testing.T, admin *target, uri string) string {
	t.Helper()
	resp := admin.do(t, http.MethodPost, uri+"/token", nil,
		`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":3600}}`)
	var issued struct{ Status struct{ Token string } }
	if err := json.Unmarshal(resp.body, &issued); err != nil || issued.Status.Token == "" {
		t.Fatalf("token of %s: %d: %v", uri, resp.status, err)
	}
	return issued.Status.Token
}

// reviewed returns an error unless kube-apiserver says that p is allowed d, or not.
func reviewed(admin *target, p person, d demand, want bool) error {
	body, err := json.Marshal(map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
		"spec": map[string]any{"user": p.name, "groups": p.groups,
			"resourceAttributes": map[string]string{"verb": d.verb, "group": d.group, "resource": d.resource,
				"namespace": d.namespace, "name": d.name}}})
	if err != nil {
		return err
	}
	resp, err := admin.try(http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", nil, string(body))
	var review struct{ Status struct{ Allowed bool } }
	if err == nil {
		err = json.Unmarshal(resp.body, &review)
	}
	if err != nil || resp.status != http.StatusCreated || review.Status.Allowed != want {
		return fmt.Errorf("%s %+v: %v, %d: %s", p.name, d, err, resp.status, resp.body)
	}
	return nil
}

// agrees waits until the model and kube-apiserver give the same answers to everything.
func agrees(t *testing.T, admin *target, people []person, all []demand, r rights) {
	t.Helper()
	steady.Until(t, "agreement of the model with kube-apiserver", func() error {
		errs := make([]error, len(people))
		var wg sync.WaitGroup
		for i, p := range people {
			wg.Go(func() {
				for _, d := range all {
					if errs[i] = reviewed(admin, p, d, r.allow(p, d)); errs[i] != nil {
						return
					}
				}
			})
		}
		wg.Wait()
		return errors.Join(errs...)
	})
}

// writeObjects makes one of each of the objects that the rights are about, and returns their URIs.
func writeObjects(t *testing.T, admin *target) (uris []string) {
	t.Helper()
	kinds := map[string]string{"configmaps": "v1,ConfigMap", "secrets": "v1,Secret", "things": "rbac.ex.io/v1,Thing"}
	for _, d := range rbacResources {
		for _, d.namespace = range rbacNamespaces {
			for _, name := range rbacNames {
				version, kind, _ := strings.Cut(kinds[d.resource], ",")
				uri := strings.TrimSuffix(d.uri(""), "?")
				admin.create(t, uri, fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q}}`, version, kind, name))
				uris = append(uris, uri+"/"+name)
			}
		}
	}
	return uris
}

// rewriteObjects changes one object after the other until stop is closed.
func rewriteObjects(t *testing.T, admin *target, uris []string, stop <-chan struct{}) {
	for i := 0; pace(stop, 10*time.Millisecond); i++ {
		if _, err := admin.write(http.MethodPatch, uris[i%len(uris)], "application/merge-patch+json",
			fmt.Sprintf(`{"metadata":{"annotations":{"n":"%d"}}}`, i)); err != nil {
			t.Error(err)
			return
		}
	}
}

// judge finds mistakes in what the readers received.
type judge struct {
	*ledger

	answers, cached, refused, watches, events, revoked, failed int
}

func (j *judge) fault(o *observation) error {
	j.answers++
	yes, no := j.during(o.reader.person, o.demand, o.begin, o.end)
	switch {
	case o.wrong != nil || o.status == 0:
		return o.wrong
	case o.status == http.StatusUnauthorized || o.status == http.StatusForbidden:
		if j.refused++; !no {
			return fmt.Errorf("%d, though it was allowed all the time", o.status)
		}
		return nil
	case o.status != http.StatusOK:
		return fmt.Errorf("%d", o.status)
	case !yes:
		return errors.New("200, though it was not allowed at any time")
	case !o.cached: // kube-apiserver never reviews again, in a watch
		return nil
	}
	if j.cached++; o.demand.verb != "watch" {
		return nil
	}
	j.watches++
	j.events += o.events
	if o.left {
		return nil
	}
	j.revoked++
	if _, no := j.during(o.reader.person, o.demand, o.begin, o.ended); !no {
		return errors.New("ended, though it was allowed all the time")
	}
	if next := o.next; next != nil && next.status == http.StatusOK {
		if yes, _ := j.during(o.reader.person, o.demand, o.ended, next.end); !yes {
			return errors.New("is served again after it was revoked")
		}
	}
	return nil
}
