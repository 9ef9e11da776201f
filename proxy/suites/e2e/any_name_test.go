package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// A getter is a client that gets ConfigMaps, each time by a name that it has not asked for before.
type getter struct {
	ours, theirs *target
	names        int
}

func (g *getter) next(namespace string) string {
	g.names++
	return fmt.Sprintf("/api/v1/namespaces/%s/configmaps/n%d?resourceVersion=0", namespace, g.names)
}

// gets wants the same status of n gets, also straight from kube-apiserver.
func (g *getter) gets(t *testing.T, n int, namespace string, want int) {
	t.Helper()
	for range n {
		uri := g.next(namespace)
		if ours, theirs := g.ours.get(t, uri).status, g.theirs.get(t, uri).status; ours != want || theirs != want {
			t.Errorf("%s: %d, kube-apiserver %d, want %d", uri, ours, theirs, want)
		}
	}
}

// spared waits until gets need no reviews any more.
func (g *getter) spared(t *testing.T, admin *target, namespace string) {
	t.Helper()
	steady.Until(t, "gets without a review", func() error {
		before := admin.metric(t, "watchfan_access_reviews_total")
		g.gets(t, 10, namespace, http.StatusNotFound)
		if n := admin.metric(t, "watchfan_access_reviews_total") - before; n > 0 {
			return fmt.Errorf("%v reviews for 10 names", n)
		}
		return nil
	})
}

// Rights to get any name spare the reviews of single names, in all namespaces or in one. Rights to some names do not,
// and nobody gets anything that kube-apiserver would refuse. A right that is taken back ends.
func TestAnyName(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	direct := c.direct(t)
	p := privateWatchfan(t, c, "--authorization-webhook-cache-authorized-ttl=3s")
	p.waitReady(t)
	admin := p.admin(t)
	createNamespaces(t, direct, "names-a", "names-b")
	account := func(name string) *getter {
		token := serviceAccountToken(t, direct, "names-a", name)
		g := &getter{ours: p.secure(t, token), theirs: c.as(t, "")}
		g.theirs.token = token
		return g
	}
	everywhere, here, some := account("everywhere"), account("here"), account("some")
	direct.allow(t, "", "names-everywhere", "User system:serviceaccount:names-a:everywhere", "get /configmaps")
	direct.allow(t, "names-a", "here", "ServiceAccount here", "get,list /configmaps")
	direct.allow(t, "names-a", "some", "ServiceAccount some", "get /configmaps n1,n2,n3,n4,n5,n6,n7,n8,n9,n10")
	warm(t, []*target{p.secure(t, c.token(t, "admin"))}, "/api/v1/configmaps")
	for _, g := range []*getter{everywhere, here, some} {
		steady.Until(t, "new rules", func() error {
			if s := g.theirs.get(t, "/api/v1/namespaces/names-a/configmaps/n1").status; s != http.StatusNotFound {
				return fmt.Errorf("%d", s)
			}
			return nil
		})
	}

	everywhere.spared(t, admin, "names-a")
	everywhere.spared(t, admin, "names-b")
	here.spared(t, admin, "names-a")
	here.gets(t, 10, "names-b", http.StatusForbidden)
	yes := admin.metric(t, "watchfan_rules_reviews_total", `verdict="yes"`)
	some.gets(t, 10, "names-a", http.StatusNotFound)
	some.gets(t, 10, "names-a", http.StatusForbidden)
	if n := admin.metric(t, "watchfan_rules_reviews_total", `verdict="no"`); yes < 2 || n == 0 {
		t.Errorf("%v rules reviews said yes, and %v no", yes, n)
	}

	direct.remove(t, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/names-everywhere")
	steady.Until(t, "end of a right", func() error {
		if s := everywhere.ours.get(t, everywhere.next("names-b")).status; s != http.StatusForbidden {
			return fmt.Errorf("%d", s)
		}
		return nil
	})
	everywhere.gets(t, 10, "names-b", http.StatusForbidden)
}

// A webhook may refuse one name of all.
func TestAnyNameOfWebhook(t *testing.T) {
	parallel(t)
	webhook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		get := review.Spec.ResourceAttributes
		review.Status.Allowed = get != nil && get.Verb == "get" && get.Name != "n30"
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(webhook.Close)
	file := filepath.Join(t.TempDir(), "webhook")
	config := fmt.Sprintf(`{"clusters":[{"name":"w","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],
		"users":[{"name":"w"}],"contexts":[{"name":"w","context":{"cluster":"w","user":"w"}}],"current-context":"w"}`,
		webhook.URL)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var args []string
	for _, f := range []string{"mode=Webhook", "webhook-config-file=" + file, "webhook-version=v1"} { // besides RBAC
		args = append(args, "--apiserver-arg", "authorization-"+f)
	}
	c := privateCluster(t, args...)
	p := privateWatchfan(t, c)
	p.waitReady(t)
	warm(t, []*target{p.secure(t, c.token(t, "admin"))}, "/api/v1/configmaps")
	g := &getter{ours: p.secure(t, c.token(t, "user")), theirs: c.as(t, "user")}
	g.gets(t, 29, "default", http.StatusNotFound)
	g.gets(t, 1, "default", http.StatusForbidden)
	said := func(verdict string) float64 {
		return p.admin(t).metric(t, "watchfan_rules_reviews_total", fmt.Sprintf("verdict=%q", verdict))
	}
	if said("none") == 0 || said("yes") > 0 {
		t.Errorf("%v rules reviews said nothing, and %v yes", said("none"), said("yes"))
	}
}
