package e2e_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var rbacSteps = flag.Int("rbac.steps", 24,
	"changes of rights in the test of RBAC, about a second each; -seed=N draws the same ones again")

// How long rights that are taken back may still be used. The flags of watchfan have these times.
const (
	// It is longer than rbacRecheck, so a later request shows that a re-check's answer is
	// remembered.
	rbacYesTTL  = 3 * time.Second
	rbacNoTTL   = time.Second
	rbacRecheck = 2 * time.Second

	// An open watch may have begun with a remembered yes. It is reviewed again within an interval
	// and a tenth, at the next of 60 ticks.
	rbacRevoked = rbacYesTTL + rbacRecheck + rbacRecheck/10 + rbacRecheck/60
)

// TestRBAC: "nothing is shown to a client that kube-apiserver would not let read it".
//
// Rights change at random, while people who identify themselves in every way read and watch at
// random. A model of RBAC says who was allowed what at which time, and from this follows what a
// client may have received, what it must have received, and which watches had to end. Refusals are
// in kube-apiserver's own words.
//
// A change comes into force at some time between its write and kube-apiserver's first review that
// shows it. The test waits for this review before the next change. The constants above say how much
// older an answer of watchfan may be. The time in which kube-apiserver and this machine answer is
// measured and added.
func TestRBAC(t *testing.T) {
	t.Parallel()
	s := newCertified(t, "--authorization-webhook-cache-authorized-ttl="+rbacYesTTL.String(),
		"--authorization-webhook-cache-unauthorized-ttl="+rbacNoTTL.String(),
		"--authorization-recheck-interval="+rbacRecheck.String())
	t.Logf("-seed=%d -rbac.steps=%d", *seed, *rbacSteps)
	rng := rand.New(rand.NewPCG(*seed, 1))
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
	w.rights.Store(&first)
	now := time.Now()
	l := ledger{{first, now, now}}
	agrees(t, s.direct, people, w.all, first)
	written := writeObjects(t, s.direct)

	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	stop := make(chan struct{})
	var work sync.WaitGroup
	var stall atomic.Int64 // the longest time of something that takes no time on a quiet machine
	work.Go(func() { written.run(stop, &stall) })
	through := s.proxy.secure(t, s.cluster.token(t, "admin"))
	work.Go(func() { probe(t, through, stop, &stall) })
	for i, r := range readers {
		work.Go(func() { r.readAll(stop, w, rand.New(rand.NewPCG(*seed, uint64(100+i)))) })
		for j := range 5 {
			work.Go(func() { r.watchAll(ctx, w, rand.New(rand.NewPCG(*seed, uint64(1000+10*i+j)))) })
		}
	}
	finish := func() {
		close(stop)
		leave()
		work.Wait()
	}
	defer func() {
		if finish != nil {
			finish()
		}
	}()

	doomed := readers[len(readers)-1]
	for i := range *rbacSteps {
		c, who, what := l[len(l)-1].rights.draw(rng, people, w.all)
		e := era{rights: c.after, sent: time.Now()}
		w.rights.Store(&e.rights)
		c.apply(t, s.direct)
		eventually(t, 60*time.Second, "a change of rights", func() error {
			return reviewed(s.direct, who, what, c.after.allow(who, what), &stall)
		})
		e.seen = time.Now()
		l = append(l, e)
		if i == *rbacSteps/3 {
			doomed.goneSent = time.Now()
			s.direct.remove(t, "/api/v1/namespaces/r1/serviceaccounts/doomed")
		}
		time.Sleep(time.Duration(200+rng.IntN(1000)) * time.Millisecond)
	}
	// kube-apiserver trusts a token for 10 s.
	eventually(t, 60*time.Second, "the end of a token", func() error {
		if resp := doomed.theirs.get(t, "/version"); resp.status != http.StatusUnauthorized {
			return fmt.Errorf("%d", resp.status)
		}
		return nil
	})
	doomed.goneSeen = time.Now()
	slack := func() time.Duration { return time.Second + 4*time.Duration(stall.Load()) }
	time.Sleep(rbacRevoked + slack() + time.Second)
	finish()
	finish = nil
	settled := settledReads(rng, w, readers)

	agrees(t, s.direct, people, w.all, l[len(l)-1].rights)
	j := &judge{ledger: l, slack: slack(), written: written.sent}
	for _, r := range readers {
		for _, o := range r.seen {
			j.judge(t, o)
		}
	}
	t.Logf("%d changes, stalls of up to %s; %d answers: %d shown, %d of them from the cache, %d refused, %d refusals "+
		"compared; %d watches from the cache with %d events, %d revoked; %d settled reads from the cache",
		len(l)-1, time.Duration(stall.Load()).Round(time.Millisecond), j.answers, j.shown, j.cached, j.refused,
		w.refusals.Load(), j.watches, j.events, j.revoked, settled)
	if n := *rbacSteps; j.cached < 5*n || j.refused < 5*n || w.refusals.Load() < int64(j.refused/4) || j.watches < n ||
		j.events < 10*n || j.revoked == 0 || settled == 0 {
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
		ours, theirs := s.proxy.secure(t, token), s.cluster.as(t, "")
		theirs.token = token
		return way(how, p, ours, theirs, headers...)
	}
	certificate := func(how string, p person, of *authority, name string, groups []string, headers ...string) *reader {
		ours, theirs := s.ways(t, of.client(t, name, groups...))
		return way(how, p, ours, theirs, headers...)
	}
	nobody := token("bad token", person{groups: group()}, "bad")
	nobody.nobody = true
	all := []*reader{nobody}
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
	for _, r := range all[len(all)-2:] {
		r.never = true
	}
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

// create makes all of r's objects.
func (r rights) create(t *testing.T, admin *target) {
	t.Helper()
	for key := range r.roles {
		amendment{http.MethodPost, "Role", key, r}.apply(t, admin)
	}
	for key := range r.bindings {
		amendment{http.MethodPost, "RoleBinding", key, r}.apply(t, admin)
	}
}

// reviewed returns an error unless kube-apiserver says that p is allowed d, or not.
func reviewed(admin *target, p person, d demand, want bool, stall *atomic.Int64) error {
	body, err := json.Marshal(map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
		"spec": map[string]any{"user": p.name, "groups": p.groups,
			"resourceAttributes": map[string]string{"verb": d.verb, "group": d.group, "resource": d.resource,
				"namespace": d.namespace, "name": d.name}}})
	if err != nil {
		return err
	}
	resp, err := admin.try(http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", nil, string(body))
	if err != nil {
		return err
	}
	longest(stall, resp.took)
	var review struct{ Status struct{ Allowed bool } }
	if err := json.Unmarshal(resp.body, &review); err != nil || resp.status != http.StatusCreated {
		return fmt.Errorf("%d: %s", resp.status, resp.body)
	}
	if review.Status.Allowed != want {
		return fmt.Errorf("%s %+v is allowed: %v", p.name, d, review.Status.Allowed)
	}
	return nil
}

// probe sends requests through watchfan until stop is closed, and notes what is slow: a watchfan that
// gets no processor ends watches late.
func probe(t *testing.T, through *target, stop <-chan struct{}, stall *atomic.Int64) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(100 * time.Millisecond):
		}
		resp, err := through.try(http.MethodGet, "/version", nil, "")
		if err != nil {
			t.Error(err)
			return
		}
		longest(stall, resp.took)
	}
}

func longest(of *atomic.Int64, d time.Duration) {
	for {
		if was := of.Load(); int64(d) <= was || of.CompareAndSwap(was, int64(d)) {
			return
		}
	}
}

// agrees fails the test unless the model and kube-apiserver come to give the same answers to
// everything.
func agrees(t *testing.T, admin *target, people []person, all []demand, r rights) {
	t.Helper()
	var unused atomic.Int64
	var wg sync.WaitGroup
	for _, p := range people {
		wg.Go(func() {
			for _, d := range all {
				var err error
				deadline := time.Now().Add(30 * time.Second)
				for ; time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
					if err = reviewed(admin, p, d, r.allow(p, d), &unused); err == nil {
						break
					}
				}
				if err != nil {
					t.Errorf("the model and kube-apiserver disagree: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// objectWriter writes the objects that the rights are about, and keeps the time at which it sent
// each version.
type objectWriter struct {
	t     *testing.T
	admin *target
	uris  []string
	sent  map[uint64]time.Time
}

// writeObjects makes one of each.
func writeObjects(t *testing.T, admin *target) *objectWriter {
	t.Helper()
	w := &objectWriter{t: t, admin: admin, sent: make(map[uint64]time.Time)}
	kinds := map[string]string{"configmaps": "v1,ConfigMap", "secrets": "v1,Secret", "things": "rbac.ex.io/v1,Thing"}
	for _, d := range rbacResources {
		for _, d.namespace = range rbacNamespaces {
			for _, name := range rbacNames {
				version, kind, _ := strings.Cut(kinds[d.resource], ",")
				uri := strings.TrimSuffix(d.uri(""), "?")
				begin := time.Now()
				w.sent[admin.create(t, uri, fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q}}`, version,
					kind, name))] = begin
				w.uris = append(w.uris, uri+"/"+name)
			}
		}
	}
	return w
}

const writePause = 10 * time.Millisecond

// run changes one object after the other until stop is closed, and notes what is slow.
func (w *objectWriter) run(stop <-chan struct{}, stall *atomic.Int64) {
	for i := 0; ; i++ {
		begin := time.Now()
		select {
		case <-stop:
			return
		case <-time.After(writePause):
		}
		sent := time.Now()
		rv, err := w.admin.write(http.MethodPatch, w.uris[i%len(w.uris)], "application/merge-patch+json",
			fmt.Sprintf(`{"metadata":{"annotations":{"n":"%d"}}}`, i))
		if err != nil {
			w.t.Error(err)
			return
		}
		w.sent[rv] = sent
		longest(stall, max(sent.Sub(begin)-writePause, time.Since(sent)))
	}
}

// settledReads lets every reader list everything once nothing changes any more. It returns how many
// lists were allowed, all of which have to come from the cache.
func settledReads(rng *rand.Rand, w *rbacReading, readers []*reader) (cached int) {
	var wg sync.WaitGroup
	var n atomic.Int64
	for _, r := range readers {
		perm := rng.Perm(len(w.all))
		wg.Go(func() {
			for _, i := range perm {
				if d := w.all[i]; d.verb == "list" {
					if o := r.get(w, d, "resourceVersion=0"); o.status == http.StatusOK && !r.never {
						n.Add(1)
						if !o.cached && o.wrong == nil {
							o.wrong = fmt.Errorf("is not served from the cache")
						}
					}
				}
			}
		})
	}
	wg.Wait()
	return int(n.Load())
}

// judge finds mistakes in what the readers received.
type judge struct {
	ledger  ledger
	slack   time.Duration
	written map[uint64]time.Time // when each version was sent

	answers, shown, cached, refused, watches, events, revoked, failed int
}

func (j *judge) judge(t *testing.T, o *observation) {
	if err := j.fault(o); err != nil {
		if j.failed++; j.failed <= 10 {
			t.Errorf("%s: %v", o, err)
		}
	}
}

func (j *judge) fault(o *observation) error {
	if o.wrong != nil {
		return o.wrong
	}
	switch j.answers++; o.status {
	case 0:
		return nil // the client left before there was an answer
	case http.StatusUnauthorized, http.StatusForbidden:
		j.refused++
		if _, no := o.during(j.ledger, o.begin, o.end); !no {
			return fmt.Errorf("%d, though it was allowed all the time", o.status)
		}
		return nil
	case http.StatusOK:
	default:
		return fmt.Errorf("%d", o.status)
	}
	j.shown++
	from := o.begin
	if o.cached {
		j.cached++
		from = from.Add(-rbacYesTTL - j.slack)
	}
	if yes, _ := o.during(j.ledger, from, o.end); !yes {
		return fmt.Errorf("200, though it was not allowed at any time since %s before", o.begin.Sub(from))
	}
	if o.demand.verb != "watch" {
		return nil
	}
	if o.broken != nil {
		return fmt.Errorf("did not end properly: %w", o.broken)
	}
	if !o.cached {
		return nil // it is kube-apiserver's watch, and kube-apiserver never reviews again
	}
	j.watches++
	return j.watchFault(o)
}

// watchFault returns what is wrong with a watch from the cache that was allowed to begin.
func (j *judge) watchFault(o *observation) error {
	// The earliest time at which an event can have been sent: when its object or an earlier one was
	// written.
	leftAt := o.begin
	for _, e := range o.events {
		if sent := j.written[e.rv]; sent.After(leftAt) {
			leftAt = sent
		}
		j.events++
		if yes, _ := o.during(j.ledger, leftAt.Add(-rbacRevoked-j.slack), e.at); !yes {
			return fmt.Errorf("shows version %d, though it was not allowed for %s", e.rv, rbacRevoked+j.slack)
		}
	}
	if yes, _ := o.during(j.ledger, o.ended.Add(-rbacRevoked-j.slack), o.ended); !yes {
		return fmt.Errorf("is still open after %s, though it was not allowed for %s",
			o.ended.Sub(o.begin), rbacRevoked+j.slack)
	}
	if o.left {
		return nil
	}
	j.revoked++
	if _, no := o.during(j.ledger, o.begin, o.ended); !no {
		return fmt.Errorf("ended after %s, though it was allowed all the time", o.ended.Sub(o.begin))
	}
	if next := o.next; next != nil && next.status == http.StatusOK {
		if yes, _ := o.during(j.ledger, o.ended, next.end); !yes {
			return fmt.Errorf("is served again after it was revoked")
		}
	}
	return nil
}
