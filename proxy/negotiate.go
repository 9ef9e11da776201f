package proxy

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/munnerz/goautoneg"

	"github.com/watchfan/watchfan/framing"
)

// representation is the form of the objects in a response. Each form that
// clients ask for has a lane of its own.
type representation struct {
	encoding framing.Encoding
	metadata string // the version of meta.k8s.io in which nothing but the metadata is wanted; "" is the whole object
}

// everyKind reports whether kube-apiserver offers the representation of any
// resource: of custom resources it has no protobuf, except of their metadata, and CBOR
// is behind a feature gate (CBORServingAndStorage; KEP-4222).
func (r representation) everyKind() bool {
	return r.encoding == framing.JSON || r.encoding == framing.Protobuf && r.metadata != ""
}

// mediaType is the encoding's name.
func (r representation) mediaType() string {
	switch r.encoding {
	case framing.Protobuf:
		return "application/vnd.kubernetes.protobuf"
	case framing.CBOR:
		return "application/cbor"
	}
	return "application/json"
}

// accept is the Accept header that asks for the representation.
func (r representation) accept(list bool) string {
	if r.metadata == "" {
		return r.mediaType()
	}
	as := "PartialObjectMetadata"
	if list {
		as += "List"
	}
	return r.mediaType() + ";as=" + as + ";g=meta.k8s.io;v=" + r.metadata
}

// contentType is the Content-Type of a response.
func (r representation) contentType(watch bool) string {
	switch {
	case watch && r.encoding == framing.Protobuf:
		return r.mediaType() + ";stream=watch"
	case watch && r.encoding == framing.CBOR:
		return r.mediaType() + "-seq" // RFC 8742
	}
	return r.mediaType()
}

// String tells representations apart in logs and metrics.
func (r representation) String() string {
	if r.metadata == "" {
		return r.encoding.String()
	}
	return r.encoding.String() + "-metadata-" + r.metadata
}

// clause is one representation that a client accepts.
type clause struct {
	representation
	pretty bool // it wants JSON indented
}

// maxAcceptClauses bounds the Accept headers we read ourselves. The order that
// goautoneg sorts by is no strict weak order, so beyond the twelve clauses that
// are sorted by insertion its result depends on the version of Go that runs it.
const maxAcceptClauses = 12

// negotiate returns the representations that kube-apiserver would try in turn
// for a request with this Accept header ("" for none), up to one that it offers of
// every resource. ok is false if the header asks for something else before that: a
// table, YAML, or what we don't know.
//
// It follows k8s.io/apiserver pkg/endpoints/handlers/negotiation, and wants a
// clause that the router in front of built-in types lets pass, which is stricter:
// "application/*" is not acceptable there (emicklei/go-restful route.go).
func negotiate(accept string, verb string) (clauses []clause, ok bool) {
	if accept == "" {
		return []clause{{}}, true
	}
	if !routerAccepts(accept) {
		return nil, false
	}
	accepted := goautoneg.ParseAccept(accept)
	if len(accepted) > maxAcceptClauses {
		return nil, false
	}
	for _, a := range accepted {
		c, ok := readClause(a, verb)
		if !ok {
			return nil, false
		}
		clauses = append(clauses, c)
		if c.everyKind() {
			break
		}
	}
	return clauses, len(clauses) > 0
}

// readClause reads a clause that asks for a representation we serve.
func readClause(a goautoneg.Accept, verb string) (c clause, ok bool) {
	switch a.Type + "/" + a.SubType {
	case "application/json", "*/*":
	case "application/vnd.kubernetes.protobuf":
		c.encoding = framing.Protobuf
	case "application/cbor":
		c.encoding = framing.CBOR
	default:
		return clause{}, false
	}
	var as, group, version string
	for key, value := range a.Params {
		switch key {
		case "charset":
		case "pretty":
			c.pretty = value == "1"
		case "stream":
			if value != "watch" {
				return clause{}, false
			}
		case "as":
			as = value
		case "g":
			group = value
		case "v":
			version = value
		default:
			return clause{}, false
		}
	}
	if as == "" && group == "" && version == "" {
		return c, true
	}
	want := "PartialObjectMetadata"
	if verb == "list" {
		want += "List"
	}
	c.metadata = version
	return c, a.Type == "application" && as == want && group == "meta.k8s.io" && (version == "v1" || version == "v1beta1")
}

// routerAccepts reports whether a clause of accept is one that go-restful knows. CBOR is where kube-apiserver offers it, and where
// it does not, none is left of a header that has nothing else.
func routerAccepts(accept string) bool {
	for clause := range strings.SplitSeq(accept, ",") {
		mediaType, _, _ := strings.Cut(clause, ";")
		switch strings.Trim(mediaType, " ") {
		case "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor", "*/*":
			return true
		}
	}
	return false
}

// wantsPretty reports whether kube-apiserver indents the JSON of a get or list
// because of the query or of a client that people look at
// (k8s.io/apiserver pkg/endpoints/handlers/negotiation, isPrettyPrint). A key
// that is written with escapes does not count there, nor does it here.
func wantsPretty(rawQuery string, query url.Values, userAgent string) bool {
	if strings.Contains(rawQuery, "pretty") {
		if v := query.Get("pretty"); v != "" {
			pretty, _ := strconv.ParseBool(v)
			return pretty
		}
	}
	return strings.HasPrefix(userAgent, "curl") ||
		strings.HasPrefix(userAgent, "Wget") ||
		strings.HasPrefix(userAgent, "Mozilla/5.0")
}

// acceptsGzip reports whether an Accept-Encoding header has the bare token
// "gzip", the only form that kube-apiserver understands: "gzip;q=1.0" is not one.
func acceptsGzip(acceptEncoding string) bool {
	for token := range strings.SplitSeq(acceptEncoding, ",") {
		if strings.TrimSpace(token) == "gzip" {
			return true
		}
	}
	return false
}
