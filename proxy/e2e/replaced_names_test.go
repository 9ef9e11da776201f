package e2e_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/watchfan/watchfan/proxy/proxytest"
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
	grantName(t, theirs, "u\ufffd")
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
	for token, n := "", 0; n < 10 && (token != "" || n == 0); n++ {
		page := row{uri: rolesPath + "?limit=1&continue=" + token, header: accept(protoType)}
		page.check(t, theirs, ours)
		token = continueOf(t, theirs.do(t, http.MethodGet, page.uri, page.header, "").body)
	}
	if list := ours.do(t, http.MethodGet, rolesPath+"?resourceVersion=0", accept(protoType), ""); !proxytest.FromCache(list.header) {
		t.Error("a list in protobuf is not served from the cache")
	}
}

// continueOf returns the token for the page behind a list in protobuf, "" for none.
func continueOf(t *testing.T, list []byte) string {
	t.Helper()
	var body runtime.Unknown
	var meta metav1.ListMeta
	if err := body.Unmarshal(bytes.TrimPrefix(list, []byte("k8s\x00"))); err != nil {
		t.Fatal(err)
	}
	head, _ := cutMetadata(body.Raw)
	if err := meta.Unmarshal(head); err != nil {
		t.Fatal(err)
	}
	return meta.Continue
}

// createRole creates a Role in protobuf, where a name may have any bytes.
func createRole(t *testing.T, d *target, name string) {
	t.Helper()
	field := func(number protowire.Number, value string) string {
		return string(protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), value))
	}
	body := "k8s\x00" + field(1, field(1, "rbac.authorization.k8s.io/v1")+field(2, "Role")) +
		field(2, field(1, field(1, name)+field(3, "default")))
	resp := d.do(t, http.MethodPost, rolesPath, http.Header{"Content-Type": {protoType}}, body)
	if resp.status != http.StatusCreated {
		t.Fatalf("create role %q: %d: %s", name, resp.status, resp.body)
	}
}

// grantName lets dev-user list the Roles of one name.
func grantName(t *testing.T, d *target, name string) {
	t.Helper()
	d.create(t, rolesPath, fmt.Sprintf(`{"metadata":{"name":"granted"},"rules":[{"apiGroups":["rbac.authorization.k8s.io"],`+
		`"resources":["roles"],"verbs":["list"],"resourceNames":["%s"]}]}`, name))
	d.create(t, strings.TrimSuffix(rolesPath, "roles")+"rolebindings", `{"metadata":{"name":"granted"},`+
		`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"granted"},`+
		`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"dev-user"}]}`)
}
