package proxy

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

const (
	// viaPrefix begins the name of each watchfan in a request's Via header.
	viaPrefix = "watchfan-"
	// probeSeconds is the timeout of a watch that another watchfan uses as a probe. kube-apiserver sends
	// such a watch a bookmark two seconds before the end, if not at once.
	probeSeconds = 3
)

// parseRequest reads ctx as a get, list or watch whose answer has a form that
// is served from caches.
//
// It reports false for everything it does not positively recognise, among it
// every request that kube-apiserver would refuse: such a request is passed
// through, and kube-apiserver chooses the words. It looks at the raw request
// line, never at fasthttp's normalised path, so that what was recognised here is
// what kube-apiserver would have recognised. The rules are those of
// k8s.io/apiserver pkg/endpoints/request/requestinfo.go and
// k8s.io/apimachinery pkg/apis/meta/internalversion/validation.
func parseRequest(ctx *fasthttp.RequestCtx) (*request, bool) {
	h := &ctx.Request.Header
	if !h.IsGet() || !h.IsHTTP11() || !plainHeaders(h) {
		return nil, false
	}
	path, rawQuery, _ := strings.Cut(string(h.RequestURI()), "?")
	req, ok := parsePath(path)
	if !ok {
		return nil, false
	}
	query, ok := parseQuery(rawQuery)
	if !ok || !req.parseOptions(query) {
		return nil, false
	}

	accept, _ := firstHeader(h, fasthttp.HeaderAccept)
	if req.accepts, ok = negotiate(accept, req.verb); !ok {
		return nil, false
	}
	if req.verb != "watch" {
		userAgent, _ := firstHeader(h, fasthttp.HeaderUserAgent)
		req.pretty = wantsPretty(rawQuery, query, userAgent)
	}
	acceptEncoding, _ := firstHeader(h, fasthttp.HeaderAcceptEncoding)
	req.gzip = acceptsGzip(acceptEncoding)
	req.auditID, _ = firstHeader(h, "Audit-ID")
	via, _ := firstHeader(h, "Via")
	req.probes = req.verb == "watch" && strings.Contains(via, viaPrefix) && req.timeoutSeconds != nil && *req.timeoutSeconds == probeSeconds
	return req, true
}

// plainHeaders reports whether no header asks for anything but a plain answer
// to the one who sends it. Browsers' cross-origin requests carry Origin, and
// their answers headers that only kube-apiserver's flags decide.
func plainHeaders(h *fasthttp.RequestHeader) bool {
	if n := h.ContentLength(); n > 0 || n == -1 {
		return false // a body; -1 is chunked
	}
	for k := range h.All() {
		switch {
		case headerIs(k, fasthttp.HeaderUpgrade),
			headerIs(k, fasthttp.HeaderExpect),
			headerIs(k, fasthttp.HeaderOrigin),
			hasPrefixFold(string(k), impersonatePrefix):
			return false
		}
	}
	return true
}

// parsePath reads the forms
//
//	/api/V/…   /apis/G/V/…   then   [watch/] [namespaces/NS/] RESOURCE [/NAME] [/]
//
// into a request that has its verb, except that "list" may yet become "watch".
// In namespaces/NS alone, NS is both the namespace and the name.
func parsePath(path string) (*request, bool) {
	path, rooted := strings.CutPrefix(strings.TrimSuffix(path, "/"), "/")
	if !rooted || !plainPath(path) {
		return nil, false
	}
	parts := strings.Split(path, "/")
	for _, part := range parts {
		if part == "" || part == "." || part == ".." {
			return nil, false
		}
	}

	req := &request{verb: "list", labels: labels.Everything(), fields: fields.Everything()}
	switch {
	case parts[0] == "api" && len(parts) >= 3:
		req.gvr.Version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) >= 4:
		req.gvr.Group, req.gvr.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return nil, false
	}

	switch {
	case parts[0] == "proxy":
		return nil, false
	case parts[0] == "watch" && len(parts) == 1:
		return nil, false
	case parts[0] == "watch":
		req.legacyWatch, parts = true, parts[1:]
	}

	if parts[0] == "namespaces" && len(parts) > 1 {
		req.namespace = parts[1]
		if len(parts) > 2 {
			parts = parts[2:]
			if parts[0] == "status" || parts[0] == "finalize" || parts[0] == "namespaces" {
				return nil, false
			}
		}
	}
	req.gvr.Resource = parts[0]
	switch len(parts) {
	case 1:
	case 2:
		req.name = parts[1]
		req.verb = "get"
	default:
		return nil, false // a subresource
	}
	if req.legacyWatch {
		req.verb = "watch"
	}
	return req, apiName(req.gvr.Group) && apiName(req.gvr.Version) && apiName(req.gvr.Resource)
}

// plainPath reports whether every byte of path stands for itself in any reader
// of URLs.
func plainPath(path string) bool {
	for _, c := range []byte(path) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("-._~:@/", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// apiName reports whether s can be an API group, version or resource.
func apiName(s string) bool {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.' {
			return false
		}
	}
	return s != "." && s != ".."
}

// parseQuery is url.ParseQuery for queries that every reader understands alike.
// kube-apiserver drops pairs it cannot read; we leave the request to it.
func parseQuery(raw string) (url.Values, bool) {
	if raw == "" {
		return nil, true
	}
	for _, c := range []byte(raw) {
		if c <= ' ' || c >= 0x7f || c == '#' {
			return nil, false
		}
	}
	query, err := url.ParseQuery(raw)
	return query, err == nil
}

// parseOptions reads the query into req and decides between list and watch. It
// reports false if kube-apiserver would refuse a parameter.
func (req *request) parseOptions(query url.Values) bool {
	if query.Has("shardSelector") || query.Has("export") {
		return false
	}
	req.resourceVersion = query.Get("resourceVersion")
	if !plainResourceVersion(req.resourceVersion) {
		return false
	}
	if req.verb == "get" { // the rest means nothing to it, watch and selectors included
		return req.parseTimeout(query.Get("timeout"))
	}

	watch := boolParameter(query, "watch")
	switch {
	case watch && req.legacyWatch:
		return false
	case watch:
		req.verb = "watch"
	case req.verb == "list" && !req.parseTimeout(query.Get("timeout")):
		return false
	}
	req.allowWatchBookmarks = boolParameter(query, "allowWatchBookmarks")
	if query.Has("sendInitialEvents") {
		b := boolParameter(query, "sendInitialEvents")
		req.sendInitialEvents = &b
	}
	req.resourceVersionMatch = query.Get("resourceVersionMatch")
	req.continueToken = query.Get("continue")
	if req.verb == "list" && req.continueToken != "" {
		var ok bool
		if req.page, ok = parsePage(req.continueToken); !ok {
			return false
		}
	}
	return req.parseNumbers(query) && req.parseSelectors(query) && req.valid()
}

// boolParameter decodes a boolean of a query.
func boolParameter(query url.Values, key string) bool {
	return query.Has(key) && isTrue(query.Get(key))
}

// isTrue decodes a boolean that is sent as kube-apiserver does: whatever is not "0" or "false" is true, the empty string included
// (k8s.io/apimachinery pkg/runtime/conversion.go).
func isTrue(v string) bool { return v != "0" && !strings.EqualFold(v, "false") }

func (req *request) parseTimeout(s string) bool {
	if s == "" {
		return true
	}
	d, err := time.ParseDuration(s)
	req.timeout = max(d, 0)
	return err == nil
}

func (req *request) parseNumbers(query url.Values) bool {
	if query.Has("limit") {
		n, err := strconv.ParseInt(query.Get("limit"), 10, 64)
		if err != nil {
			return false
		}
		req.limit = max(n, 0)
	}
	if query.Has("timeoutSeconds") {
		n, err := strconv.ParseInt(query.Get("timeoutSeconds"), 10, 64)
		if err != nil {
			return false
		}
		req.timeoutSeconds = &n
	}
	return true
}

func (req *request) parseSelectors(query url.Values) bool {
	req.rawLabels = query.Get("labelSelector")
	req.rawFields = query.Get("fieldSelector")
	var ok bool
	if req.labels, req.fields, ok = parseSelectors(req.rawLabels, req.rawFields); !ok {
		return false
	}

	name, exact := req.fields.RequiresExactMatch(metav1.ObjectNameField)
	switch {
	case req.name == "" && !req.legacyWatch:
		if exact && len(content.IsPathSegmentName(name)) == 0 {
			req.selectorName = name
		}
	case req.name == "":
	case req.fields.Empty():
		req.fields = fields.OneTermEqualSelector(metav1.ObjectNameField, req.name)
	case name != req.name:
		return false // 400: metadata.name doesn't match requested name
	}
	return true
}

// valid reports whether kube-apiserver accepts the parameters together. A
// /watch/ path is validated as a list there and knows no sendInitialEvents.
func (req *request) valid() bool {
	match := metav1.ResourceVersionMatch(req.resourceVersionMatch)
	initial := req.sendInitialEvents != nil
	switch {
	case req.legacyWatch:
		return match == "" && !initial
	case req.verb == "watch":
		if !initial { // where it defaults to true, kube-apiserver refuses a continue token
			return match == "" && (req.continueToken == "" || req.resourceVersion != "" && req.resourceVersion != "0")
		}
		return match == metav1.ResourceVersionMatchNotOlderThan && req.continueToken == ""
	case initial:
		return false
	}

	rv := req.resourceVersion
	if req.continueToken != "" {
		return match == "" && (rv == "" || rv == "0")
	}
	switch match {
	case "":
		return true
	case metav1.ResourceVersionMatchNotOlderThan:
		return rv != ""
	case metav1.ResourceVersionMatchExact:
		return rv != "" && rv != "0"
	}
	return false
}

func plainResourceVersion(rv string) bool {
	if rv == "" || rv == "0" {
		return true
	}
	_, err := strconv.ParseUint(rv, 10, 64)
	return err == nil && rv[0] != '0'
}
