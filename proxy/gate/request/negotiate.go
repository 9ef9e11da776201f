package request

import (
	"slices"
	"strings"

	"github.com/munnerz/goautoneg"

	"github.com/watchfan/watchfan/framing"
)

// Representation is the form of the objects in a response. Each requested form has a lane of its
// own.
type Representation struct {
	Encoding framing.Encoding
	Metadata string // the meta.k8s.io version for metadata only; "" for whole objects
	Table    string // the meta.k8s.io version for Tables; "" for none. Not for gets, and in JSON only
	Include  string // includeObject of Tables: "" for metadata, else IncludeObject or IncludeNone
}

// What the rows of Tables have besides their cells
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables).
const (
	includeMetadata = "Metadata" // the same as none given
	IncludeObject   = "Object"
	IncludeNone     = "None"
)

// EveryKind reports whether kube-apiserver offers the representation for every resource. Custom
// resources have no protobuf, except for metadata only. CBOR is behind a feature gate
// (CBORServingAndStorage; KEP-4222).
func (r Representation) EveryKind() bool {
	return r.Encoding == framing.JSON || r.Encoding == framing.Protobuf && r.Metadata != ""
}

// Accept returns the Accept header that requests the representation. Lists are never requested as
// Tables.
func (r Representation) Accept(list bool) string {
	if r.Table != "" && !list {
		return r.Encoding.MediaType() + ";as=Table;g=meta.k8s.io;v=" + r.Table
	}
	if r.Metadata == "" {
		return r.Encoding.MediaType()
	}
	as := "PartialObjectMetadata"
	if list {
		as += "List"
	}
	return r.Encoding.MediaType() + ";as=" + as + ";g=meta.k8s.io;v=" + r.Metadata
}

// ContentType returns the Content-Type of a response.
func (r Representation) ContentType(watch bool) string {
	switch {
	case watch && r.Encoding == framing.Protobuf:
		return r.Encoding.MediaType() + ";stream=watch"
	case watch && r.Encoding == framing.CBOR:
		return r.Encoding.MediaType() + "-seq" // RFC 8742
	}
	return r.Encoding.MediaType()
}

// String returns the representation's name in logs and metrics.
func (r Representation) String() string {
	name := r.Encoding.String()
	switch {
	case r.Table != "":
		name += "-table-" + r.Table
		if r.Include != "" {
			name += "-" + strings.ToLower(r.Include)
		}
	case r.Metadata != "":
		name += "-metadata-" + r.Metadata
	}
	return name
}

// Clause is one representation that a client accepts.
type Clause struct {
	Representation
	Lean   bool // without metadata.managedFields (KEP-5958). Not for Tables
	Pretty bool // the client asks for indented JSON
}

// dropManagedFields is the value of the parameter drop that asks for objects without
// metadata.managedFields (KEP-5958). Other values name other fields, or several with + between them.
// Those pass through: kube-apiserver up to 1.37 ignores the parameter, and from 1.38.0-alpha.1 on,
// with the feature gate ManagedFieldsOptOut, it skips clauses with values that it does not know.
const dropManagedFields = "metadata.managedFields"

const (
	// maxAccept bounds an Accept header that is parsed here, in bytes. The parsed one takes sixty times
	// as many, and the client is not known yet. kubectl sends a few hundred.
	maxAccept = 4 << 10
	// maxAcceptClauses bounds the clauses. goautoneg sorts by an order that is not a strict weak order.
	// Up to twelve clauses are sorted by insertion. Beyond that, the result depends on the Go version.
	maxAcceptClauses = 12
)

// negotiate returns the representations that kube-apiserver would try in turn for a request with
// this Accept header ("" for none). The result ends with the first one that kube-apiserver offers
// for every resource. ok is false if the header asks for something else before that: YAML, an
// unknown type, a Table of a get, or objects without fields other than managedFields. It is also
// false for a header that is too long.
//
// negotiate follows k8s.io/apiserver pkg/endpoints/handlers/negotiation. The header must also pass
// the router in front of built-in types, which is stricter: it does not accept "application/*"
// (emicklei/go-restful route.go).
func negotiate(accept string, verb string) (clauses []Clause, ok bool) {
	if accept == "" {
		return []Clause{{}}, true
	}
	if len(accept) > maxAccept || !routerAccepts(accept, true) {
		return nil, false
	}
	without := routerAccepts(accept, false) // where kube-apiserver has no CBOR
	accepted := goautoneg.ParseAccept(accept)
	if len(accepted) > maxAcceptClauses {
		return nil, false
	}
	for _, a := range accepted {
		c, ok := readClause(a, verb)
		if !ok || !without && c.Encoding != framing.CBOR {
			return nil, false
		}
		clauses = append(clauses, c)
		if c.EveryKind() {
			break
		}
	}
	return clauses, len(clauses) > 0
}

// readClause parses one clause. ok is false if it does not ask for a representation served here.
func readClause(a goautoneg.Accept, verb string) (c Clause, ok bool) {
	mediaType := a.Type + "/" + a.SubType
	if c.Encoding, ok = framing.EncodingOf(mediaType); !ok && mediaType != "*/*" {
		return Clause{}, false
	}
	var as, group, version string
	converts := false // even if all three are empty
	for key, value := range a.Params {
		switch key {
		case "charset":
		case "pretty":
			c.Pretty = value == "1"
		case "stream":
			if value != "watch" {
				return Clause{}, false
			}
		case "drop":
			if value != dropManagedFields {
				return Clause{}, false
			}
			c.Lean = true
		case "as":
			as, converts = value, true
		case "g":
			group, converts = value, true
		case "v":
			version, converts = strings.Clone(value), true // the version outlives the header
		default:
			return Clause{}, false
		}
	}
	if !converts {
		return c, true
	}
	known := a.Type == "application" && group == "meta.k8s.io" && (version == "v1" || version == "v1beta1")
	if as == "Table" {
		c.Table = version
		return c, known && verb != "get" && c.Encoding == framing.JSON && !c.Lean
	}
	want := "PartialObjectMetadata"
	if verb == "list" {
		want += "List"
	}
	c.Metadata = version
	return c, known && as == want
}

// ForTable reports whether a clause of an Accept header asks for a Table, in whatever spacing.
func ForTable(clause string) bool {
	return slices.ContainsFunc(goautoneg.ParseAccept(clause), func(a goautoneg.Accept) bool { return a.Params["as"] == "Table" })
}

// routerAccepts reports whether go-restful knows at least one media type of accept. It knows CBOR
// only where kube-apiserver offers CBOR, which cbor says. Elsewhere a header with CBOR alone has no
// supported representation anyway.
func routerAccepts(accept string, cbor bool) bool {
	for clause := range strings.SplitSeq(accept, ",") {
		mediaType, _, _ := strings.Cut(clause, ";")
		switch strings.Trim(mediaType, " ") {
		case "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "*/*":
			return true
		case "application/cbor":
			if cbor {
				return true
			}
		}
	}
	return false
}

// acceptsGzip reports whether an Accept-Encoding header contains the bare token "gzip".
// kube-apiserver understands no other form: "gzip;q=1.0" does not count.
func acceptsGzip(acceptEncoding string) bool {
	for token := range strings.SplitSeq(acceptEncoding, ",") {
		if strings.TrimSpace(token) == "gzip" {
			return true
		}
	}
	return false
}

// readsRaw reports whether a client reads the bytes of a watch as they come, even if it accepts
// gzip. A generated client can be told to accept gzip for its lists. But the watch of the Python
// client (kubernetes/base/watch/watch.py) then splits the compressed bytes into lines, because
// kube-apiserver compresses no watch.
func readsRaw(userAgent string) bool {
	return strings.HasPrefix(userAgent, "OpenAPI-Generator/") || strings.HasPrefix(userAgent, "Swagger-Codegen/")
}
