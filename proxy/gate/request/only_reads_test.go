package request

import (
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// Requests that change something, or that open a connection to a program, are no reads.
func TestOnlyReads(t *testing.T) {
	const pods, socket, upgrade = "/api/v1/namespaces/a/pods", "Upgrade: websocket", "Connection: Upgrade"
	f := func(want bool, line string, headers ...string) {
		t.Helper()
		x := proxytest.MustRead(t, line, headers...)
		req, _ := Parse(x)
		if got := req.OnlyReads(x); got != want {
			t.Errorf("%s %q: got %v, want %v", line, headers, got, want)
		}
	}
	f(true, pods)
	f(true, pods+"?watch=1", socket, upgrade)
	f(true, pods+"/p/log?follow=1")
	f(true, pods+"/p/log", socket, upgrade)
	f(true, pods+"/p/status")
	f(true, pods, "Upgrade: h2c", upgrade) // Java's HTTP client, which kube-apiserver ignores
	f(true, "/openapi/v3")
	f(true, "HEAD "+pods+" HTTP/1.1")
	f(true, "OPTIONS "+pods+" HTTP/1.1")
	for _, review := range []string{"authorization.k8s.io/v1/selfsubjectaccessreviews", "authorization.k8s.io/v1/selfsubjectrulesreviews",
		"authentication.k8s.io/v1/selfsubjectreviews", "authorization.k8s.io/v1/subjectaccessreviews",
		"authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews", "authentication.k8s.io/v1/tokenreviews"} {
		f(true, "POST /apis/"+review+"?timeout=10s HTTP/1.1", "Content-Length: 0")
		f(false, "PUT /apis/"+review+" HTTP/1.1", "Content-Length: 0")
		f(false, "POST /apis/"+review+"/x HTTP/1.1", "Content-Length: 0")
		f(false, "DELETE /apis/"+review+" HTTP/1.1")
	}
	for _, line := range []string{"POST /apis/example.com/v1/selfsubjectaccessreviews HTTP/1.1", "POST " + pods + " HTTP/1.1",
		"POST " + pods + "/p/eviction HTTP/1.1", "POST /api/v1/namespaces/a/serviceaccounts/s/token HTTP/1.1",
		"PUT " + pods + "/p HTTP/1.1", "PATCH " + pods + "/p/status HTTP/1.1", "DELETE " + pods + "/p HTTP/1.1",
		"DELETE " + pods + " HTTP/1.1", "POST " + pods + "/p/exec HTTP/1.1", "POST /apis/authorization.k8s.io/v1/watch/selfsubjectaccessreviews HTTP/1.1",
		"PUT /apis/coordination.k8s.io/v1/namespaces/a/leases/l HTTP/1.1", "POST /healthz HTTP/1.1"} {
		f(false, line, "Content-Length: 0")
	}
	for _, sub := range []string{"exec", "attach", "portforward", "proxy", "proxy/metrics"} {
		f(false, pods+"/p/"+sub)
		f(false, pods+"/p/"+sub, socket, upgrade)
	}
	f(false, "/api/v1/nodes/n/proxy/pods")
	f(false, "/api/v1/proxy/nodes/n")
	f(false, "/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachineinstances/v/vnc", socket, upgrade)
	f(false, pods+"/p", "Upgrade: SPDY/3.1", upgrade)
}
