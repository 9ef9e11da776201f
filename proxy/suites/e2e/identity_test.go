//testlint:allow timeout whole answers to watches are compared

package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// allow makes a role, of a namespace or of all if that is "", and binds it to a subject: a kind and a name. A rule is
// verbs, GROUP/RESOURCES, and perhaps names.
func (d *target) allow(t testing.TB, namespace, role, subject string, rules ...string) {
	t.Helper()
	uri, kind := "/apis/rbac.authorization.k8s.io/v1/", "ClusterRole"
	if namespace != "" {
		uri, kind = uri+"namespaces/"+namespace+"/", "Role"
	}
	list := func(words string) string { return `["` + strings.ReplaceAll(words, ",", `","`) + `"]` }
	var all []string
	for _, rule := range rules {
		words := strings.Fields(rule)
		group, resources, _ := strings.Cut(words[1], "/")
		text := fmt.Sprintf(`{"verbs":%s,"apiGroups":[%q],"resources":%s`, list(words[0]), group, list(resources))
		if len(words) > 2 {
			text += `,"resourceNames":` + list(words[2])
		}
		all = append(all, text+"}")
	}
	of, name, _ := strings.Cut(subject, " ")
	d.create(t, uri+strings.ToLower(kind)+"s", fmt.Sprintf(`{"metadata":{"name":%q},"rules":[%s]}`, role, strings.Join(all, ",")))
	d.create(t, uri+strings.ToLower(kind)+"bindings",
		fmt.Sprintf(`{"metadata":{"name":%[1]q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":%[2]q,"name":%[1]q},`+
			`"subjects":[{"kind":%[3]q,"name":%[4]q,"namespace":%[5]q}]}`, role, kind, of, name, namespace))
}

// TestIdentity: each request through the TLS port has its token's rights, and kube-apiserver's own
// words refuse the rest, whether or not the answer is in watchfan's cache (contract.md A01–A03,
// A07, 6.4).
func TestIdentity(t *testing.T) {
	parallel(t)
	c, p := quietCluster(t)
	// All are cached before anybody asks.
	warm(t, []*target{p.secure(t, c.token(t, "admin"))}, "/api/v1/configmaps", "/api/v1/secrets", "/apis/ex.io/v1/foos", "/api/v1/pods")
	for _, user := range []string{"user", "reader"} {
		ours, plain := p.secure(t, c.token(t, user)), p.plain(t)
		plain.token = ours.token // a token counts on either port
		checkAll(t, requests(t, "rights", nil), c.as(t, user), ours, plain)
	}
}

// whoami asks who the server takes the client for.
var whoami = row{uri: "/apis/authentication.k8s.io/v1/selfsubjectreviews", method: http.MethodPost,
	body: `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`}

// with returns r with headers given in pairs.
func (r row) with(headers ...string) row {
	r.header = make(http.Header)
	for i := 0; i < len(headers); i += 2 {
		r.header[headers[i]] = append(r.header[headers[i]], headers[i+1])
	}
	return r
}

// TestIdentityHeaders: whatever the headers of a stranger say, the request is made as the owner of its token, and has
// kube-apiserver's answer, with its Warning about a header in which it finds no token (contract.md A07, A08).
func TestIdentityHeaders(t *testing.T) {
	parallel(t)
	c, p := quietCluster(t)
	const configMaps = "/api/v1/namespaces/a/configmaps"
	good := c.token(t, "user")
	secure := p.secure(t, "")
	http2 := secure.http2()
	t.Cleanup(http2.close)
	warm(t, []*target{p.secure(t, c.token(t, "admin"))}, configMaps)
	var rows []row
	for _, h := range requests(t, "headers", map[string]string{"GOOD": good, "ADMIN": c.token(t, "admin")}) {
		for _, r := range []row{whoami, {uri: "/version?token=" + c.token(t, "admin")}, {uri: "/apis/none"}, {uri: configMaps + "?resourceVersion=0"},
			{uri: configMaps + "?watch=1&resourceVersion=0&timeoutSeconds=1"}} {
			r.header = h.header
			rows = append(rows, r)
		}
	}
	checkAll(t, rows, c.as(t, ""), secure, http2)

	for _, user := range []string{"admin", "user"} {
		checkAll(t, requests(t, "acting", nil), c.as(t, user), p.secure(t, c.token(t, user)))
	}
	checkLog(t, p, good, c.token(t, "admin"))

	strict := privateWatchfan(t, c, "--anonymous-auth=false") // refuses by itself
	resp := strict.secure(t, "").do(t, http.MethodGet, "/version", http.Header{"Authorization": {"Bearer  x"}}, "")
	if w := resp.header.Get("Warning"); resp.status != http.StatusUnauthorized || !strings.Contains(w, "extra space") {
		t.Errorf("a refusal: %d, Warning %q", resp.status, w)
	}
}

// TestRevocation: a right that is taken back ends when answers of kube-apiserver are no longer believed
// (contract.md 6.6, A10), and so does a denial when the right is given (A14). The open watch ends
// properly.
func TestRevocation(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	direct := c.direct(t)
	p := privateWatchfan(t, c, "--authorization-webhook-cache-authorized-ttl=1s", "--authorization-webhook-cache-unauthorized-ttl=1s",
		"--authorization-recheck-interval=1s")
	createNamespaces(t, direct, "revoked")
	user := p.secure(t, c.token(t, "user"))
	uri := "/api/v1/namespaces/revoked/configmaps"
	warm(t, []*target{p.secure(t, c.token(t, "admin"))}, uri) // a watch that passes through would not end
	answers := func(want int, queries ...string) {
		t.Helper()
		steady.Until(t, fmt.Sprint("answers ", want), func() error {
			for _, query := range queries {
				if resp, err := user.look(uri+query, nil); err != nil || resp.status != want {
					return fmt.Errorf("%s: %d, %v", query, resp.status, err)
				}
			}
			return nil
		})
	}
	answers(http.StatusForbidden, "?resourceVersion=0")
	direct.allow(t, "revoked", "r", "User dev-user", "get,list,watch /configmaps")
	answers(http.StatusOK, "?resourceVersion=0") // a watch that was refused a moment ago would pass through
	open := user.watch(t, uri+"?watch=1&resourceVersion=0")
	direct.remove(t, "/apis/rbac.authorization.k8s.io/v1/namespaces/revoked/rolebindings/r")
	answers(http.StatusForbidden, "?resourceVersion=0", "?watch=1")
	open.finish(t)
}
