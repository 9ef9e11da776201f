package cached

import (
	"testing"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/lane"
	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/request"
	"github.com/watchfan/watchfan/proxy/upstream"
)

// A list of one name is not divided into pages, so it has no continue token. Elsewhere the limit
// counts, except for resourceVersion 0.
func TestListLimit(t *testing.T) {
	f := func(line string, namespaced bool, want int64) {
		t.Helper()
		r := &read{Request: proxytest.MustParse(t, request.Parse, line), lane: &lane.Lane{}, variant: &fanout.Variant{},
			info: upstream.ResourceInfo{Namespaced: namespaced}}
		r.namespace = r.Request.Namespace
		r.filter, _ = fanout.NewFilter(r.namespace, r.Labels, r.Fields, nil)
		if got := r.listKey().limit; got != want {
			t.Errorf("%s: limit %d, want %d", line, got, want)
		}
	}
	const nodes, pods, podsOfOne, name = "/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces/ns/pods", "&fieldSelector=metadata.name%3Da"
	f(nodes+"?limit=1", false, 1)
	f(nodes+"?limit=1"+name, false, 0)
	f(nodes+"?limit=1&resourceVersion=5&resourceVersionMatch=NotOlderThan"+name, false, 0)
	f(pods+"?limit=1"+name, true, 1)
	f(pods+"?limit=1&resourceVersion=0", true, 0)
	f(podsOfOne+"?limit=1", true, 1)
	f(podsOfOne+"?limit=1"+name, true, 0)
}
