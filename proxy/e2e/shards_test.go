//testlint:allow timeout whole answers to watches are compared

package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/sharding"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

const shardedListAndWatch = "ShardedListAndWatch"

// shardOf returns a shardSelector of one range.
func shardOf(field, start, end string) string {
	return fmt.Sprintf("shardRange(object.metadata.%s, '%s', '%s')", field, start, end)
}

const firstHash, middleHash, lastHash = "0x0000000000000000", "0x8000000000000000", "0x10000000000000000"

// halves returns the shardSelectors of a collection's two halves.
func halves(field string) []string {
	return []string{shardOf(field, firstHash, middleHash), shardOf(field, middleHash, lastHash)}
}

// inHalf reports whether the nth half has a value's hash, as k8s.io/apimachinery computes it.
func inHalf(n int, value string) bool {
	return (sharding.HashField(value) >= middleHash[2:]) == (n == 1)
}

func withShard(uri, selector string) string {
	separator := "?"
	if strings.Contains(uri, "?") {
		separator = "&"
	}
	return uri + separator + "shardSelector=" + url.QueryEscape(selector)
}

// shardObjects makes objects of several kinds, in three namespaces.
func shardObjects(t *testing.T, d *target) {
	t.Helper()
	createNamespaces(t, d, "a", "aa", "bb") // whose hashes are in both halves
	createCRD(t, d, "ex.io", "Foo", "Namespaced")
	for _, ns := range []string{"a", "aa", "bb"} {
		for i := range 12 {
			d.create(t, "/api/v1/namespaces/"+ns+"/configmaps", fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap",`+
				`"metadata":{"name":"x%d","labels":{"l":"%d"}},"data":{"k":"é"}}`, i, i%3))
		}
		for i := range 3 {
			d.create(t, "/api/v1/namespaces/"+ns+"/pods", podBody(fmt.Sprint("p", i), fmt.Sprint("n", i)))
			d.create(t, "/apis/ex.io/v1/namespaces/"+ns+"/foos", fmt.Sprintf(
				`{"apiVersion":"ex.io/v1","kind":"Foo","metadata":{"name":"f%d"},"spec":{"c":"red"}}`, i))
		}
	}
}

// TestShards: where kube-apiserver serves shardSelector (feature gate ShardedListAndWatch,
// KEP-5866), nobody can tell watchfan from it.
func TestShards(t *testing.T) {
	parallel(t)
	c := privateCluster(t, append([]string{"--apiserver-arg",
		"feature-gates=CBORServingAndStorage=true," + shardedListAndWatch + "=true"}, endWatches...)...)
	shardObjects(t, c.direct(t))
	p := privateWatchfan(t, c)
	p.waitReady(t)
	t.Run("lists", func(t *testing.T) { testShardLists(t, c, p) })
	t.Run("watches", func(t *testing.T) { testShardWatches(t, c, p) })
	t.Run("errors", func(t *testing.T) { testShardErrors(t, c, p) })
}

func testShardLists(t *testing.T, c *cluster, p *watchfan) {
	direct := c.direct(t)
	const all, inA, foos = "/api/v1/configmaps", "/api/v1/namespaces/a/configmaps", "/apis/ex.io/v1/foos"
	accepts := []string{jsonType, protoType, partials, protoType + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
		cborType, cborPartials}
	// Lanes know no older resourceVersions than their own. No client starts all of them.
	ways := p.ways(t, c.token(t, "admin"))
	another := p.secure(t, serviceAccountToken(t, direct, "a", "another"))
	direct.create(t, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"another"},`+
		`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},`+
		`"subjects":[{"kind":"ServiceAccount","name":"another","namespace":"a"}]}`)
	for _, uri := range []string{all, "/api/v1/pods", foos, "/api/v1/namespaces"} {
		p.plain(t).warmAs(t, uri, slices.DeleteFunc(slices.Clone(accepts[:4]), func(a string) bool {
			return uri == foos && a == protoType // custom resources have no protobuf
		})...)
		another.warmAs(t, uri, accepts[4:]...)
	}
	now := fmt.Sprint(direct.version(t, all))
	selectors := slices.Concat(halves("uid"), halves("namespace"), []string{
		shardOf("uid", firstHash, lastHash), strings.Join(halves("uid"), "||"),
		shardOf("uid", firstHash, "0x4000000000000000") + " || " + shardOf("uid", middleHash, "0xc000000000000000"),
		shardOf("namespace", "0xaf63dc4c8601ec8c", "0xaf63dc4c8601ec8d")}) // of "a" alone
	var uris []string
	for _, selector := range selectors {
		for _, uri := range []string{all, inA, "/api/v1/pods", foos, "/api/v1/namespaces"} {
			for _, query := range []string{"?resourceVersion=0", "", "?limit=5", "?limit=2&resourceVersion=0"} {
				uris = append(uris, withShard(uri+query, selector))
			}
		}
		for _, query := range []string{"resourceVersion=" + now, "resourceVersion=" + now + "&resourceVersionMatch=Exact",
			"limit=3&resourceVersion=" + now, "limit=3&labelSelector=l%3D1", "labelSelector=l%3D1&resourceVersion=0",
			"fieldSelector=metadata.name%3Dx1&resourceVersion=0",
			"fieldSelector=metadata.name%3Dx1,metadata.namespace%3Da"} {
			uris = append(uris, withShard(all+"?"+query, selector))
		}
		uris = append(uris, pagesOf(t, direct, withShard(all+"?limit=4", selector))...)
	}
	atLeast(t, p, direct, all, accepts...)
	rows := make(map[*target][]row)
	for i, uri := range uris {
		for j, a := range accepts {
			if strings.Contains(uri, "foos") && a == protoType {
				a = protoType + "," + jsonType
			}
			way := ways[(i+j)%len(ways)]
			rows[way] = append(rows[way], row{uri: uri, header: accept(a), cached: true})
		}
	}
	var checking sync.WaitGroup
	for way, rows := range rows {
		checking.Go(func() { checkAll(t, rows, direct, way) })
	}
	checking.Wait()
	t.Logf("%d lists in %d forms", len(uris), len(accepts))
}

// atLeast has p's caches hold a write that is newer than all of uri so far, and so than the tokens of pages. A proof
// that the objects have not changed would tell them one newer resourceVersion, and not those before it.
func atLeast(t *testing.T, p *watchfan, direct *target, uri string, forms ...string) {
	t.Helper()
	makeConfigMap(t, direct, "a", "at-least", "")
	for _, form := range forms {
		steady.Until(t, "write in the cache as "+form, func() error {
			resp, err := p.plain(t).try(http.MethodGet, uri+"?resourceVersion=0", accept(form), "")
			if err == nil && (!proxytest.FromCache(resp.header) || !strings.Contains(string(resp.body), "at-least")) {
				err = fmt.Errorf("%d, and it is not there", resp.status)
			}
			return err
		})
	}
}

// pagesOf returns the requests for all pages of a list but the first.
func pagesOf(t *testing.T, d *target, uri string) (pages []string) {
	t.Helper()
	for next := uri; ; {
		var list struct{ Metadata struct{ Continue string } }
		resp := d.get(t, next)
		if err := json.Unmarshal(resp.body, &list); err != nil || resp.status != http.StatusOK {
			t.Fatalf("%s: %d, %v: %s", next, resp.status, err, resp.body)
		}
		if list.Metadata.Continue == "" {
			return pages
		}
		next = uri + "&continue=" + list.Metadata.Continue
		pages = append(pages, next)
	}
}

func testShardWatches(t *testing.T, c *cluster, p *watchfan) {
	direct, way := c.direct(t), p.plain(t)
	const all = "/api/v1/configmaps?watch=1"
	var rows []row
	for _, selector := range append(halves("uid"), halves("namespace")...) {
		for _, start := range []string{"", "&resourceVersion=0&allowWatchBookmarks=1",
			"&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1"} {
			for _, a := range []string{jsonType, protoType, partial} {
				rows = append(rows, row{uri: withShard(all+"&timeoutSeconds=5"+start, selector), header: accept(a)})
			}
		}
	}
	checkAll(t, rows, direct, way)
	from := fmt.Sprintf("%s&allowWatchBookmarks=1&resourceVersion=%d", all, direct.version(t, "/api/v1/configmaps"))
	uris := []string{from}
	for _, selector := range append(halves("uid"), halves("namespace")...) {
		uris = append(uris, withShard(from, selector), withShard(from+"&labelSelector=l%3D1", selector))
	}
	var ours, theirs []*recording
	for _, uri := range uris {
		ours, theirs = append(ours, way.watch(t, uri)), append(theirs, direct.follow(t, uri))
	}
	churnShards(t, direct, steady.Rand(t), 60)
	before := direct.version(t, "/api/v1/configmaps")
	for i := range 24 { // some in each half
		ns := []string{"a", "aa", "bb"}[i%3]
		makeConfigMap(t, direct, ns, fmt.Sprint("marker", i), `"l":"1"`)
	}
	var counts []int // of events before the markers
	for i, pair := range theirs {
		marker := pair.behind(t, before).rv
		got, want := withoutBookmarks(ours[i].until(t, marker)), withoutBookmarks(pair.until(t, marker))
		if err := compare(got, want); err != nil {
			t.Errorf("%s: %v", pair.uri, err)
		}
		counts = append(counts, slices.IndexFunc(got, func(e event) bool { return e.rv == marker }))
	}
	for first := 1; first < len(counts); first += 4 { // two halves without labels, with two with labels between them
		lower, upper := counts[first], counts[first+2]
		if lower+upper != counts[0] || lower == 0 || upper == 0 {
			t.Errorf("the halves have %d and %d of %d events", lower, upper, counts[0])
		}
	}
	t.Logf("%d events", counts[0])
	if n := p.admin(t).metric(t, "watchfan_passthrough_requests_total", `verb="watch"`); n != 0 {
		t.Errorf("%v watches were passed through", n)
	}
}

// churnShards makes n changes of ConfigMaps: some are made and deleted, and their labels change.
func churnShards(t *testing.T, d *target, rng *rand.Rand, n int) {
	t.Helper()
	exists := make(map[string]bool)
	round := rng.Uint32()
	for i := range n {
		ns, name := []string{"a", "aa", "bb"}[rng.IntN(3)], fmt.Sprintf("churn%d-%d", round, rng.IntN(8))
		uri := "/api/v1/namespaces/" + ns + "/configmaps"
		switch key := uri + "/" + name; {
		case !exists[key]:
			d.create(t, uri, fmt.Sprintf(
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"l":"%d"}}}`, name, i%2))
			exists[key] = true
		case rng.IntN(4) == 0:
			d.remove(t, key)
			delete(exists, key)
		default:
			d.patch(t, key, fmt.Sprintf(`{"metadata":{"labels":{"l":"%d"}},"data":{"k":"%d"}}`, rng.IntN(2), i))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(exists))[:len(exists)/2] {
		d.remove(t, key)
	}
}

// malformedShards are shardSelectors that kube-apiserver refuses. exact are those that watchfan
// refuses in the same words.
func malformedShards() (exact, others []string) {
	uid := func(start, end string) string { return shardOf("uid", start, end) }
	exact = []string{" ", shardOf("name", firstHash, middleHash), uid("0000000000000000", middleHash), uid("0x", middleHash),
		uid(firstHash, "0x8"), uid(firstHash, "0x000000000000000000"), uid(firstHash, "0x000000000000000A"),
		uid(firstHash, "0x00000000000000é"), uid(firstHash, "0x10000000000000001"), uid(middleHash, middleHash),
		uid(middleHash, firstHash), uid(lastHash, lastHash),
		uid(firstHash, middleHash) + " || " + shardOf("namespace", middleHash, lastHash)}
	others = []string{"x", "shardRange()", "shardRange(object.metadata.uid, 0, 8)",
		uid(firstHash, middleHash) + " && " + uid(middleHash, lastHash), uid(firstHash, middleHash) + "||", "f(object.metadata.uid, '0x0', '0x8')", "object.metadata.uid > '0x0'", "\x01"}
	return exact, others
}

// testShardErrors compares the words for malformed selectors: through watchfan, and those that
// watchfan itself has where kube-apiserver ignores the parameter.
func testShardErrors(t *testing.T, c *cluster, p *watchfan) {
	direct := c.direct(t)
	off := sharedCluster(t)
	ignoring := sharedWatchfan(t)
	ignoring.waitReady(t)
	ignored := !off.direct(t).enables(t, shardedListAndWatch)
	exact, others := malformedShards()
	var rows, own []row // watchfan's own words are kube-apiserver's for these
	for i, selector := range append(exact, others...) {
		for _, uri := range []string{"/api/v1/configmaps", "/api/v1/configmaps?watch=1&timeoutSeconds=1",
			"/apis/apps/v1/namespaces/a/deployments?resourceVersion=0"} {
			r := row{uri: withShard(uri, selector)}
			rows = append(rows, r)
			if i < len(exact) {
				own = append(own, r)
				continue
			}
			if !ignored {
				continue
			}
			resp := ignoring.plain(t).get(t, r.uri)
			var st metav1.Status
			if err := json.Unmarshal(resp.body, &st); err != nil || resp.status != http.StatusInternalServerError ||
				st.Code != http.StatusInternalServerError || st.Reason != "" ||
				!strings.HasPrefix(st.Message, "invalid shard selector: ") {
				t.Errorf("%q: %d %s", selector, resp.status, resp.body)
			}
		}
	}
	// kube-apiserver takes more forms of CEL than watchfan, which then passes them through.
	lower := halves("uid")[0]
	for _, selector := range []string{"(" + lower + ")", lower + " // half", strings.ReplaceAll(lower, "'0x", "r'0x")} {
		rows = append(rows, row{uri: withShard("/api/v1/configmaps?resourceVersion=0", selector)})
	}
	checkAll(t, rows, direct, p.plain(t))
	if ignored {
		checkAll(t, own, direct, ignoring.plain(t))
	}
}
