package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

const rolesPath = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"

// TestReplacedNames: Roles whose names JSON cannot express, and so may confuse, are what
// kube-apiserver says they are, in each encoding. No client loses an event or an object, and a right
// to one name is no right to another.
func TestReplacedNames(t *testing.T) {
	parallel(t)
	c := privateCluster(t)
	p := privateWatchfan(t, c)
	p.waitReady(t)
	ours, theirs := p.secure(t, c.token(t, "admin")), c.direct(t)
	theirs.create(t, rolesPath, `{"metadata":{"name":"first"}}`)
	rv := theirs.version(t, rolesPath)
	since := fmt.Sprintf("%s?watch=1&resourceVersion=%d", rolesPath, rv)
	got, want := ours.follow(t, since), theirs.follow(t, since)
	p.admin(t).awaitWatchers(t, 1)

	for _, name := range []string{"u\xff", "u\xfe", "u\x80", "u\ufffd", "ué"} {
		createRole(t, theirs, name)
	}
	theirs.remove(t, rolesPath+"/u%FF")
	last := theirs.create(t, rolesPath, `{"metadata":{"name":"z-last"}}`)
	if err := compare(got.until(t, last), want.until(t, last)); err != nil {
		t.Errorf("a watch of JSON: %v", err)
	}

	createRole(t, theirs, "u\xff")
	theirs.allow(t, "default", "granted", "User dev-user", "list rbac.authorization.k8s.io/roles u\ufffd")
	user := [2]*target{p.secure(t, c.token(t, "user")), c.as(t, "user")}
	for _, accepts := range []string{jsonType, protoType, partials, strings.Replace(partials, "json", "vnd.kubernetes.protobuf", 1)} {
		for _, name := range []string{"u%FF", "u%FD", "u%EF%BF%BD", "u%C3%A9"} {
			one := strings.Replace(accepts, "MetadataList", "Metadata", 1)
			for _, query := range []string{"", "?resourceVersion=0"} {
				row{uri: rolesPath + "/" + name + query, header: accept(one)}.check(t, theirs, ours)
			}
			for _, query := range []string{"?", "?resourceVersion=0&"} {
				r := row{uri: rolesPath + query + "fieldSelector=metadata.name%3D" + name, header: accept(accepts)}
				r.check(t, theirs, ours)
				r.check(t, user[1], user[0])
			}
		}
		for _, query := range []string{"", "?resourceVersion=0", "?limit=3", "?fieldSelector=metadata.name%21%3Du%FE"} {
			row{uri: rolesPath + query, header: accept(accepts)}.check(t, theirs, ours)
		}
	}
	// Tokens are JSON, so the pages lead past some names, or back to others. They do so here too.
	var page struct{ Metadata struct{ Continue string } }
	for n := 0; n < 10 && (page.Metadata.Continue != "" || n == 0); n++ {
		uri := rolesPath + "?limit=1&continue=" + page.Metadata.Continue
		row{uri: uri, header: accept(protoType)}.check(t, theirs, ours)
		page.Metadata.Continue = ""
		if err := json.Unmarshal(theirs.get(t, uri).body, &page); err != nil {
			t.Fatal(err)
		}
	}
	if list := ours.do(t, http.MethodGet, rolesPath+"?resourceVersion=0", accept(protoType), ""); !proxytest.FromCache(list.header) {
		t.Error("a list in protobuf is not served from the cache")
	}
}

// createRole creates a Role in protobuf, where a name may have any bytes.
func createRole(t *testing.T, d *target, name string) {
	t.Helper()
	role := rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	raw, err := role.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	object := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: rbacv1.GroupName + "/v1", Kind: "Role"}, Raw: raw}
	if raw, err = object.Marshal(); err != nil {
		t.Fatal(err)
	}
	resp := d.do(t, http.MethodPost, rolesPath, http.Header{"Content-Type": {protoType}}, "k8s\x00"+string(raw))
	if resp.status != http.StatusCreated {
		t.Fatalf("create role %q: %d: %s", name, resp.status, resp.body)
	}
}
