package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/diagnose"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// TestLanesOfOneSource: a right in one namespace starts caches of all namespaces, one for each
// representation. They count for the one who alone uses them. Beyond a few that client's watches
// pass through, and others' do not.
func TestLanesOfOneSource(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "one-source", "one-source-beside")
	const large = 900_000
	makeConfigMap(t, direct, "one-source", "x", "")
	direct.create(t, "/api/v1/namespaces/one-source-beside/configmaps", fmt.Sprintf(
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large"},"data":{"k":%q}}`, strings.Repeat("x", large-1000)))
	const roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/one-source/"
	direct.create(t, roles+"roles", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"r"},`+
		`"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get","list","watch"]}]}`)
	direct.create(t, roles+"rolebindings", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding",`+
		`"metadata":{"name":"r"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r"},`+
		`"subjects":[{"kind":"ServiceAccount","name":"tenant","namespace":"one-source"}]}`)
	tenant := serviceAccountToken(t, direct, "one-source", "tenant")

	p := privateWatchfan(t, c)
	admin := p.admin(t)
	const uri = "/api/v1/namespaces/one-source/configmaps"
	watch := func(token, accept string) {
		t.Helper()
		way := p.secure(t, token)
		resp, err := way.open(t.Context(), http.MethodGet, uri+"?watch=1&resourceVersion=0",
			http.Header{"Accept": {accept}}, "")
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v, %v", accept, resp, err)
		}
		t.Cleanup(func() { resp.Body.Close() })
	}
	const partial = ";as=PartialObjectMetadata;g=meta.k8s.io;v="
	forms := []string{"application/json", protoType, "application/json" + partial + "v1", protoType + partial + "v1"}
	const another = "application/json" + partial + "v1beta1"
	for _, form := range forms {
		p.secure(t, tenant).warmAs(t, uri, listForm(form))
		watch(tenant, form)
	}
	admin.awaitWatchers(t, len(forms))
	watch(tenant, another)
	if n := admin.metric(t, `watchfan_passthrough_watches_total{reason="lane_bound"}`); n != 1 {
		t.Errorf("%v watches pass through because of the bound, want 1", n)
	}
	p.secure(t, c.token(t, "admin")).warmAs(t, uri, listForm(another))
	watch(c.token(t, "admin"), another)
	admin.awaitWatchers(t, len(forms)+1)
	steady.Until(t, "count of the tenant's lanes", func() error {
		var d diagnose.DebugAccounts
		if err := json.Unmarshal(admin.get(t, diagnose.AccountsPath+"?format=json").body, &d); err != nil {
			return err
		}
		if len(d.Largest) == 0 || d.Largest[0].Source != "system:serviceaccount:one-source:tenant" {
			return fmt.Errorf("the largest is not the tenant: %+v", d.Largest)
		}
		if held := d.Largest[0].Held; held["lanes"] < large || held["copies"] < large {
			return errors.New("its caches of other namespaces do not count")
		}
		return nil
	})
}
