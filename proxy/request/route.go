package request

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
	// ViaPrefix begins the name of each watchfan in a request's Via header.
	ViaPrefix = "watchfan-"
	// ProbeSeconds is the timeout of a watch that another watchfan uses as a probe. kube-apiserver
	// sends such a watch a bookmark two seconds before the end, if not at once.
	ProbeSeconds = 3
)

// Parse reads ctx as a get, list or watch whose answer has a form that
// is served from caches.
//
// It reports false for everything it does not positively recognise, among it
// every request that kube-apiserver would refuse: such a request is passed
// through, and kube-apiserver chooses the words. It looks at the raw request
// line, never at fasthttp's normalised path, so that what was recognised here is
// what kube-apiserver would have recognised. The rules are those of
// k8s.io/apiserver pkg/endpoints/request/requestinfo.go and
// k8s.io/apimachinery pkg/apis/meta/internalversion/validation.
func Parse(ctx *fasthttp.RequestCtx) (*Request, bool) {
	h := &ctx.Request.Header
	if !h.IsGet() || !h.IsHTTP11() || !plainHeaders(h) {
		return nil, false
	}
	path, rawQuery, _ := strings.Cut(string(h.RequestURI()), "?")
	req, ok := ParsePath(path)
	if !ok {
		return nil, false
	}
	query, ok := parseQuery(rawQuery)
	if !ok || !req.parseOptions(query) {
		return nil, false
	}

	accept, _ := FirstHeader(h, fasthttp.HeaderAccept)
	if req.Accepts, ok = negotiate(accept, req.Verb); !ok {
		return nil, false
	}
	if req.Verb != "watch" {
		userAgent, _ := FirstHeader(h, fasthttp.HeaderUserAgent)
		req.Pretty = wantsPretty(rawQuery, query, userAgent)
	}
	acceptEncoding, _ := FirstHeader(h, fasthttp.HeaderAcceptEncoding)
	req.Gzip = acceptsGzip(acceptEncoding)
	req.auditID, _ = FirstHeader(h, "Audit-ID")
	via, _ := FirstHeader(h, "Via")
	req.probes = req.Verb == "watch" && strings.Contains(via, ViaPrefix) && req.TimeoutSeconds != nil && *req.TimeoutSeconds == ProbeSeconds
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
		case HeaderIs(k, fasthttp.HeaderUpgrade),
			HeaderIs(k, fasthttp.HeaderExpect),
			HeaderIs(k, fasthttp.HeaderOrigin),
			HasPrefixFold(string(k), ImpersonatePrefix):
			return false
		}
	}
	return true
}

// ParsePath reads the forms
//
//	/api/V/…   /apis/G/V/…   then   [watch/] [namespaces/NS/] RESOURCE [/NAME] [/]
//
// into a request that has its verb, except that "list" may yet become "watch".
// In namespaces/NS alone, NS is both the namespace and the name.
func ParsePath(path string) (*Request, bool) {
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

	req := &Request{Verb: "list", Labels: labels.Everything(), Fields: fields.Everything()}
	switch {
	case parts[0] == "api" && len(parts) >= 3:
		req.GVR.Version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) >= 4:
		req.GVR.Group, req.GVR.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return nil, false
	}

	switch {
	case parts[0] == "proxy":
		return nil, false
	case parts[0] == "watch" && len(parts) == 1:
		return nil, false
	case parts[0] == "watch":
		req.LegacyWatch, parts = true, parts[1:]
	}

	if parts[0] == "namespaces" && len(parts) > 1 {
		req.Namespace = parts[1]
		if len(parts) > 2 {
			parts = parts[2:]
			if parts[0] == "status" || parts[0] == "finalize" || parts[0] == "namespaces" {
				return nil, false
			}
		}
	}
	req.GVR.Resource = parts[0]
	switch len(parts) {
	case 1:
	case 2:
		req.Name = parts[1]
		req.Verb = "get"
	default:
		return nil, false // a subresource
	}
	if req.LegacyWatch {
		req.Verb = "watch"
	}
	return req, APIName(req.GVR.Group) && APIName(req.GVR.Version) && APIName(req.GVR.Resource)
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

// APIName reports whether s can be an API group, version or resource.
func APIName(s string) bool {
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
func (req *Request) parseOptions(query url.Values) bool {
	if query.Has("shardSelector") || query.Has("export") {
		return false
	}
	req.ResourceVersion = query.Get("resourceVersion")
	if !plainResourceVersion(req.ResourceVersion) {
		return false
	}
	if req.Verb == "get" { // the rest means nothing to it, watch and selectors included
		return req.parseTimeout(query.Get("timeout"))
	}

	watch := BoolParameter(query, "watch")
	switch {
	case watch && req.LegacyWatch:
		return false
	case watch:
		req.Verb = "watch"
	case req.Verb == "list" && !req.parseTimeout(query.Get("timeout")):
		return false
	}
	req.AllowWatchBookmarks = BoolParameter(query, "allowWatchBookmarks")
	if query.Has("sendInitialEvents") {
		b := BoolParameter(query, "sendInitialEvents")
		req.SendInitialEvents = &b
	}
	req.resourceVersionMatch = query.Get("resourceVersionMatch")
	req.ContinueToken = query.Get("continue")
	if req.Verb == "list" && req.ContinueToken != "" {
		var ok bool
		if req.Page, ok = parsePage(req.ContinueToken); !ok {
			return false
		}
	}
	return req.parseNumbers(query) && req.parseSelectors(query) && req.valid()
}

// BoolParameter decodes a boolean of a query.
func BoolParameter(query url.Values, key string) bool {
	return query.Has(key) && IsTrue(query.Get(key))
}

// IsTrue decodes a boolean that is sent as kube-apiserver does: whatever is not "0" or "false" is
// true, the empty string included (k8s.io/apimachinery pkg/runtime/conversion.go).
func IsTrue(v string) bool { return v != "0" && !strings.EqualFold(v, "false") }

func (req *Request) parseTimeout(s string) bool {
	if s == "" {
		return true
	}
	d, err := time.ParseDuration(s)
	req.Timeout = max(d, 0)
	return err == nil
}

func (req *Request) parseNumbers(query url.Values) bool {
	if query.Has("limit") {
		n, err := strconv.ParseInt(query.Get("limit"), 10, 64)
		if err != nil {
			return false
		}
		req.Limit = max(n, 0)
	}
	if query.Has("timeoutSeconds") {
		n, err := strconv.ParseInt(query.Get("timeoutSeconds"), 10, 64)
		if err != nil {
			return false
		}
		req.TimeoutSeconds = &n
	}
	return true
}

func (req *Request) parseSelectors(query url.Values) bool {
	req.RawLabels = query.Get("labelSelector")
	req.RawFields = query.Get("fieldSelector")
	var ok bool
	if req.Labels, req.Fields, ok = parseSelectors(req.RawLabels, req.RawFields); !ok {
		return false
	}

	name, exact := req.Fields.RequiresExactMatch(metav1.ObjectNameField)
	switch {
	case req.Name == "" && !req.LegacyWatch:
		if exact && len(content.IsPathSegmentName(name)) == 0 {
			req.SelectorName = name
		}
	case req.Name == "":
	case req.Fields.Empty():
		req.Fields = fields.OneTermEqualSelector(metav1.ObjectNameField, req.Name)
	case name != req.Name:
		return false // 400: metadata.name doesn't match requested name
	}
	return true
}

// valid reports whether kube-apiserver accepts the parameters together. A
// /watch/ path is validated as a list there and knows no sendInitialEvents.
func (req *Request) valid() bool {
	match := metav1.ResourceVersionMatch(req.resourceVersionMatch)
	initial := req.SendInitialEvents != nil
	switch {
	case req.LegacyWatch:
		return match == "" && !initial
	case req.Verb == "watch":
		if !initial { // where it defaults to true, kube-apiserver refuses a continue token
			return match == "" && (req.ContinueToken == "" || req.ResourceVersion != "" && req.ResourceVersion != "0")
		}
		return match == metav1.ResourceVersionMatchNotOlderThan && req.ContinueToken == ""
	case initial:
		return false
	}

	rv := req.ResourceVersion
	if req.ContinueToken != "" {
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
