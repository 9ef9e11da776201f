package request

import (
	"net/url"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// TestInfo: any request is read as kube-apiserver reads it, cacheable or not. Only those that no parser
// reads in another way are cacheable.
func TestInfo(t *testing.T) {
	f := func(line, want string) {
		t.Helper()
		req, cacheable := Parse(proxytest.MustRead(t, line))
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
		words = append(words, req.MetricVerb())
		if cacheable {
			words = append(words, "cacheable")
		}
		if got := strings.Join(words, " "); got != want {
			t.Errorf("%s:\n got %s\nwant %s", line, got, want)
		}
	}
	const pod = "/api/v1/namespaces/a/pods/x"
	f(pod, "get version=v1 resource=pods ns=a name=x get cacheable")
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

	f("/api/v1/pods?fieldSelector=metadata.name%3Dx", "list version=v1 resource=pods selects=x list cacheable")
	f("/api/v1/pods?watch=true&fieldSelector=metadata.name%3Dx", "watch version=v1 resource=pods selects=x lasts watch cacheable")
	// kube-apiserver refuses this one.
	f("/api/v1/pods?watch=true&resourceVersion=x&fieldSelector=metadata.name%3Dx",
		"watch version=v1 resource=pods selects=x lasts watch")
	f("/api/v1/pods?watch=false", "list version=v1 resource=pods list cacheable")
	f("HEAD /api/v1/pods?watch=1 HTTP/1.1", "watch version=v1 resource=pods lasts other")
	f(pod+"?watch=1", "get version=v1 resource=pods ns=a name=x lasts get cacheable")
	f("/api/v1/watch/namespaces/a/pods/x", "watch version=v1 resource=pods ns=a name=x lasts watch cacheable")
	f("/api/v1/watch/pods?fieldSelector=metadata.name%3Dx", "watch version=v1 resource=pods lasts watch cacheable")

	f("/api/v1/pods", "list version=v1 resource=pods list cacheable")
	f("/api/v1/pods/", "list version=v1 resource=pods list cacheable")
	f("/api/v1/pods?watch=1", "watch version=v1 resource=pods lasts watch cacheable")
	f("/api/v1/namespaces/a/pods", "list version=v1 resource=pods ns=a list cacheable")
	f("/api/v1/namespaces/a/pods/", "list version=v1 resource=pods ns=a list cacheable")
	f("/api/v1/nodes/n:1@x", "get version=v1 resource=nodes name=n:1@x get cacheable")
	f("/apis/apps/v1/deployments", "list group=apps version=v1 resource=deployments list cacheable")
	f("/apis/ex.io/v1/namespaces/a/foos?watch=true", "watch group=ex.io version=v1 resource=foos ns=a lasts watch cacheable")

	// Namespaces themselves: NS is namespace and name at once.
	f("/api/v1/namespaces", "list version=v1 resource=namespaces list cacheable")
	f("/api/v1/namespaces/", "list version=v1 resource=namespaces list cacheable")
	f("/api/v1/namespaces/foo", "get version=v1 resource=namespaces ns=foo name=foo get cacheable")
	f("/api/v1/namespaces/foo/", "get version=v1 resource=namespaces ns=foo name=foo get cacheable")
	f("/api/v1/namespaces/foo/status", "get version=v1 resource=namespaces sub=status ns=foo name=foo other")
	f("/api/v1/namespaces/foo/finalize", "get version=v1 resource=namespaces sub=finalize ns=foo name=foo other")
	f("/api/v1/namespaces/foo/namespaces/foo", "get version=v1 resource=namespaces ns=foo name=foo get")

	// The deprecated prefix.
	f("/api/v1/watch/pods", "watch version=v1 resource=pods lasts watch cacheable")
	f("/api/v1/watch/pods/", "watch version=v1 resource=pods lasts watch cacheable")
	f("/api/v1/watch/namespaces/a/pods", "watch version=v1 resource=pods ns=a lasts watch cacheable")
	f("/api/v1/watch/namespaces", "watch version=v1 resource=namespaces lasts watch cacheable")
	f("/api/v1/watch/namespaces/foo", "watch version=v1 resource=namespaces ns=foo name=foo lasts watch cacheable")
	f("/apis/ex.io/v1/watch/foos", "watch group=ex.io version=v1 resource=foos lasts watch cacheable")
	f("/api/v1/watch", "list version=v1 resource=watch list")
	f("/api/v1/watch/", "list version=v1 resource=watch list")
	f("/api/v1/watch/pods?watch=1", "watch version=v1 resource=pods lasts watch")
	f("/api/v1/watch/pods?watch=0", "watch version=v1 resource=pods lasts watch cacheable")

	// Targets that some parsers read differently.
	f("//api/v1/pods", "list version=v1 resource=pods list")
	f("/api/v1/namespaces/a/pods/%78", "get version=v1 resource=pods ns=a name=x get")
	f("http://h/api/v1/pods", "list version=v1 resource=pods list")
	f("/api/v1/pods?watch=1&x=%zz", "watch version=v1 resource=pods lasts watch")
	for _, path := range []string{
		"/api//v1/pods", "/api/v1//pods", "/api/v1/pods//", "/api/v1/namespaces//pods",
		"/api/v1/./pods", "/api/v1/x/../pods", "/api/v1/pods/..", "/api/v1/namespaces/../pods/x",
		"/api/v1/pods%2fx", "/api/v1/%70ods", "/api/v1/namespaces/a%2f../pods",
		"/api/v1/pods;x=1", "/api/v1/pods\\x", "/api/v1/pods#x", "/api/v1/Pods", "/api/v1/pöds", "/apis/A.io/v1/x",
	} {
		if _, cacheable := Parse(proxytest.MustRead(t, path)); cacheable {
			t.Errorf("%s is cacheable", path)
		}
	}

	// No resources.
	for _, path := range []string{"/", "/api", "/api/v1", "/api/v1/", "/apis", "/apis/apps", "/apis/apps/v1", "/healthz", "/openapi/v3", "*"} {
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

// A path takes little memory, however many segments it has. All that are read are told apart.
func TestManySegments(t *testing.T) {
	for path, want := range map[string]string{
		"/apis/g/v/watch/namespaces/n/r/x/s":                              "s",
		"/apis/g/v/watch/namespaces/n/r/x/s/t":                            "s",
		"/apis/g/v/watch/namespaces/n/r/x/s" + strings.Repeat("/t", 1000): "s",
		"/api/v1/r" + strings.Repeat("/", 1000) + "t":                     "",
	} {
		var i Info
		if parts := i.readPath(path); len(parts) > mostSegments || i.GVR.Resource != "r" || i.Subresource != want {
			t.Errorf("%.40s: %d parts, %+v", path, len(parts), i)
		}
	}
}
