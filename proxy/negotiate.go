package proxy

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/munnerz/goautoneg"
)

// maxAcceptClauses bounds the Accept headers we read ourselves. The order that
// goautoneg sorts by is no strict weak order, so beyond the twelve clauses that
// are sorted by insertion its result depends on the version of Go that runs it.
const maxAcceptClauses = 12

// negotiateJSON reports whether kube-apiserver would answer a request that has
// this Accept header ("" for none) with plain JSON, on built-in types and custom
// resources alike, and whether the header asks for indented JSON.
//
// It reports true only where the clause that comes first in goautoneg's order
// decides it (k8s.io/apiserver pkg/endpoints/handlers/negotiation), and is
// literally one that the router in front of built-in types lets pass, which is
// stricter: "application/*" is not acceptable there (emicklei/go-restful
// route.go).
func negotiateJSON(accept string) (pretty, ok bool) {
	if accept == "" {
		return false, true
	}
	if !routerAccepts(accept) {
		return false, false
	}
	clauses := goautoneg.ParseAccept(accept)
	if len(clauses) == 0 || len(clauses) > maxAcceptClauses {
		return false, false
	}
	first := clauses[0]
	switch first.Type + "/" + first.SubType {
	case "application/json", "*/*":
	default:
		return false, false
	}
	for key, value := range first.Params {
		switch key {
		case "charset":
		case "pretty":
			pretty = value == "1"
		case "stream":
			if value != "watch" {
				return false, false
			}
		default: // as, g, v, and what we do not know
			return false, false
		}
	}
	return pretty, true
}

// routerAccepts reports whether a clause of accept is JSON to go-restful.
func routerAccepts(accept string) bool {
	for clause := range strings.SplitSeq(accept, ",") {
		mediaType, _, _ := strings.Cut(clause, ";")
		switch strings.Trim(mediaType, " ") {
		case "application/json", "*/*":
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
