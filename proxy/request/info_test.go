package request

import (
	"net/url"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// TestInfo: any request is read as kube-apiserver reads it, cacheable or not.
func TestInfo(t *testing.T) {
	f := func(line, want string) {
		t.Helper()
		req, _ := Parse(proxytest.MustRead(t, line))
		words := []string{req.Verb}
		for _, field := range []struct{ name, value string }{
			{"group", req.GVR.Group}, {"version", req.GVR.Version}, {"resource", req.GVR.Resource},
			{"sub", req.Subresource}, {"ns", req.Namespace}, {"name", req.Name}, {"selects", req.SelectorName},
		} {
			if field.value != "" {
				words = append(words, field.name+"="+field.value)
			}
		}
		if req.MayLast() {
			words = append(words, "lasts")
		}
		if got := strings.Join(append(words, req.MetricVerb()), " "); got != want {
			t.Errorf("%s:\n got %s\nwant %s", line, got, want)
		}
	}
	const pod = "/api/v1/namespaces/a/pods/x"
	f(pod, "get version=v1 resource=pods ns=a name=x get")
	f("HEAD "+pod+" HTTP/1.1", "get version=v1 resource=pods ns=a name=x other")
	f("PUT "+pod+" HTTP/1.1", "update version=v1 resource=pods ns=a name=x other")
	f("PATCH "+pod+"/status HTTP/1.1", "patch version=v1 resource=pods sub=status ns=a name=x other")
	f("DELETE "+pod+" HTTP/1.1", "delete version=v1 resource=pods ns=a name=x other")
	f("DELETE /apis/apps/v1/namespaces/a/deployments HTTP/1.1",
		"deletecollection group=apps version=v1 resource=deployments ns=a other")
	f("POST /apis/apps/v1/namespaces/a/deployments HTTP/1.1",
		"create group=apps version=v1 resource=deployments ns=a other")
	f("OPTIONS "+pod+" HTTP/1.1", " version=v1 resource=pods ns=a name=x other")

	f(pod+"/log?follow=1", "get version=v1 resource=pods sub=log ns=a name=x lasts other")
	f("POST "+pod+"/exec?command=a HTTP/1.1", "create version=v1 resource=pods sub=exec ns=a name=x other")
	f("/api/v1/nodes/n/proxy/logs/", "get version=v1 resource=nodes sub=proxy name=n lasts other")
	f("/api/v1/proxy/nodes/n", "proxy version=v1 resource=nodes name=n lasts other")
	f("/api/v1/namespaces/a/status", "get version=v1 resource=namespaces sub=status ns=a name=a other")
	f("/api/v1/namespaces/a/finalize", "get version=v1 resource=namespaces sub=finalize ns=a name=a other")

	f("/api/v1/pods?fieldSelector=metadata.name%3Dx", "list version=v1 resource=pods selects=x list")
	f("/api/v1/pods?watch=true&fieldSelector=metadata.name%3Dx", "watch version=v1 resource=pods selects=x lasts watch")
	// kube-apiserver refuses this one.
	f("/api/v1/pods?watch=true&resourceVersion=x&fieldSelector=metadata.name%3Dx",
		"watch version=v1 resource=pods selects=x lasts watch")
	f("/api/v1/pods?watch=false", "list version=v1 resource=pods list")
	f("HEAD /api/v1/pods?watch=1 HTTP/1.1", "watch version=v1 resource=pods lasts other")
	f(pod+"?watch=1", "get version=v1 resource=pods ns=a name=x lasts get")
	f("/api/v1/watch/namespaces/a/pods/x", "watch version=v1 resource=pods ns=a name=x lasts watch")
	f("/api/v1/watch/pods?fieldSelector=metadata.name%3Dx", "watch version=v1 resource=pods lasts watch")

	// Targets that some parsers read differently.
	f("//api/v1/pods", "list version=v1 resource=pods list")
	f("/api/v1/namespaces/a/pods/%78", "get version=v1 resource=pods ns=a name=x get")
	f("http://h/api/v1/pods", "list version=v1 resource=pods list")
	f("/api/v1/pods?watch=1&x=%zz", "watch version=v1 resource=pods lasts watch")

	// No resources.
	for _, path := range []string{"/", "/api", "/api/v1", "/apis", "/apis/apps/v1", "/healthz", "/openapi/v3", "*"} {
		f(path, "get other")
		f("POST "+path+" HTTP/1.1", "post other")
	}
}

// A long selector is not parsed for its name.
func TestInfoLongSelector(t *testing.T) {
	long := Info{Verb: "list", IsResource: true}
	long.readSelector(url.Values{"fieldSelector": {"metadata.name=x" + strings.Repeat(",a=b", MaxSelectorBytes/4)}})
	if long.SelectorName != "" {
		t.Error("a selector of more than MaxSelectorBytes has been parsed")
	}
}
