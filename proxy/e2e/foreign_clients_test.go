package e2e_test

import (
	"net/http"
	"strconv"
	"testing"
)

// TestReconnectInOutage: a client that ends its watch and begins it again is served while
// kube-apiserver is away, as its open watch would be, and a stranger is not.
func TestReconnectInOutage(t *testing.T) {
	parallel(t)
	c := privateCluster(t, endWatches...)
	p := privateWatchfan(t, c, "--authorization-webhook-cache-authorized-ttl=1s") // an open watch's yes counts for longer
	p.waitReady(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "reconnect")
	uri := "/api/v1/namespaces/reconnect/configmaps"
	user := p.secure(t, c.token(t, "reader"))
	warm(t, []*target{user}, uri) // the history begins before the object
	rv := makeConfigMap(t, direct, "reconnect", "x", "")
	stream := user.watch(t, uri+"?watch=1&allowWatchBookmarks=true&resourceVersion=0")
	stream.wait(t, 1)
	if err := c.Halt(); err != nil {
		t.Fatal(err)
	}
	stream.stop()
	for _, query := range []string{"&resourceVersion=" + strconv.FormatUint(rv, 10), "&resourceVersion=0"} {
		again, err := user.tryWatch(t.Context(), uri+"?watch=1&allowWatchBookmarks=true"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		if again.status != http.StatusOK {
			t.Errorf("%s while kube-apiserver is away: %d, want 200", query, again.status)
		}
		again.stop()
	}
	for what, way := range map[string]*target{"another client": p.secure(t, c.token(t, "user")), "another resource": user} {
		other := uri
		if way == user {
			other = "/api/v1/namespaces/reconnect/pods"
		}
		if resp, err := way.look(other+"?watch=1&resourceVersion=0", nil); err != nil || resp.status == http.StatusOK {
			t.Errorf("%s: %d while kube-apiserver is away, %v", what, resp.status, err)
		}
	}
	if err := c.Begin(); err != nil {
		t.Fatal(err)
	}
}
