package e2e_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// kubectlTables is kubectl's Accept header.
const kubectlTables = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"

// watchTables watches as kubectl does.
func (d *target) watchTables(t testing.TB, uri string) *recording {
	t.Helper()
	r, err := d.record(t.Context(), uri, http.Header{"Accept": {kubectlTables}}, d.name == "kube-apiserver")
	if err != nil {
		t.Fatalf("watch %s at %s: %v", uri, d.name, err)
	}
	return r
}

// tableCRD defines a custom resource with columns of its own, one of them an age.
const tableCRD = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"rows.tables.example.com"},
"spec":{"group":"tables.example.com","scope":"Namespaced","names":{"plural":"rows","singular":"row","kind":"Row","listKind":"RowList"},
"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}},
"additionalPrinterColumns":[{"name":"K","type":"string","jsonPath":".data.k"},{"name":"Born","type":"date","jsonPath":".metadata.creationTimestamp"}]}]}}`

// TestTables: watches in Tables bring the bytes that kube-apiserver sends to a watcher beside them,
// for each scope, selector and form, while objects come, change, move between selectors and go.
// Ages differ with the time of sending; see package lane.
func TestTables(t *testing.T) {
	parallel(t)
	c := privateCluster(t)
	direct := c.direct(t)
	direct.create(t, definitionsPath, tableCRD)
	createNamespaces(t, direct, "tables", "tables-b")
	p := privateWatchfan(t, c)
	p.waitReady(t)
	steady.Until(t, "custom resource", func() error {
		_, err := direct.write(http.MethodGet, "/apis/tables.example.com/v1/rows", "", "")
		return err
	})
	admin := p.admin(t)
	ways := []*target{p.plain(t), p.secure(t, c.token(t, "admin")), p.secure(t, c.token(t, "admin")).zipped()}
	t.Cleanup(func() {
		if n := admin.metric(t, "watchfan_passthrough_watches_total"); n != admin.metric(t, "watchfan_passthrough_watches_total", `reason="table_no_objects"`) {
			t.Errorf("%v watches were passed through, among them some with objects", n)
		}
	})
	for _, kind := range []struct{ api, resource, body string }{
		{"/api/v1", "configmaps", `"data":{"k":"0"}`},
		{"/api/v1", "pods", `"spec":{"containers":[{"name":"c","image":"i"}]}`},
		{"/apis/tables.example.com/v1", "rows", `"data":{"k":"0"}`},
	} {
		t.Run(kind.resource, func(t *testing.T) {
			t.Parallel()
			all, in := kind.api+"/"+kind.resource, kind.api+"/namespaces/tables/"+kind.resource
			rv := direct.version(t, all)
			type pair struct {
				want *recording
				got  []*recording
			}
			var pairs []pair
			for _, uri := range []string{
				all + "?", in + "?", in + "?allowWatchBookmarks=true&",
				all + "?labelSelector=l%3D1&", in + "?labelSelector=l+in+(1,2)&", in + "?labelSelector=!l&",
				in + "?fieldSelector=metadata.name%3Da&", all + "?fieldSelector=metadata.namespace!%3Dtables&",
				in + "?includeObject=Object&", in + "?includeObject=Object&labelSelector=l%3D1&", in + "?includeObject=Metadata&", all + "?includeObject=None&",
			} {
				uri += fmt.Sprintf("watch=true&resourceVersion=%d", rv)
				pr := pair{want: direct.watchTables(t, uri)}
				for _, way := range ways {
					pr.got = append(pr.got, way.watchTables(t, uri))
				}
				pairs = append(pairs, pr)
			}
			object := func(name, label string) string {
				return fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"l":%q}},%s}`, name, label, kind.body)
			}
			post := func(ns, name, label string) {
				body := object(name, label)
				if kind.resource == "rows" {
					body = `{"apiVersion":"tables.example.com/v1","kind":"Row",` + body[1:]
				}
				direct.create(t, kind.api+"/namespaces/"+ns+"/"+kind.resource, body)
			}
			post("tables", "a", "1")
			post("tables-b", "b", "1")
			for _, label := range []string{`"2"`, `null`, `"1"`, `"1","m":"1"`} {
				direct.patch(t, in+"/a", `{"metadata":{"labels":{"l":`+label+`}}}`)
			}
			post("tables", "c", "2")
			for _, uri := range []string{in + "/a", in + "/c", kind.api + "/namespaces/tables-b/" + kind.resource + "/b"} {
				direct.remove(t, uri)
			}
			before := direct.version(t, all)
			post("tables", "a", "1") // each selector gets one more event
			direct.patch(t, in+"/a", `{"metadata":{"labels":{"l":null}}}`)
			post("tables-b", "b", "1")
			for _, pr := range pairs {
				marker := pr.want.behind(t, before).rv
				want := withoutBookmarks(pr.want.until(t, marker))
				for _, got := range pr.got {
					if err := compareTables(got.until(t, marker), want, !strings.Contains(got.uri, "includeObject=None")); err != nil {
						t.Errorf("%s, %s: %v", got.target.name, got.uri, err)
					}
					if g, w := got.header.Get("Content-Type"), pr.want.header.Get("Content-Type"); g != w {
						t.Errorf("%s, %s: Content-Type %s, want %s", got.target.name, got.uri, g, w)
					}
				}
				if len(want) < 2 {
					t.Errorf("%s brought nothing", pr.want.uri)
				}
			}
		})
	}
}

// TestTablesRights: a user of one namespace sees its rows and no others. Where it may not look, it
// is told what kube-apiserver says.
func TestTablesRights(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "tables-mine", "tables-theirs")
	rbac := "/apis/rbac.authorization.k8s.io/v1/namespaces/tables-mine/"
	direct.create(t, rbac+"roles", `{"metadata":{"name":"r"},"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["list","watch"]}]}`)
	direct.create(t, rbac+"rolebindings", `{"metadata":{"name":"b"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r"},`+
		`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"dev-user"}]}`)
	p := privateWatchfan(t, c)
	user, straight, admin := p.secure(t, c.token(t, "user")), c.as(t, "user"), p.secure(t, c.token(t, "admin"))
	rv := direct.version(t, "/api/v1/configmaps")
	uri := func(ns string) string {
		return fmt.Sprintf("%s?watch=true&resourceVersion=%d", ns, rv)
	}
	everything := admin.watchTables(t, uri("/api/v1/configmaps"))
	mine, want := user.watchTables(t, uri("/api/v1/namespaces/tables-mine/configmaps")), straight.watchTables(t, uri("/api/v1/namespaces/tables-mine/configmaps"))
	for _, path := range []string{"/api/v1/configmaps", "/api/v1/namespaces/tables-theirs/configmaps"} {
		got, want := user.do(t, "GET", uri(path), http.Header{"Accept": {kubectlTables}}, ""), straight.do(t, "GET", uri(path), http.Header{"Accept": {kubectlTables}}, "")
		if got.status != http.StatusForbidden || string(got.body) != string(want.body) {
			t.Errorf("%s: %d %s, want %s", path, got.status, got.body, want.body)
		}
	}
	var last uint64
	for i, ns := range []string{"tables-theirs", "tables-mine", "tables-theirs", "tables-mine"} {
		last = makeConfigMap(t, direct, ns, fmt.Sprintf("x%d", i), "")
	}
	events := mine.until(t, last)
	if err := compareTables(events, want.until(t, last), true); err != nil {
		t.Error(err)
	}
	for _, e := range events {
		if strings.Contains(e.line, "tables-theirs") || len(events) != 2 {
			t.Errorf("the user is sent %d events, among them %s", len(events), e.line)
		}
	}
	if n := len(everything.until(t, last)); n < len(events)+2 {
		t.Errorf("the admin is sent %d events beside %d of one namespace", n, len(events))
	}
}

// columns finds the column definitions of an event; rowAges finds ages in cells.
var (
	columns = regexp.MustCompile(`^(.*?"columnDefinitions":)(null|\[.*\])(,"rows":\[\{"cells":\[)(.*?)(\],"(?:object|conditions)":.*\n)$`)
	rowAges = regexp.MustCompile(`"(\d+)s"`)
)

// compareTables returns how got differs from want, except ages. The first event has
// column definitions. If got is served from a lane, no other has. kube-apiserver may repeat its own:
// if several watchers share an event, those that did not encode it send columns again with the next
// one.
func compareTables(got, want []event, served bool) error {
	normal := func(events []event, strict bool) ([]event, error) {
		normal := make([]event, len(events))
		for i, e := range events {
			parts := columns.FindStringSubmatch(e.line)
			if parts != nil && strict && (parts[2] != "null") != (i == 0) {
				return nil, fmt.Errorf("event %d: column definitions %.100s", i, parts[2])
			}
			if parts != nil && i > 0 {
				e.line = parts[1] + "null" + parts[3] + parts[4] + parts[5]
			}
			e.line = rowAges.ReplaceAllString(e.line, `"AGE"`)
			normal[i] = e
		}
		return normal, nil
	}
	got, err := normal(withoutBookmarks(got), served)
	if err != nil {
		return err
	}
	want, _ = normal(withoutBookmarks(want), false)
	return compare(got, want)
}

// withoutBookmarks returns events without bookmarks, whose times differ.
func withoutBookmarks(events []event) (rest []event) {
	for _, e := range events {
		if e.typ != "BOOKMARK" {
			rest = append(rest, e)
		}
	}
	return rest
}
