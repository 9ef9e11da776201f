package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// kubectlTables is kubectl's Accept header.
const kubectlTables = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"

// watchTables watches as kubectl does.
func (d *target) watchTables(t testing.TB, uri string) *recording {
	t.Helper()
	r, err := d.tryWatch(t.Context(), uri, http.Header{"Accept": {kubectlTables}})
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
// Only ages may round to another second.
func TestTables(t *testing.T) {
	c := sharedCluster(t)
	direct := c.direct(t)
	direct.create(t, definitionsPath, tableCRD)
	createNamespaces(t, direct, "tables", "tables-b")
	p := privateWatchfan(t, c)
	p.waitReady(t)
	eventually(t, 10*time.Second, "the custom resource", func() error {
		_, err := direct.write(http.MethodGet, "/apis/tables.example.com/v1/rows", "", "")
		return err
	})
	admin := p.admin(t)
	ways := []*target{p.plain(t), p.secure(t, c.token(t, "admin")), p.secure(t, c.token(t, "admin")).zipped()}
	for _, kind := range []struct{ api, resource, body string }{
		{"/api/v1", "configmaps", `"data":{"k":"0"}`},
		{"/api/v1", "pods", `"spec":{"containers":[{"name":"c","image":"i"}]}`},
		{"/apis/tables.example.com/v1", "rows", `"data":{"k":"0"}`},
	} {
		t.Run(kind.resource, func(t *testing.T) {
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
				uri += fmt.Sprintf("watch=true&timeoutSeconds=12&resourceVersion=%d", rv)
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
			time.Sleep(1200 * time.Millisecond) // ages grow
			for _, label := range []string{`"2"`, `null`, `"1"`, `"1","m":"1"`} {
				direct.patch(t, in+"/a", `{"metadata":{"labels":{"l":`+label+`}}}`)
			}
			post("tables", "c", "2")
			time.Sleep(1200 * time.Millisecond)
			for _, uri := range []string{in + "/a", in + "/c", kind.api + "/namespaces/tables-b/" + kind.resource + "/b"} {
				direct.remove(t, uri)
			}
			for _, pr := range pairs {
				want := pr.want.finish(t, 20*time.Second)
				for _, got := range pr.got {
					events := got.finish(t, 20*time.Second)
					if err := compareTables(events, want, !strings.Contains(got.uri, "includeObject=None")); err != nil {
						t.Errorf("%s, %s: %v", got.target.name, got.uri, err)
					}
					if g, w := got.header.Get("Content-Type"), pr.want.header.Get("Content-Type"); g != w {
						t.Errorf("%s, %s: Content-Type %s, want %s", got.target.name, got.uri, g, w)
					}
				}
				if n := len(withoutBookmarks(want)); n == 0 {
					t.Errorf("%s brought nothing", pr.want.uri)
				}
			}
		})
	}
	if n := admin.metric(t, "watchfan_passthrough_watches_total"); n != admin.metric(t, "watchfan_passthrough_watches_total", `reason="table_no_objects"`) {
		t.Errorf("%v watches were passed through, among them some with objects", n)
	}
}

// TestTablesOneWatch: kubectls that list and then watch share one upstream watch of their resource,
// whatever their namespaces.
func TestTablesOneWatch(t *testing.T) {
	c := sharedCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "tables-one")
	before := upstreamWatches(t, direct, "configmaps")
	p := privateWatchfan(t, c)
	p.waitReady(t)
	plain, admin := p.plain(t), p.admin(t)
	const clients = 50
	var watches []*recording
	opened := make(chan *recording, clients)
	for i := range clients {
		go func() {
			uri := []string{"/api/v1/configmaps", "/api/v1/namespaces/tables-one/configmaps"}[i%2]
			r, err := plain.listAndWatchTables(t.Context(), uri)
			if err != nil {
				t.Error(err)
			}
			opened <- r
		}()
		time.Sleep(time.Duration(i%5) * time.Millisecond)
	}
	for range clients {
		if r := <-opened; r != nil {
			watches = append(watches, r)
		}
	}
	admin.awaitWatchers(t, clients)
	eventually(t, 10*time.Second, "the replays' end", func() error {
		if n := upstreamWatches(t, direct, "configmaps") - before; n != 1 {
			return fmt.Errorf("%d watches upstream for %d kubectls", n, clients)
		}
		return nil
	})
	makeConfigMap(t, direct, "tables-one", "x", "")
	for _, r := range watches {
		for n := 1; ; n++ {
			if events := r.wait(t, n); strings.Contains(events[n-1].line, `"cells":["x",1,`) {
				break
			}
		}
		r.cancel()
	}
	if n := admin.metric(t, "watchfan_passthrough_watches_total"); n != 0 {
		t.Errorf("%v watches were passed through", n)
	}
}

// TestTableListsShared: kubectls that list at the same instant get what kube-apiserver answers to one
// beside them, whether they take gzip or not, and those without the right get its refusal.
func TestTableListsShared(t *testing.T) {
	t.Parallel()
	c := sharedCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "tables-list")
	for i := range 5 {
		direct.create(t, "/api/v1/namespaces/tables-list/configmaps",
			fmt.Sprintf(`{"metadata":{"name":"x%d"},"data":{"k":%q}}`, i, strings.Repeat("x", 40<<10)))
	}
	p := privateWatchfan(t, c)
	p.waitReady(t)
	admin := p.secure(t, c.token(t, "admin"))
	for _, uri := range []string{
		"/api/v1/namespaces/tables-list/configmaps?limit=500", "/api/v1/namespaces/tables-list/configmaps?limit=2",
		"/api/v1/namespaces/tables-list/configmaps?includeObject=Object",
	} {
		tables := http.Header{"Accept": {kubectlTables}}
		const clients = 20
		var all sync.WaitGroup
		began := time.Now()
		answers, refusals := make([]response, clients), make([]response, clients)
		for i := range clients {
			way := admin
			if i%2 == 0 {
				way = admin.zipped()
			}
			all.Go(func() { answers[i] = way.do(t, "GET", uri, tables, "") })
			all.Go(func() { refusals[i] = p.secure(t, c.token(t, "user")).do(t, "GET", uri, tables, "") })
		}
		all.Wait()
		wants := []response{direct.zipped().do(t, "GET", uri, tables, ""), direct.do(t, "GET", uri, tables, "")}
		later := time.Since(began)
		refused := c.as(t, "user").do(t, "GET", uri, tables, "")
		for i, got := range answers {
			want := wants[i%2]
			if g, w := sameList(got, want, later), sameList(want, want, 0); got.status != http.StatusOK || g != w {
				t.Fatalf("%s: %d %.2000s, want %.2000s", uri, got.status, g, w)
			}
			for _, name := range []string{"Content-Type", "Content-Encoding", "Vary", "Cache-Control", "Warning"} {
				if g, w := got.header.Get(name), want.header.Get(name); g != w {
					t.Errorf("%s: %s %q, want %q", uri, name, g, w)
				}
			}
		}
		for _, got := range refusals {
			if got.status != http.StatusForbidden || string(got.body) != string(refused.body) {
				t.Errorf("%s: %d %s, want %s", uri, got.status, got.body, refused.body)
			}
		}
	}
	if n := p.admin(t).metric(t, "watchfan_shared_lists_total"); n < 20 {
		t.Errorf("%v lists were shared", n)
	}
}

// ofList finds what differs between two lists of the same state: their resourceVersions and tokens.
var ofList = regexp.MustCompile(`"metadata":\{"resourceVersion":"\d+"(,"continue":"[^"]*")?`)

// sameList returns the body of got without what may differ from want, which is up to later newer.
func sameList(got, want response, later time.Duration) string {
	return sameAges(ofList.ReplaceAllString(string(unzipped(got.body)), "metadata"), string(unzipped(want.body)), later)
}

// listAndWatchTables does what kubectl get --watch does.
func (d *target) listAndWatchTables(ctx context.Context, uri string) (*recording, error) {
	tables := http.Header{"Accept": {kubectlTables}}
	list, err := d.try(http.MethodGet, uri+"?limit=500", tables, "")
	if err != nil {
		return nil, err
	}
	var table struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(list.body, &table); err != nil {
		return nil, err
	}
	return d.tryWatch(ctx, uri+"?watch=true&resourceVersion="+table.Metadata.ResourceVersion, tables)
}

// TestTablesRights: a user of one namespace sees its rows and no others. Where it may not look, it
// is told what kube-apiserver says.
func TestTablesRights(t *testing.T) {
	t.Parallel()
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
		return fmt.Sprintf("%s?watch=true&timeoutSeconds=8&resourceVersion=%d", ns, rv)
	}
	everything := admin.watchTables(t, uri("/api/v1/configmaps"))
	mine, want := user.watchTables(t, uri("/api/v1/namespaces/tables-mine/configmaps")), straight.watchTables(t, uri("/api/v1/namespaces/tables-mine/configmaps"))
	for _, path := range []string{"/api/v1/configmaps", "/api/v1/namespaces/tables-theirs/configmaps"} {
		got, want := user.do(t, "GET", uri(path), http.Header{"Accept": {kubectlTables}}, ""), straight.do(t, "GET", uri(path), http.Header{"Accept": {kubectlTables}}, "")
		if got.status != http.StatusForbidden || string(got.body) != string(want.body) {
			t.Errorf("%s: %d %s, want %s", path, got.status, got.body, want.body)
		}
	}
	for _, ns := range []string{"tables-theirs", "tables-mine", "tables-theirs"} {
		makeConfigMap(t, direct, ns, fmt.Sprintf("x%d", time.Now().UnixNano()), "")
	}
	events := mine.finish(t, 20*time.Second)
	if err := compareTables(events, want.finish(t, 20*time.Second), true); err != nil {
		t.Error(err)
	}
	for _, e := range events {
		if strings.Contains(e.line, "tables-theirs") || len(events) != 2 && len(events) != 1 { // with the ConfigMap of the root CA
			t.Errorf("the user is sent %d events, among them %s", len(events), e.line)
		}
	}
	if n := len(everything.finish(t, 20*time.Second)); n < len(events)+2 {
		t.Errorf("the admin is sent %d events beside %d of one namespace", n, len(events))
	}
}

// TestTablesResume: a client that comes back, from just before or from long ago, is sent what
// kube-apiserver sends.
func TestTablesResume(t *testing.T) {
	t.Parallel()
	c := privateCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "resume")
	makeConfigMap(t, direct, "resume", "x", "")
	c.restart(t) // the watch cache begins anew
	p := privateWatchfan(t, c)
	p.waitReady(t)
	plain := p.plain(t)
	uri := "/api/v1/namespaces/resume/configmaps?watch=true&timeoutSeconds=4&resourceVersion="
	from := direct.version(t, "/api/v1/configmaps")
	first := plain.watchTables(t, strings.Replace(uri, "timeoutSeconds=4", "timeoutSeconds=600", 1)+fmt.Sprint(from))
	patch := func(k int) uint64 {
		return direct.patch(t, "/api/v1/namespaces/resume/configmaps/x", fmt.Sprintf(`{"data":{"k":"%d"}}`, k))
	}
	patch(1)
	middle := patch(2)
	patch(3)
	first.wait(t, 3)
	both := func(rv uint64) {
		t.Helper()
		got, want := plain.watchTables(t, uri+fmt.Sprint(rv)), direct.watchTables(t, uri+fmt.Sprint(rv))
		if err := compareTables(got.finish(t, 15*time.Second), want.finish(t, 15*time.Second), false); err != nil {
			t.Errorf("from %d: %v", rv, err)
		}
	}
	both(middle) // new enough for the lane, or nearly
	time.Sleep(2 * time.Second)
	both(middle) // ages are older than a second
	both(from)
	both(direct.version(t, "/api/v1/configmaps") + 1000) // in the future
	both(1)                                              // 410
	if admin := p.admin(t); admin.metric(t, "watchfan_passthrough_watches_total", `reason="history"`) == 0 {
		t.Error("nothing was passed through because its rows were old")
	}
}

// TestTablesChurn: clients that begin anywhere in a stream of changes are sent exactly the events that
// kube-apiserver sends to one that begins there.
func TestTablesChurn(t *testing.T) {
	t.Parallel()
	c := sharedCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "churn-a", "churn-b")
	p := privateWatchfan(t, c)
	p.waitReady(t)
	ways := []*target{p.plain(t), p.secure(t, c.token(t, "admin")).zipped()}
	makeConfigMap(t, direct, "churn-a", "x", "")
	rv := makeConfigMap(t, direct, "churn-b", "x", "")
	var watches [][2]*recording
	for i := range 120 {
		ns := []string{"churn-a", "churn-b"}[rand.IntN(2)]
		in := "/api/v1/namespaces/" + ns + "/configmaps"
		before := rv
		switch rand.IntN(4) {
		case 0:
			makeConfigMap(t, direct, ns, fmt.Sprint("y", i), `"l":"1"`)
			direct.remove(t, in+fmt.Sprint("/y", i))
		case 1:
			rv = direct.patch(t, in+"/x", `{"metadata":{"labels":{"l":null}}}`)
		default:
			rv = direct.patch(t, in+"/x", fmt.Sprintf(`{"metadata":{"labels":{"l":"1"}},"data":{"k":"%d"}}`, i))
		}
		if i%3 == 0 {
			uri := []string{"/api/v1/configmaps?", in + "?", in + "?fieldSelector=metadata.name%3Dx&", in + "?labelSelector=l%3D1&"}[rand.IntN(4)] +
				fmt.Sprintf("watch=true&timeoutSeconds=20&resourceVersion=%d", []uint64{before, rv}[rand.IntN(2)])
			watches = append(watches, [2]*recording{ways[i/3%len(ways)].watchTables(t, uri), direct.watchTables(t, uri)})
		}
	}
	for _, w := range watches {
		// Other tests write, too, while the two watches end.
		var until [2][]event
		for i := range w {
			until[i] = slices.DeleteFunc(w[i].finish(t, 30*time.Second), func(e event) bool { return e.rv > rv })
		}
		if err := compareTables(until[0], until[1], false); err != nil {
			t.Errorf("%s, %s: %v", w[0].target.name, w[0].uri, err)
		}
	}
	if n := p.admin(t).metric(t, "watchfan_passthrough_watches_total"); int(n) > len(watches)/2 {
		t.Errorf("%v of %d watches were passed through", n, len(watches))
	}
}

// columns finds the column definitions of an event; rowAges finds ages in cells.
var (
	columns = regexp.MustCompile(`^(.*?"columnDefinitions":)(null|\[.*\])(,"rows":\[\{"cells":\[)(.*?)(\],"(?:object|conditions)":.*\n)$`)
	rowAges = regexp.MustCompile(`"(\d+)s"`)
)

// compareTables returns how got differs from want. Ages may differ by a second. The first event has
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
			normal[i] = e
		}
		return normal, nil
	}
	got, err := normal(withoutBookmarks(got), served)
	if err != nil {
		return err
	}
	want, _ = normal(withoutBookmarks(want), false)
	for i := range min(len(got), len(want)) {
		got[i].line = sameAges(got[i].line, want[i].line, 0)
	}
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

// sameAges returns got with the ages of want, where they differ by a second and later at most.
func sameAges(got, want string, later time.Duration) string {
	most := 1 + int(later.Seconds())
	wanted := rowAges.FindAllStringSubmatch(want, -1)
	i := -1
	return rowAges.ReplaceAllStringFunc(got, func(age string) string {
		if i++; i >= len(wanted) {
			return age
		}
		g, _ := strconv.Atoi(strings.Trim(age, `"s`))
		w, _ := strconv.Atoi(wanted[i][1])
		if g-w > most || w-g > most {
			return age
		}
		return wanted[i][0]
	})
}
