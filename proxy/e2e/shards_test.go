//testlint:allow timeout whole answers to watches are compared

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/sharding"
)

const shardedListAndWatch = "ShardedListAndWatch"

// shardOf returns a shardSelector of one range (KEP-5866).
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

// shardRows are requests with shardSelectors, for a kube-apiserver that does not ignore them: with the feature gate
// ShardedListAndWatch.
func shardRows(now string) (rows []row) {
	const configMaps, inA = "/api/v1/configmaps", "/api/v1/namespaces/a/configmaps"
	uid := func(start, end string) string { return shardOf("uid", start, end) }
	add := func(selector string, uris ...string) {
		for _, uri := range uris {
			rows = append(rows, row{id: "KEP-5866", uri: uri + "&shardSelector=" + url.QueryEscape(selector)})
		}
	}
	for _, selector := range append(append(halves("uid"), halves("namespace")...), uid(firstHash, lastHash), strings.Join(halves("uid"), "||"),
		uid(firstHash, "0x4000000000000000")+" || "+uid(middleHash, "0xc000000000000000"),
		shardOf("namespace", "0xaf63dc4c8601ec8c", "0xaf63dc4c8601ec8d")) { // of "a" alone
		for _, uri := range []string{configMaps, inA, "/apis/ex.io/v1/foos", "/api/v1/namespaces"} {
			add(selector, uri+"?resourceVersion=0", uri+"?", uri+"?limit=5", uri+"?limit=2&resourceVersion=0")
		}
		for _, query := range []string{"resourceVersion=" + now, "resourceVersionMatch=Exact&resourceVersion=" + now, "limit=3&resourceVersion=" + now,
			"limit=3&labelSelector=l%3D1", "labelSelector=l%3D1&resourceVersion=0", "fieldSelector=metadata.name%3Dx&resourceVersion=0",
			"watch=1&timeoutSeconds=10", "watch=1&timeoutSeconds=10&resourceVersion=0&allowWatchBookmarks=1",
			"watch=1&timeoutSeconds=10&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1"} {
			add(selector, configMaps+"?"+query)
		}
	}
	for _, selector := range []string{" ", shardOf("name", firstHash, middleHash), uid("0000000000000000", middleHash), uid("0x", middleHash),
		uid(firstHash, "0x8"), uid(firstHash, "0x000000000000000000"), uid(firstHash, "0x000000000000000A"),
		uid(firstHash, "0x00000000000000é"), uid(firstHash, "0x10000000000000001"), uid(middleHash, middleHash),
		uid(middleHash, firstHash), uid(lastHash, lastHash), uid(firstHash, middleHash) + " || " + shardOf("namespace", middleHash, lastHash),
		"x", "shardRange()", "shardRange(object.metadata.uid, 0, 8)", uid(firstHash, middleHash) + " && " + uid(middleHash, lastHash),
		uid(firstHash, middleHash) + "||", "f(object.metadata.uid, '0x0', '0x8')", "object.metadata.uid > '0x0'", "\x01",
		// More forms of CEL than watchfan takes, which then pass through.
		"(" + uid(firstHash, middleHash) + ")", uid(firstHash, middleHash) + " // half", strings.ReplaceAll(uid(firstHash, middleHash), "'0x", "r'0x")} {
		add(selector, configMaps+"?resourceVersion=0", configMaps+"?watch=1&timeoutSeconds=10", "/apis/apps/v1/namespaces/a/deployments?resourceVersion=0")
	}
	return rows
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
