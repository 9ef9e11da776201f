package request

import (
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
	"github.com/watchfan/watchfan/proxy/wire/websocket"
)

const (
	// ViaPrefix is the prefix of each watchfan's name in a request's Via header.
	ViaPrefix = "watchfan-"
	// ProbeSeconds is the timeout of a watch that another watchfan uses as a probe. kube-apiserver
	// sends such a watch a bookmark immediately, or two seconds before the end.
	ProbeSeconds = 3
	// SeedHeader marks a sibling replica's request for what this one has cached; see package seed.
	// It is never sent to kube-apiserver.
	SeedHeader = "Watchfan-Seed"

	// maxPath bounds a path that a cache answers, in bytes. It has six names at most, each of up to 253.
	maxPath = 2 << 10
	// maxAuthorization bounds the Authorization of a read from a cache, in bytes: an open watch keeps its
	// token, and kube-apiserver accepts a token with any white space in it. Common load balancers reject a
	// longer field.
	maxAuthorization = 8 << 10
)

// Parse parses x. cacheable reports whether it is a get, list or watch that a cache can answer. If
// not, only req.Info and req.Uncacheable are set.
//
// A request is cacheable only if it is positively recognised. Every request that kube-apiserver
// would refuse is therefore passed through, and kube-apiserver chooses the words. Parse reads the
// target as it was sent and never normalises the path: it must recognise the same requests as
// kube-apiserver. The rules are those of k8s.io/apiserver pkg/endpoints/request/requestinfo.go and
// k8s.io/apimachinery pkg/apis/meta/internalversion/validation.
func Parse(x *exchange.Exchange) (req *Request, cacheable bool) {
	target, _ := exchange.CutTarget(x.Target)
	req = &Request{Info: Info{Method: x.Method, Seed: strings.Clone(x.Header.Get(SeedHeader))}}
	if len(x.Target) > maxPath {
		target.Path = strings.Clone(target.Path) // Info may be kept, and the rest of the target is not
	}
	parts := req.readPath(unescaped(target.Path))
	query, plainQuery := parseQuery(target.Query)
	req.readQuery(query)
	plain := strings.HasPrefix(x.Target, "/") && plainQuery && req.plainPath(target.Path, parts)
	why := Path
	if plain {
		why = req.read(x, target.Query, query)
	}
	if why == "" {
		return req, true
	}
	*req = Request{Info: req.Info, Uncacheable: why}
	req.readSelector(query)
	req.LargeSelectors = len(target.Query) > MaxSelectorBytes ||
		commas(query.Get("labelSelector"), query.Get("fieldSelector"))+
			strings.Count(query.Get("shardSelector"), "||") >= MaxRequirements
	return req, false
}

// read parses the fields that a cache needs. It returns why no cache can answer the request, "" if
// one can.
func (req *Request) read(x *exchange.Exchange, rawQuery string, query url.Values) (why Reason) {
	req.Labels, req.Fields = labels.Everything(), fields.Everything()
	req.WebSocket = req.Verb == "watch" && websocket.Asked(x)
	switch {
	case req.Method != http.MethodGet || x.Protocol < exchange.HTTP11 || !req.plainHead(x):
		return Headers
	case !req.parseOptions(query):
		return Parameters
	}
	var ok bool
	if req.Accepts, ok = negotiate(x.Header.Get("Accept"), req.Verb); !ok {
		return Form
	}
	if !req.includeObject(query) {
		return Parameters
	}
	userAgent := x.Header.Get("User-Agent")
	req.Gzip = acceptsGzip(x.Header.Get("Accept-Encoding"))
	if req.Verb == "watch" {
		req.Gzip = req.Gzip && !readsRaw(userAgent)
	} else {
		req.Pretty = apistatus.Pretty(rawQuery, "", userAgent)
	}
	req.probes = req.Verb == "watch" && strings.Contains(x.Header.Get("Via"), ViaPrefix) && req.TimeoutSeconds != nil && *req.TimeoutSeconds == ProbeSeconds
	return ""
}

// plainHead reports whether the request has no body, no header field that asks for more than a plain
// response to the sender, or for a WebSocket, and no token that is too long to keep.
//
// Cross-origin requests of browsers carry Origin. Their responses have headers that depend on
// kube-apiserver's flags, except for that to a handshake, which has none of them. The fabric8 client
// sends the server's own origin. Java's HTTP client asks for h2c without TLS. kube-apiserver ignores
// that, and a WebSocket for anything but a watch.
func (req *Request) plainHead(x *exchange.Exchange) bool {
	if x.ContentLength != 0 {
		return false
	}
	upgrades := 0
	for _, f := range x.Header {
		switch {
		case f.Is("Expect"), f.HasPrefix(ImpersonatePrefix), f.Is("Authorization") && len(f.Value) > maxAuthorization:
			return false
		case f.Is("Origin") && !req.WebSocket && !ownOrigin(x, f.Value):
			return false
		case f.Is("Upgrade"):
			upgrades++
			if upgrades > 1 || !strings.EqualFold(f.Value, "websocket") && !strings.EqualFold(f.Value, "h2c") {
				return false
			}
		}
	}
	return true
}

// plainPath reports whether a path leads to objects and is unambiguous. parts is the result of
// readPath.
func (req *Request) plainPath(sent string, parts []string) bool {
	sent = strings.TrimSuffix(sent, "/")
	switch {
	case len(sent) > maxPath || path.Clean(sent) != sent || !plainBytes(sent) || !req.IsResource || req.Subresource != "":
		return false
	case !req.LegacyWatch && (parts[0] == "watch" || parts[0] == "proxy"), req.Verb == "proxy":
		return false
	case req.GVR.Resource == "namespaces" && len(parts) > 2: // namespaces/NS/namespaces
		return false
	}
	return APIName(req.GVR.Group) && APIName(req.GVR.Version) && APIName(req.GVR.Resource)
}

const lowerAndDigits = "abcdefghijklmnopqrstuvwxyz0123456789"

// plainBytes reports whether every byte of path stands for itself in every URL parser.
func plainBytes(path string) bool {
	return strings.Trim(path, lowerAndDigits+"ABCDEFGHIJKLMNOPQRSTUVWXYZ-._~:@/") == ""
}

// APIName reports whether s can be an API group, version or resource.
func APIName(s string) bool {
	return strings.Trim(s, lowerAndDigits+"-.") == "" && s != "." && s != ".."
}

// parseQuery returns the valid parameters, as kube-apiserver does. plain reports whether every
// parser reads the query alike.
func parseQuery(raw string) (query url.Values, plain bool) {
	query, err := url.ParseQuery(raw)
	odd := func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '#' }
	return query, err == nil && !strings.ContainsFunc(raw, odd)
}

// unescaped returns the path of a request target as kube-apiserver reads it.
func unescaped(path string) string {
	if read, err := url.PathUnescape(path); err == nil {
		return read
	}
	return path
}

// parseOptions parses the query. It returns false if kube-apiserver would refuse a parameter, or if
// a parameter is not supported here.
func (req *Request) parseOptions(query url.Values) bool {
	if query.Has("export") {
		return false
	}
	req.ResourceVersion = query.Get("resourceVersion")
	if !plainResourceVersion(req.ResourceVersion) {
		return false
	}
	if req.Verb == "get" { // a get ignores all others, watch and selectors included
		return req.parseTimeout(query.Get("timeout"))
	}

	if req.watchParameter && req.LegacyWatch || req.Verb == "list" && !req.parseTimeout(query.Get("timeout")) {
		return false
	}
	req.AllowWatchBookmarks = BoolParameter(query, "allowWatchBookmarks")
	if query.Has("sendInitialEvents") {
		req.SendInitialEvents = new(BoolParameter(query, "sendInitialEvents"))
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

// BoolParameter decodes a boolean query parameter as kube-apiserver does. A missing one is false. Every value except
// "0" and "false" is true, the empty string included (k8s.io/apimachinery pkg/runtime/conversion.go).
func BoolParameter(query url.Values, key string) bool {
	v := query.Get(key)
	return query.Has(key) && v != "0" && !strings.EqualFold(v, "false")
}

func (req *Request) parseTimeout(s string) bool {
	if s == "" {
		return true
	}
	d, err := time.ParseDuration(s)
	req.Timeout = max(d, 0)
	return err == nil
}

func (req *Request) parseNumbers(query url.Values) bool {
	limit, ok := integer(query, "limit")
	if limit != nil {
		req.Limit = max(*limit, 0)
	}
	seconds, valid := integer(query, "timeoutSeconds")
	req.TimeoutSeconds = seconds
	return ok && valid
}

// integer returns the value of a parameter; nil if it is missing.
func integer(query url.Values, key string) (n *int64, valid bool) {
	if !query.Has(key) {
		return nil, true
	}
	value, err := strconv.ParseInt(query.Get(key), 10, 64)
	return &value, err == nil
}

func (req *Request) parseSelectors(query url.Values) bool {
	req.RawLabels = query.Get("labelSelector")
	req.RawFields = query.Get("fieldSelector")
	var ok bool
	if req.Labels, req.Fields, ok = parseSelectors(req.RawLabels, req.RawFields); !ok {
		return false
	}
	if shard := query.Get("shardSelector"); shard != "" {
		req.Shard = ShardSelector{Err: errLargeShard}
		if len(req.RawLabels)+len(req.RawFields)+len(shard) <= MaxSelectorBytes {
			req.Shard = parseShardSelector(shard)
		}
		req.LargeSelectors = req.Shard.Err == errLargeShard
	}

	switch {
	case req.Name == "" && !req.LegacyWatch:
		req.SelectorName = nameIn(req.Fields)
	case req.Name == "":
	case req.Fields.Empty():
		req.Fields = fields.OneTermEqualSelector(metav1.ObjectNameField, req.Name)
	default:
		name, exact := req.Fields.RequiresExactMatch(metav1.ObjectNameField)
		return exact && name == req.Name // 400: metadata.name doesn't match requested name
	}
	return true
}

// valid reports whether kube-apiserver accepts the combination of parameters. It validates a
// /watch/ path as a list, which has no sendInitialEvents.
func (req *Request) valid() bool {
	match := metav1.ResourceVersionMatch(req.resourceVersionMatch)
	initial := req.SendInitialEvents != nil
	switch {
	case req.LegacyWatch:
		return match == "" && !initial
	case req.Verb == "watch":
		if !initial { // kube-apiserver refuses a continue token if it defaults to true
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
