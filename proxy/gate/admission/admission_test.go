package admission

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/VictoriaMetrics/metrics"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// Watches are counted, those that pass through too: all together, and for each user. A user's
// watches count together, whatever the user's credentials are.
func TestAdmission(t *testing.T) {
	m := &Memory{limit: 100, sheds: new(metrics.Counter), log: slog.New(slog.DiscardHandler)}
	opts := Options{MaxWatches: 4, MaxWatchesPerUser: 2}
	owners := proxytest.Owners{"s3cret": "ann's robot", "renewed": "ann's robot", "other": "robert", "nobody's": "401"}
	a, _ := admissionOf(opts, m, owners)
	logged := &unlockedLog{Handler: slog.DiscardHandler, lock: &a.mu}
	a.log = slog.New(logged)
	begin := func(id auth.Identity, uri, wantRefused string) *Slot {
		t.Helper()
		req, cacheable := request.Parse(proxytest.MustRead(t, uri))
		slot, st := a.Begin(t.Context(), id, req, cacheable)
		switch {
		case st == nil && wantRefused != "":
			t.Errorf("%v %s: not refused, want %s", id, uri, wantRefused)
		case st == nil:
		case wantRefused == "" || !strings.Contains(st.Message, wantRefused):
			t.Errorf("%v %s: refused, %s; want %q", id, uri, st.Message, wantRefused)
		case st.Code != http.StatusTooManyRequests || st.Reason != "TooManyRequests" ||
			st.Details.RetryAfterSeconds < apistatus.RetryLeast ||
			st.Details.RetryAfterSeconds >= apistatus.RetryLeast+apistatus.RetrySpread:
			t.Errorf("%v %s: got %+v", id, uri, st)
		}
		return slot
	}
	const watch, list = "/api/v1/pods?watch=1", "/api/v1/pods"
	ann := auth.Identity{Kind: auth.KindCertificate, User: &auth.UserInfo{Name: "ann"}}
	annToo := auth.Identity{Kind: auth.KindFrontProxy, User: &auth.UserInfo{Name: "ann"}}
	token := auth.Identity{Kind: auth.KindToken, Token: "s3cret"}

	first := begin(ann, watch, "")
	begin(annToo, "/apis/example.com/v1/watch/things?watch", "")
	begin(ann, watch, "2 watches of one user")
	for _, other := range []string{list, "/api/v1/pods?watch=false", "/healthz?watch=1"} {
		if slot := begin(ann, other, ""); slot != nil {
			t.Errorf("%s counts as a watch", other)
		}
	}
	begin(token, watch, "")
	begin(auth.Identity{Kind: auth.KindOwn}, watch, "")
	begin(auth.Identity{Kind: auth.KindToken, Token: "other"}, watch, "4 watches at a time")
	first.Release()
	first.Release()
	last := begin(auth.Identity{Kind: auth.KindToken, Token: "renewed"}, watch, "")
	begin(token, watch, "4 watches at a time")
	// The total limit comes first.
	begin(auth.Identity{Kind: auth.KindToken, Token: "nobody's"}, watch, "4 watches at a time")

	m.relief.from = &holders{}
	for range 2 { // the first forgets lists
		m.look(95)
	}
	last.Release()
	begin(ann, watch, "short of memory")
	begin(ann, list, "short of memory")
	begin(ann, "/api/v1/namespaces/ns/pods/web", "")
	m.look(10)
	begin(ann, watch, "")
	if !logged.unlocked {
		t.Error("a log that is not read keeps others' watches from beginning")
	}
	if a.watches != 4 || len(a.holders) != 3 {
		t.Errorf("%d watches of %d users are counted, want 4 of 3", a.watches, len(a.holders))
	}
}

// unlockedLog notes whether a lock is free while lines are written.
type unlockedLog struct {
	slog.Handler
	lock     *sync.Mutex
	unlocked bool
}

func (l *unlockedLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *unlockedLog) Handle(context.Context, slog.Record) error {
	if l.unlocked = l.lock.TryLock(); l.unlocked {
		l.lock.Unlock()
	}
	return nil
}

// Watches with large selectors have a limit of their own, also without a limit for all watches.
func TestAdmissionLargeSelectors(t *testing.T) {
	a, _ := admissionOf(Options{}, &Memory{}, nil)
	begin := func(user, selector string) (*Slot, *metav1.Status) {
		req, cacheable := request.Parse(proxytest.MustRead(t, "/api/v1/pods?watch=1&labelSelector="+selector))
		return a.Begin(t.Context(), auth.Identity{Kind: auth.KindCertificate, User: &auth.UserInfo{Name: user}}, req, cacheable)
	}
	large := strings.Repeat("!k,", request.MaxRequirements) + "!k"
	var slots []*Slot
	for range mostLarge {
		slot, st := begin("ann", large)
		if st != nil {
			t.Fatal(st.Message)
		}
		slots = append(slots, slot)
	}
	if _, st := begin("ann", large); st == nil || st.Code != http.StatusTooManyRequests || !strings.Contains(st.Message, "large selectors") {
		t.Errorf("one more than there may be: %+v", st)
	}
	for user, selector := range map[string]string{"ann": "!k", "bob": large} {
		if _, st := begin(user, selector); st != nil {
			t.Errorf("%s: %s", user, st.Message)
		}
	}
	slots[0].Release()
	if _, st := begin("ann", large); st != nil {
		t.Error(st.Message)
	}
}

// kube-apiserver is not asked for a token's owner while the tokens with the same subject have no
// more watches than one user may have. A user with many tokens does not escape the limit. A user is
// not refused because of forged tokens with the user's name. A token that kube-apiserver refuses
// counts for no user.
func TestAdmissionTokens(t *testing.T) {
	const most = 3
	jwt := func(subject, signature string) auth.Identity {
		payload := base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"` + subject + `"}`))
		return auth.Identity{Kind: auth.KindToken, Token: "h." + payload + "." + signature}
	}
	const robot, other = "system:serviceaccount:a:robot", "system:serviceaccount:a:other"
	owners := make(proxytest.Owners)
	var robots []auth.Identity
	for i := range 5 * most {
		id := jwt(robot, fmt.Sprint("good", i))
		owners[id.Token] = robot
		robots = append(robots, id)
	}
	forged := jwt(other, "forged")
	owners[forged.Token] = "401"
	honest := jwt(other, "good")
	owners[honest.Token] = other

	a, up := admissionOf(Options{MaxWatchesPerUser: most}, &Memory{}, owners)
	req, cacheable := request.Parse(proxytest.MustRead(t, "/api/v1/pods?watch=1"))
	begin := func(id auth.Identity) (*Slot, *metav1.Status) { return a.Begin(t.Context(), id, req, cacheable) }

	served := 0
	for i, id := range robots {
		if _, st := begin(id); st == nil {
			served++
		}
		if i == most-1 && up.Count() != 0 {
			t.Errorf("%d questions for %d watches of a user who may have as many", up.Count(), most)
		}
	}
	if served < most || served > 2*most {
		t.Errorf("a user with %d tokens has %d watches, want %d, or twice as many", len(robots), served, most)
	}

	for range 5 * most { // a flood of forged tokens, which kube-apiserver has not refused yet
		if _, st := begin(forged); st != nil {
			t.Errorf("a forged token is refused here: %v", st.Message)
		}
	}
	var slots []*Slot
	for range most {
		slot, st := begin(honest)
		if st != nil {
			t.Fatalf("refused for what others' tokens say: %v", st.Message)
		}
		slots = append(slots, slot)
	}
	if _, st := begin(honest); st == nil || !strings.Contains(st.Message, "3 watches of one user") {
		t.Errorf("one more watch than there may be: %v", st)
	}
	for _, slot := range slots {
		slot.Release()
	}
	if _, st := begin(honest); st != nil {
		t.Errorf("refused where watches have ended: %v", st.Message)
	}
}

// admissionOf returns the admission of a proxy whose kube-apiserver knows the owners of tokens.
func admissionOf(opts Options, m *Memory, owners proxytest.Owners) (*Admission, *proxytest.FakeUpstream[auth.Identity]) {
	up := proxytest.OwnersUpstream(owners, func(id auth.Identity) string { return id.Token })
	authorizer := auth.NewAuthorizer(up, auth.NewKnownTokens(), &auth.Options{}, false, auth.NewMetrics(metrics.NewSet()), proxytest.Guard())
	return New(&opts, m, authorizer, metrics.NewSet(), slog.New(slog.DiscardHandler)), up
}
