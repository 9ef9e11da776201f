package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
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
