package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

const rightsConfig = `apiVersion: watchfan.io/v1alpha1
kind: WatchfanConfiguration
clients:
  - {viewOf: namespace}
views:
  - name: quiet
    quiet: true
    resources:
      - {resource: configmaps, keep: [metadata], labelSelector: app!=none}
      - {resource: secrets, keep: [metadata]}
`

// TestViewRights: "Rights are exactly those without the view." A service account with few rights gets, verb by
// verb, the same status in a view as straight from kube-apiserver, and the same words if it may not: by the view's
// path, and where its namespace names the view. What its view has not is 404.
func TestViewRights(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(rightsConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	p := privateWatchfan(t, c, "--config", file)
	p.waitReady(t)
	admin := c.direct(t)
	createNamespaces(t, admin, "few-a", "few-b")
	for _, ns := range []string{"few-a", "few-b"} {
		for _, name := range []string{"c1", "c2"} {
			makeConfigMap(t, admin, ns, name, "")
			admin.create(t, "/api/v1/namespaces/"+ns+"/secrets", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
		}
	}
	makeConfigMap(t, admin, "few-a", "outside", `"app":"none"`)
	admin.create(t, "/api/v1/namespaces/few-a/serviceaccounts", `{"metadata":{"name":"few"}}`)
	admin.allow(t, "few-a", "few", "ServiceAccount few", "get,list /configmaps", "watch /secrets", "get,list,watch /secrets c1")
	admin.patch(t, "/api/v1/namespaces/few-a", `{"metadata":{"labels":{"watchfan.io/view":"quiet"}}}`)
	token := requestToken(t, admin, "/api/v1/namespaces/few-a/serviceaccounts/few")
	theirs, ours := c.as(t, ""), p.secure(t, token)
	theirs.token = token
	p.secure(t, c.token(t, "admin")).warmAs(t, "/api/v1/configmaps", jsonType) // caches have what the account may not read
	p.secure(t, c.token(t, "admin")).warmAs(t, "/api/v1/secrets", jsonType)
	answer := func(d *target, uri string) (status int, message string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resp, err := d.open(ctx, http.MethodGet, uri, accept(jsonType), "")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var said metav1.Status
		if resp.StatusCode != http.StatusOK {
			_ = json.NewDecoder(resp.Body).Decode(&said) // another body is another message
		}
		return resp.StatusCode, said.Message
	}
	statuses := make(map[int]int)
	for _, resource := range []string{"configmaps", "secrets", "pods"} {
		for _, scope := range []string{"/api/v1/" + resource, "/api/v1/namespaces/few-a/" + resource, "/api/v1/namespaces/few-b/" + resource} {
			for _, verb := range []string{"", "/c1", "/c2", "?watch=1", "?fieldSelector=metadata.name%3Dc1", "?watch=1&fieldSelector=metadata.name%3Dc1"} {
				uri := scope + verb
				if scope == "/api/v1/"+resource && verb != "" && verb[0] == '/' {
					continue
				}
				steady.Until(t, "rights", func() error { // the role may be new to kube-apiserver
					status, message := answer(theirs, uri)
					for _, d := range []*target{ours, ours.in("quiet"), ours.in("lean")} {
						if got, said := answer(d, uri); got != status || said != message {
							return fmt.Errorf("%s of %s: %d %s, want %d %s", uri, d.name, got, said, status, message)
						}
					}
					statuses[status]++
					return nil
				})
			}
		}
	}
	if statuses[http.StatusOK] < 7 || statuses[http.StatusForbidden] < 20 {
		t.Errorf("got %v: this shows little", statuses)
	}
	const outside = "/api/v1/namespaces/few-a/configmaps/outside"
	for d, want := range map[*target]int{ours: http.StatusNotFound, ours.in("quiet"): http.StatusNotFound, ours.in("lean"): http.StatusOK} {
		if got, said := answer(d, outside); got != want {
			t.Errorf("%s: %d %s, want %d", d.name, got, said, want)
		}
	}
}
