package request

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/munnerz/goautoneg"

	"github.com/watchfan/watchfan/framing"
)

// Representation is the form of the objects in a response. Each form that
// clients ask for has a lane of its own.
type Representation struct {
	Encoding framing.Encoding
	Metadata string // the version of meta.k8s.io in which nothing but the metadata is wanted; "" is the whole object
}

// EveryKind reports whether kube-apiserver offers the representation of any
// resource: of custom resources it has no protobuf, except of their metadata, and CBOR
// is behind a feature gate (CBORServingAndStorage; KEP-4222).
func (r Representation) EveryKind() bool {
	return r.Encoding == framing.JSON || r.Encoding == framing.Protobuf && r.Metadata != ""
}

// MediaType is the encoding's name.
func (r Representation) MediaType() string {
	switch r.Encoding {
	case framing.Protobuf:
		return "application/vnd.kubernetes.protobuf"
	case framing.CBOR:
		return "application/cbor"
	}
	return "application/json"
}

// Accept is the Accept header that asks for the representation.
func (r Representation) Accept(list bool) string {
	if r.Metadata == "" {
		return r.MediaType()
	}
	as := "PartialObjectMetadata"
	if list {
		as += "List"
	}
	return r.MediaType() + ";as=" + as + ";g=meta.k8s.io;v=" + r.Metadata
}

// ContentType is the Content-Type of a response.
func (r Representation) ContentType(watch bool) string {
	switch {
	case watch && r.Encoding == framing.Protobuf:
		return r.MediaType() + ";stream=watch"
	case watch && r.Encoding == framing.CBOR:
		return r.MediaType() + "-seq" // RFC 8742
	}
	return r.MediaType()
}

// String tells representations apart in logs and metrics.
func (r Representation) String() string {
	if r.Metadata == "" {
		return r.Encoding.String()
	}
	return r.Encoding.String() + "-metadata-" + r.Metadata
}

// Clause is one representation that a client accepts.
type Clause struct {
	Representation
	Pretty bool // it wants JSON indented
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
func negotiate(accept string, verb string) (clauses []Clause, ok bool) {
	if accept == "" {
		return []Clause{{}}, true
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
		if c.EveryKind() {
			break
		}
	}
	return clauses, len(clauses) > 0
}

// readClause reads a clause that asks for a representation we serve.
func readClause(a goautoneg.Accept, verb string) (c Clause, ok bool) {
	switch a.Type + "/" + a.SubType {
	case "application/json", "*/*":
	case "application/vnd.kubernetes.protobuf":
		c.Encoding = framing.Protobuf
	case "application/cbor":
		c.Encoding = framing.CBOR
	default:
		return Clause{}, false
	}
	var as, group, version string
	for key, value := range a.Params {
		switch key {
		case "charset":
		case "pretty":
			c.Pretty = value == "1"
		case "stream":
			if value != "watch" {
				return Clause{}, false
			}
		case "as":
			as = value
		case "g":
			group = value
		case "v":
			version = strings.Clone(value) // it is kept, and the rest of the header is not
		default:
			return Clause{}, false
		}
	}
	if as == "" && group == "" && version == "" {
		return c, true
	}
	want := "PartialObjectMetadata"
	if verb == "list" {
		want += "List"
	}
	c.Metadata = version
	return c, a.Type == "application" && as == want && group == "meta.k8s.io" && (version == "v1" || version == "v1beta1")
}

// routerAccepts reports whether a clause of accept is one that go-restful knows. CBOR is where
// kube-apiserver offers it, and where it does not, none is left of a header that has nothing else.
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
