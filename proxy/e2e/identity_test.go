//testlint:allow timeout whole answers to watches are compared

package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// TestIdentity: each request through the TLS port has its token's rights, and kube-apiserver's own
// words refuse the rest, whether or not the answer is in watchfan's cache (contract.md A01–A03,
// A07, 6.4).
func TestIdentity(t *testing.T) {
	parallel(t)
	c, p := quietCluster(t)
	direct := c.direct(t)
	// All are cached before anybody asks.
	warm(t, []*target{p.secure(t, c.token(t, "admin"))}, "/api/v1/configmaps", "/api/v1/secrets", "/apis/ex.io/v1/foos", "/api/v1/pods")
	uris := []string{
		"/api/v1/configmaps", "/api/v1/namespaces/a/configmaps",
		"/api/v1/namespaces/a/configmaps?fieldSelector=metadata.name%3Dx", "/api/v1/namespaces/a/configmaps/x",
		"/api/v1/secrets", "/api/v1/namespaces/a/secrets", "/api/v1/namespaces/a/secrets/s", "/apis/ex.io/v1/foos",
		"/apis/ex.io/v1/namespaces/a/foos/f1",
		"/api/v1/namespaces/a/pods/p/log", "/api/v1/namespaces/a/pods/p/status", "/foo", "/api/v1/nosuch",
		"/api/v1/watch/secrets", "/api/v1/watch/namespaces/a/configmaps",
		"/api/v1/configmaps?timeout=abc", "/api/v1/configmaps?limit=abc", "/api/v1/configmaps?fieldSelector=a%3Db%3Dc",
	}
	var wg sync.WaitGroup
	gate := make(chan struct{}, 12)
	for _, user := range []string{"user", "reader"} {
		ours, theirs := p.secure(t, c.token(t, user)), c.as(t, user)
		plain := p.plain(t)
		plain.token = ours.token // a token counts on either port
		for _, uri := range uris {
			for _, query := range []string{"", "resourceVersion=0", "watch=1&timeoutSeconds=5"} {
				if strings.Contains(uri, "/watch/") {
					query += "&timeoutSeconds=5"
				}
				sep := "?"
				if strings.Contains(uri, "?") {
					sep = "&"
				}
				r := row{method: http.MethodGet, uri: strings.TrimSuffix(uri+sep+query, sep)}
				for _, way := range []*target{ours, plain} {
					wg.Go(func() {
						gate <- struct{}{}
						defer func() { <-gate }()
						if err := r.compare(t, theirs, way); err != nil {
							t.Errorf("%s as %s: %v", r.uri, user, err)
						}
					})
				}
			}
		}
		post := row{method: http.MethodPost, uri: "/api/v1/namespaces/a/configmaps",
			body: `{"metadata":{"name":"never"}}`}
		if err := post.compare(t, theirs, ours); err != nil {
			t.Errorf("create as %s: %v", user, err)
		}
	}

	wg.Wait()

	// A client without anything that kube-apiserver takes for a credential is anonymous there. A
	// client with a bad token is nobody.
	bad := c.as(t, "")
	bad.token = "bad"
	for _, uri := range []string{"/api/v1/configmaps?resourceVersion=0",
		"/api/v1/configmaps?watch=1", "/version", "/foo"} {
		for _, r := range []row{{uri: uri}, {uri: uri, header: http.Header{"Authorization": {"Basic eDp5"}}}} {
			r.method = http.MethodGet
			if err := r.compare(t, c.as(t, ""), p.secure(t, "")); err != nil {
				t.Errorf("%s without a token: %v", uri, err)
			}
		}
		if err := (row{method: http.MethodGet, uri: uri}).compare(t, bad, p.secure(t, "bad")); err != nil {
			t.Errorf("%s with a bad token: %v", uri, err)
		}
	}

	// A07, A08
	admin, user := p.secure(t, c.token(t, "admin")), p.secure(t, c.token(t, "user"))
	for _, r := range []row{
		{uri: "/api/v1/configmaps?resourceVersion=0", header: http.Header{"Impersonate-User": {"dev-user"}}},
		{uri: "/api/v1/configmaps?resourceVersion=0",
			header: http.Header{"Impersonate-User": {"jane"}, "Impersonate-Group": {"g", "system:masters"},
				"Impersonate-Extra-K": {"v"}}},
		{uri: "/api/v1/configmaps?watch=1&timeoutSeconds=5", header: http.Header{"Impersonate-User": {"dev-user"}}},
		{uri: "/api/v1/configmaps?resourceVersion=0", header: http.Header{"Impersonate-Group": {"g"}}},
		{uri: "/apis/authentication.k8s.io/v1/selfsubjectreviews", method: http.MethodPost,
			body:   `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`,
			header: http.Header{"Impersonate-User": {"jane"}, "Impersonate-Group": {"g"}}},
		{uri: "/api/v1/secrets?resourceVersion=0",
			header: http.Header{"X-Remote-User": {"dev-admin"}, "X-Remote-Group": {"system:masters"}}},
	} {
		if r.method == "" {
			r.method = http.MethodGet
		}
		for way, straight := range map[*target]*target{admin: direct, user: c.as(t, "user")} {
			if err := r.compare(t, straight, way); err != nil {
				t.Errorf("%s with %v: %v", r.uri, r.header, err)
			}
		}
	}
}

// TestRevocation: a right that is taken back ends when answers of kube-apiserver are no longer believed
// (contract.md 6.6, A10), and so does a denial when the right is given (A14). The open watch ends
// properly.
func TestRevocation(t *testing.T) {
	parallel(t)
	direct := sharedCluster(t).direct(t)
	c := sharedCluster(t)
	p := privateWatchfan(t, c, "--authorization-webhook-cache-authorized-ttl=1s", "--authorization-webhook-cache-unauthorized-ttl=1s",
		"--authorization-recheck-interval=1s")
	createNamespaces(t, direct, "revoked")
	roles := "/apis/rbac.authorization.k8s.io/v1/namespaces/revoked/"
	direct.create(t, roles+"roles",
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"r"},`+
			`"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get","list","watch"]}]}`)
	user := p.secure(t, c.token(t, "user"))
	uri := "/api/v1/namespaces/revoked/configmaps"
	warm(t, []*target{p.secure(t, c.token(t, "admin"))}, uri) // a watch that passes through would not end
	if resp := user.get(t, uri+"?resourceVersion=0"); resp.status != http.StatusForbidden {
		t.Fatalf("without a binding: %d", resp.status)
	}
	direct.create(t, roles+"rolebindings",
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"b"},`+
			`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r"},`+
			`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"dev-user"}]}`)
	steady.Until(t, "grant", func() error {
		if resp := user.get(t, uri+"?resourceVersion=0"); resp.status != http.StatusOK {
			return fmt.Errorf("%d", resp.status)
		}
		return nil
	})
	open := user.watch(t, uri+"?watch=1&resourceVersion=0")
	direct.remove(t, roles+"rolebindings/b")
	steady.Until(t, "revocation", func() error {
		for _, query := range []string{"?resourceVersion=0", "?watch=1"} {
			if resp, err := user.look(uri+query, nil); err != nil || resp.status != http.StatusForbidden {
				return fmt.Errorf("%s: %d, %v", query, resp.status, err)
			}
		}
		return nil
	})
	open.finish(t)
}
