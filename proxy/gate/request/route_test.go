package request

import (
	"bufio"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestParseMethodAndHeaders(t *testing.T) {
	f := func(want bool, line string, headers ...string) {
		t.Helper()
		if _, got := Parse(proxytest.MustRead(t, line, headers...)); got != want {
			t.Errorf("%s %q: got %v, want %v", line, headers, got, want)
		}
	}
	const pods = "/api/v1/pods"
	f(true, pods)
	f(false, "HEAD /api/v1/pods HTTP/1.1")
	f(false, "POST /api/v1/pods HTTP/1.1", "Content-Length: 0")
	f(false, "DELETE /api/v1/pods HTTP/1.1")
	f(false, "get /api/v1/pods HTTP/1.1")
	f(false, "GET /api/v1/pods HTTP/1.0")
	f(true, pods, "Content-Length: 0")
	f(false, pods, "Content-Length: 3", "", "abc")
	f(false, pods, "Transfer-Encoding: chunked", "", "1", "x", "0", "")
	f(true, pods, "Connection: Upgrade", "Upgrade: websocket")
	f(true, pods, "Connection: Upgrade, HTTP2-Settings", "Upgrade: H2C")
	f(false, pods, "Connection: Upgrade", "Upgrade: h2c", "Upgrade: websocket")
	f(false, pods, "upgrade: SPDY/3.1")
	f(false, pods, "Expect: 100-continue")
	f(false, pods, "Origin: https://x")
	f(true, pods, "Origin: http://h", "Origin: http://H:80")
	f(false, pods, "Origin: http://h", "Origin: http://x")
	f(false, pods, "Origin: https://h")
	f(false, pods, "Origin: http://h:8080")
	f(false, pods, "Origin: null")
	f(false, pods, "Impersonate-User: x")
	f(false, pods, "impersonate-extra-a: x")
	f(false, pods, "IMPERSONATE-GROUP: x")
	f(true, pods, "X-Remote-User: x", "X-Impersonate-User: y")
}

// A watch is a WebSocket if kube-apiserver would take it for one; its Origin may then be any.
func TestParseWebSocket(t *testing.T) {
	f := func(want, ok bool, line string, headers ...string) {
		t.Helper()
		req, got := Parse(proxytest.MustRead(t, line, headers...))
		if got != ok || ok && req.WebSocket != want {
			t.Errorf("%s %q: got %v, cacheable %v", line, headers, req.WebSocket, got)
		}
	}
	const watch = "/api/v1/pods?watch=1"
	f(true, true, watch, "Connection: keep-alive, Upgrade", "Upgrade: WebSocket", "Origin: https://x")
	f(true, true, "/api/v1/watch/pods", "Connection: Upgrade", "Upgrade: websocket", "Origin: null")
	f(true, true, watch, "Connection: Upgrade", "Upgrade: websocket")
	f(false, true, watch, "Upgrade: websocket")
	f(false, true, watch, "Connection: Upgrade", "Upgrade: h2c")
	f(false, false, watch, "Upgrade: websocket", "Origin: https://x")
	f(false, true, "/api/v1/pods", "Connection: Upgrade", "Upgrade: websocket")
	f(false, false, "/api/v1/pods", "Connection: Upgrade", "Upgrade: websocket", "Origin: https://x")
	f(false, false, watch, "Connection: Upgrade", "Upgrade: websocket", "Impersonate-User: x")
	f(false, false, "POST "+watch+" HTTP/1.1", "Connection: Upgrade", "Upgrade: websocket", "Content-Length: 0")
}

// described returns what a cacheable request asks for, besides its path, and "" for others.
func described(req *Request, cacheable bool) string {
	if !cacheable {
		return ""
	}
	words := []string{req.Verb}
	add := func(name string, value any, zero any) {
		if value != zero {
			words = append(words, fmt.Sprintf("%s=%v", name, value))
		}
	}
	add("rv", req.ResourceVersion, "")
	add("match", req.resourceVersionMatch, "")
	add("limit", req.Limit, int64(0))
	add("continue", req.ContinueToken, "")
	add("page", req.Page, Page{})
	add("bookmarks", req.AllowWatchBookmarks, false)
	if initial := req.SendInitialEvents; initial != nil {
		add("initial", *initial, nil)
	}
	if seconds := req.TimeoutSeconds; seconds != nil {
		add("seconds", *seconds, nil)
	}
	add("timeout", req.Timeout, time.Duration(0))
	add("rawLabels", req.RawLabels, "")
	add("labels", req.Labels.String(), "")
	add("rawFields", req.RawFields, "")
	add("fields", req.Fields.String(), "")
	add("name", req.SelectorName, "")
	add("shard", req.Shard.Text, "")
	add("shardError", req.Shard.Err, nil)
	return strings.Join(words, " ")
}

func TestParseOptions(t *testing.T) {
	const atNow = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	token := Page{9, "ns/a"}.String()
	paged := " continue=" + token + " page=" + token // the page is written as its token
	for query, want := range map[string]string{
		"":                                    "list",
		"foo=bar&Watch=true":                  "list",
		"watch=False":                         "list",
		"watch=0":                             "list",
		"watch=false&watch=true":              "list",
		"watch=":                              "watch",
		"watch":                               "watch",
		"watch=banana":                        "watch",
		"watch=true&watch=false":              "watch",
		"w%61tch=1":                           "watch",
		"limit=7&continue=" + token:           "list limit=7" + paged,
		"limit=7&continue=abc":                "",
		"limit=-1":                            "list",
		"limit=%2B3":                          "list limit=3",
		"timeoutSeconds=5":                    "list seconds=5", //testlint:allow timeout nothing is watched
		"timeout=3s":                          "list timeout=3s",
		"timeout=-3s":                         "list",
		"timeout=":                            "list",
		"watch=1&timeout=abc":                 "watch",
		"watch=1&timeoutSeconds=-5":           "watch seconds=-5",
		"resourceVersion=0":                   "list rv=0",
		"resourceVersion=&limit=0":            "list",
		"allowWatchBookmarks=x":               "list bookmarks=true",
		"resourceVersion=0&continue=" + token: "list rv=0" + paged,
		"watch=1&limit=2&continue=x":          "",
		"watch=1&limit=2&continue=x&resourceVersion=5":                  "watch rv=5 limit=2 continue=x",
		"resourceVersion=12&resourceVersionMatch=Exact":                 "list rv=12 match=Exact",
		"resourceVersion=0&resourceVersionMatch=NotOlderThan":           "list rv=0 match=NotOlderThan",
		atNow + "&allowWatchBookmarks=true&resourceVersion=":            "watch match=NotOlderThan bookmarks=true initial=true",
		"watch=1&sendInitialEvents=0&resourceVersionMatch=NotOlderThan": "watch match=NotOlderThan initial=false",
		"labelSelector=l%3D1%2Ca!%3Db":                                  "list rawLabels=l=1,a!=b labels=a!=b,l=1",
		"fieldSelector=spec.nodeName%3Dn%2Cmetadata.name%3D%3Dx":        "list rawFields=spec.nodeName=n,metadata.name==x fields=metadata.name=x,spec.nodeName=n name=x",
		"fieldSelector=metadata.name%3D":                                "list rawFields=metadata.name= fields=metadata.name=",
		"fieldSelector=metadata.name!%3Dx":                              "list rawFields=metadata.name!=x fields=metadata.name!=x",
		"fieldSelector=metadata.name%3D..":                              "list rawFields=metadata.name=.. fields=metadata.name=..",
		"fieldSelector=,":                                               "list rawFields=,",
		"shardSelector=":                                                "list", // as kube-apiserver does
		"shardSelector=" + url.QueryEscape(lowerHalf):                   "list shard=" + lowerHalf,
		"shardSelector=%20":                                             "list shardError=" + errEmptyShard.Error(),

		// Queries that kube-apiserver refuses, or of which it ignores a part.
		"limit=1;labelSelector=zz": "", "a=%zz": "", "a=#": "", "a=\u00e9": "", "limit=abc": "", "limit=": "",
		"timeoutSeconds=abc": "", "timeoutSeconds=1.5": "", "timeout=abc": "", //testlint:allow timeout nothing is watched
		"labelSelector=a+b": "", "labelSelector=a%3D!": "", "labelSelector=a%3D-x": "",
		"fieldSelector=foo": "", "fieldSelector=a%3Db%5Cx": "", "fieldSelector=a%3Db%3Dc": "",
		"resourceVersion=abc": "", "resourceVersion=-1": "", "resourceVersion=007": "",
		"resourceVersion=99999999999999999999": "", "watch=1&resourceVersion=abc": "",
		"export=1": "", "watch=1&export=0": "",
		"resourceVersionMatch=Exact":                                                  "",
		"resourceVersionMatch=NotOlderThan&resourceVersion=1&continue=x":              "",
		"resourceVersionMatch=Foo&resourceVersion=1":                                  "",
		"resourceVersionMatch=Exact&resourceVersion=0":                                "",
		"continue=x&resourceVersion=12":                                               "",
		"sendInitialEvents=true":                                                      "",
		"watch=1&sendInitialEvents=true":                                              "",
		"watch=1&sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1": "",
		"watch=1&resourceVersionMatch=NotOlderThan":                                   "",
		"watch=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan&continue=x":    "",
	} {
		if got := described(Parse(proxytest.MustRead(t, "/api/v1/pods?"+query))); got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
	}
}

// A get has no other parameters than resourceVersion, timeout and pretty.
func TestParseGetOptions(t *testing.T) {
	req := proxytest.MustParse(t, Parse,
		"/api/v1/namespaces/a/pods/x?resourceVersion=0&timeout=1s&limit=abc&labelSelector=!!&watch=1"+
			"&sendInitialEvents=1&shardSelector=x")
	if req.ResourceVersion != "0" || req.Timeout != time.Second || !req.Labels.Empty() || !req.Fields.Empty() ||
		req.SendInitialEvents != nil || req.Sharded() {
		t.Errorf("got %+v", req)
	}
	for _, query := range []string{"resourceVersion=abc", "timeout=abc", "export=true"} {
		if _, ok := Parse(proxytest.MustRead(t, "/api/v1/namespaces/a/pods/x?"+query)); ok {
			t.Errorf("%s: recognised", query)
		}
	}
}

func TestParseLegacyWatch(t *testing.T) {
	const x = "/api/v1/watch/namespaces/a/configmaps/x"
	for _, line := range []string{x, x + "?fieldSelector=metadata.name%3Dx", x + "?timeout=abc"} {
		if got := proxytest.MustParse(t, Parse, line).Fields.String(); got != "metadata.name=x" {
			t.Errorf("%s: got field selector %q", line, got)
		}
	}
	got := proxytest.MustParse(t, Parse, "/api/v1/watch/configmaps?fieldSelector=metadata.name%3Dx").SelectorName
	if got != "" {
		t.Errorf("selectorName: got %q", got)
	}
	for _, query := range []string{
		"fieldSelector=metadata.name%3Dy", "fieldSelector=metadata.namespace%3Da", "sendInitialEvents=true",
		"sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "resourceVersionMatch=Exact&resourceVersion=1",
		"watch=true",
	} {
		if _, ok := Parse(proxytest.MustRead(t, x+"?"+query)); ok {
			t.Errorf("%s: recognised", query)
		}
	}
}

func TestScope(t *testing.T) {
	const pods, nodes = true, false // namespaced or not
	f := func(path string, namespaced bool, want string) {
		t.Helper()
		namespace, ok := proxytest.MustParse(t, Parse, path).Scope(namespaced)
		if got := fmt.Sprint(namespace, ok); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	f("/api/v1/pods", pods, "true")
	f("/api/v1/namespaces/a/pods", pods, "atrue")
	f("/api/v1/namespaces/a/pods/x", pods, "atrue")
	f("/api/v1/pods/x", pods, "false")
	f("/api/v1/watch/pods/x", pods, "false")
	f("/api/v1/nodes", nodes, "true")
	f("/api/v1/nodes/x", nodes, "true")
	f("/api/v1/namespaces/a/nodes", nodes, "false")
	f("/api/v1/namespaces/a/nodes/a", nodes, "false")
	f("/api/v1/namespaces", nodes, "true")
	f("/api/v1/namespaces/a", nodes, "true")
	f("/api/v1/watch/namespaces/a", nodes, "true")
	f("/apis/ex.io/v1/namespaces/a", nodes, "false")
}

// A Request is kept for as long as its watch lasts. It shares no memory with the request's head.
func TestParseKeepsNothingOfTheHead(t *testing.T) {
	head := "Accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	x := proxytest.MustRead(t, "/api/v1/namespaces/aaaa/pods/x", head)
	req, _ := Parse(x)
	begin := uintptr(unsafe.Pointer(unsafe.StringData(x.Header[1].Value)))
	kept := uintptr(unsafe.Pointer(unsafe.StringData(req.Accepts[0].Metadata)))
	if req.Accepts[0].Metadata != "v1" || kept >= begin && kept < begin+uintptr(len(x.Header[1].Value)) {
		t.Errorf("got %+v", req)
	}
}

// What is kept of a request, cacheable or not, does not keep a long target. No cache answers for a path or
// an Authorization that is too long to keep.
func TestParseLongHeads(t *testing.T) {
	pad := strings.Repeat("x", 10<<10)
	f := func(target, want string, kept func(*Request) string) {
		t.Helper()
		x := proxytest.MustRead(t, target+pad, kubectlAccept)
		req, _ := Parse(x)
		begin := uintptr(unsafe.Pointer(unsafe.StringData(x.Target)))
		at := uintptr(unsafe.Pointer(unsafe.StringData(kept(req))))
		if kept(req) != want || at >= begin && at < begin+uintptr(len(x.Target)) {
			t.Errorf("%s is kept, with %q, want %q", target, kept(req), want)
		}
	}
	resource := func(req *Request) string { return req.GVR.Resource }
	f("/api/v1/pods?watch=1&x=", "pods", resource)
	f("/api/v1/namespaces/a/pods/x/log?x=", "pods", resource)
	include := func(req *Request) string { return req.Accepts[0].Include }
	f("/api/v1/pods?watch=1&resourceVersion=7&includeObject=Object&x=", "Object", include)
	if _, ok := Parse(proxytest.MustRead(t, "/api/v1/namespaces/"+pad+"/pods?watch=1")); ok {
		t.Error("a long path is recognised")
	}
	if _, ok := Parse(proxytest.MustRead(t, "/api/v1/pods", "Authorization: Bearer "+pad)); ok {
		t.Error("a long token is recognised")
	}
}

// FuzzParseRequest parses every recognised request also with Go's own server and with Kubernetes'
// own decoder and validation. The results are equal.
func FuzzParseRequest(f *testing.F) {
	for _, seed := range []struct{ uri, accept string }{
		{"/api/v1/pods?watch=1&resourceVersion=5&allowWatchBookmarks=true", ""},
		{"/api/v1/namespaces/a/pods/x?pretty=1", "*/*"},
		{"/apis/apps/v1/watch/namespaces/a/deployments/x?timeoutSeconds=3", "application/json;stream=watch"}, //testlint:allow timeout nothing is watched
		{"/api/v1/namespaces/foo", "application/json;q=0.5,application/yaml"},
		{"/api/v1/pods?watch&sendInitialEvents&resourceVersionMatch=NotOlderThan", "application/json"},
		{"/api/v1/pods?fieldSelector=metadata.name%3Dx,spec.nodeName!%3Dn&labelSelector=a+in+(b,c)", "text/html,*/*"},
		{"/api/v1/pods?limit=5&continue=abc;x&timeout=1s#f", "application/*"},
		{"/api/v1/pods?shardSelector=" + url.QueryEscape(lowerHalf), ""},
		{"/api/v1/watch/pods?shardSelector=x&labelSelector=a", ""},
		{"//api/v1/../pods%2f?resourceVersion=0&resourceVersionMatch=Exact", "*"},
	} {
		f.Add(seed.uri, seed.accept)
	}
	f.Fuzz(func(t *testing.T, uri, accept string) {
		ctx, err := proxytest.ReadRequest("GET "+uri+" HTTP/1.1", "Accept: "+accept)
		if err != nil {
			return
		}
		req, ok := Parse(ctx)
		if !ok {
			return
		}
		std, err := http.ReadRequest(
			bufio.NewReader(strings.NewReader("GET " + uri + " HTTP/1.1\r\nHost: h\r\nAccept: " + accept + "\r\n\r\n")))
		if err != nil {
			t.Fatalf("%q %q: recognised, but net/http: %v", uri, accept, err)
		}
		if form := slowly(std.Header.Get("Accept"), req.Verb, false, true); form != req.Accepts[0].String() {
			t.Errorf("%q: recognised as %s, is %s", accept, req.Accepts[0], form)
		}
		want, opts := slowRequest(t, std)
		got := fmt.Sprintf("%s %v %q %q %q %v", req.Verb, req.GVR, req.Namespace, req.Name,
			req.SelectorName, req.LegacyWatch)
		if got != want {
			t.Errorf("%q: got %s, want %s", uri, got, want)
		}
		if req.Verb == "get" {
			return
		}
		if errs := validation.ValidateListOptions(opts, true); len(errs) > 0 {
			t.Errorf("%q: recognised, but %v", uri, errs)
		}
		if opts.Limit < 0 {
			opts.Limit = 0
		}
		gotOpts := internalversion.ListOptions{
			Watch: req.Verb == "watch" && !req.LegacyWatch, AllowWatchBookmarks: req.AllowWatchBookmarks,
			ResourceVersion:      req.ResourceVersion,
			ResourceVersionMatch: metav1.ResourceVersionMatch(req.resourceVersionMatch),
			TimeoutSeconds:       req.TimeoutSeconds,
			Limit:                req.Limit,
			Continue:             req.ContinueToken,
			SendInitialEvents:    req.SendInitialEvents,
		}
		gotFields, gotLabels := req.Fields, req.Labels
		if req.LegacyWatch && req.Name != "" && req.RawFields == "" {
			gotFields = fields.Everything()
		}
		if selectorText(opts.FieldSelector) != gotFields.String() ||
			selectorText(opts.LabelSelector) != gotLabels.String() {
			t.Errorf("%q: got selectors %v %v, want %v %v", uri, gotFields, gotLabels, opts.FieldSelector,
				opts.LabelSelector)
		}
		opts.FieldSelector, opts.LabelSelector = nil, nil
		if req.Sharded() != (opts.ShardSelector != "") {
			t.Errorf("%q: got shard selector %+v, want %q", uri, req.Shard, opts.ShardSelector)
		}
		opts.ShardSelector = ""
		if !reflect.DeepEqual(&gotOpts, opts) {
			t.Errorf("%q: got %+v, want %+v", uri, gotOpts, opts)
		}
	})
}

func selectorText(s fmt.Stringer) string {
	if s == nil || reflect.ValueOf(s).Kind() == reflect.Pointer && reflect.ValueOf(s).IsNil() {
		return ""
	}
	return s.String()
}

// slowRequest derives a request as RequestInfoFactory does, step by step.
func slowRequest(t *testing.T, r *http.Request) (string, *internalversion.ListOptions) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var gvr schema.GroupVersionResource
	if parts[0] == "apis" {
		gvr.Group = parts[1]
		parts = parts[1:]
	}
	gvr.Version = parts[1]
	parts = parts[2:]
	verb, legacy := "get", parts[0] == "watch"
	if legacy {
		verb, parts = "watch", parts[1:]
	}
	namespace, name, selectorName := "", "", ""
	if parts[0] == "namespaces" && len(parts) > 1 {
		namespace = parts[1]
		if len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
			parts = parts[2:]
		}
	}
	gvr.Resource = parts[0]
	if len(parts) > 1 {
		name = parts[1]
	}
	if len(parts) > 2 {
		t.Fatalf("%s: recognised with subresource", r.URL)
	}
	opts := new(internalversion.ListOptions)
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		t.Fatalf("%s: recognised, but %v", r.URL, err)
	}
	if err := internalscheme.ParameterCodec.DecodeParameters(values, metav1.SchemeGroupVersion, opts); err != nil &&
		(name == "" || legacy) {
		t.Fatalf("%s: recognised, but %v", r.URL, err)
	}
	if name == "" && verb == "get" {
		verb = "list"
		if opts.Watch {
			verb = "watch"
		}
		if opts.FieldSelector != nil {
			if n, ok := opts.FieldSelector.RequiresExactMatch("metadata.name"); ok && n != "." && n != ".." &&
				!strings.ContainsAny(n, "/%") {
				selectorName = n
			}
		}
	}
	return fmt.Sprintf("%s %v %q %q %q %v", verb, gvr, namespace, name, selectorName, legacy), opts
}
