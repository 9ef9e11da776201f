package request

import (
	"slices"
	"strings"
	"testing"

	"github.com/munnerz/goautoneg"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// formOf names the objects' form.
func formOf(c Clause) string {
	if c.Lean {
		return c.String() + "-lean"
	}
	return c.String()
}

func TestNegotiate(t *testing.T) {
	f := func(verb, accept string, want ...string) {
		t.Helper()
		clauses, ok := negotiate(accept, verb)
		got := []string{"no"}
		if ok {
			got = nil
			for _, c := range clauses {
				form := formOf(c)
				if c.Pretty {
					form += " pretty"
				}
				got = append(got, form)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s %q: got %q, want %q", verb, accept, got, want)
		}
	}
	const (
		proto     = "application/vnd.kubernetes.protobuf"
		metadata  = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
		metadatas = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
		drop      = ";drop=metadata.managedFields"
	)

	f("list", "", "json")
	f("list", "*/*", "json")
	f("list", "application/json", "json")
	f("list", "application/json;charset=utf-8", "json")
	f("watch", "application/json;stream=watch", "json")
	f("list", "application/json;pretty=1", "json pretty")
	f("list", "application/json;pretty=true", "json")
	f("list", "application/json;q=0,application/vnd.kubernetes.protobuf;q=0", "json")
	f("list", "text/html;q=0.9,application/json", "json")
	f("list", "*/*;q=1,application/json;q=0.1", "json")

	// The headers of client-go's typed clients and metadata clients.
	f("list", proto+",application/json", "protobuf", "json")
	f("watch", proto+";stream=watch,application/json", "protobuf", "json")
	f("list", proto+metadatas+",application/json"+metadatas+",application/json", "protobuf-metadata-v1")
	f("watch", proto+metadata+",application/json"+metadata+",application/json", "protobuf-metadata-v1")
	f("get", "application/json"+metadata, "json-metadata-v1")
	f("list", "application/json;v=v1beta1;as=PartialObjectMetadataList;g=meta.k8s.io", "json-metadata-v1beta1")
	// The dynamic client, where it prefers CBOR.
	f("list", "application/json;q=0.9,application/cbor;q=1", "cbor", "json")

	// kubectl. Lists and gets in Tables pass through.
	f("watch", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", "json-table-v1")
	f("watch", "application/json;as=Table;g=meta.k8s.io;v=v1beta1;pretty=1", "json-table-v1beta1 pretty")
	f("watch", proto+",application/json;as=Table;g=meta.k8s.io;v=v1", "protobuf", "json-table-v1")
	f("watch", "application/yaml;as=Table;g=meta.k8s.io;v=v1,application/json", "no")
	f("watch", proto+";as=Table;g=meta.k8s.io;v=v1,application/json", "no")
	f("watch", "*/*;as=Table;g=meta.k8s.io;v=v1", "no")
	f("watch", "application/json;as=Table;g=meta.k8s.io;v=v2", "no")
	f("watch", "application/json;as=Table;v=v1", "no")
	f("get", "application/json;as=Table;g=meta.k8s.io;v=v1", "no")

	// Without managedFields (KEP-5958). The second header is client-go's, from 1.38 on.
	f("list", "application/json"+drop, "json-lean")
	f("get", "application/json; drop=metadata.managedFields,*/*; drop=metadata.managedFields", "json-lean")
	f("watch", proto+drop+",application/json", "protobuf-lean", "json")
	f("list", "application/json;q=0.9,application/cbor"+drop, "cbor-lean", "json")
	f("list", "application/json"+metadatas+drop, "json-metadata-v1-lean")
	f("list", "application/json"+drop+";pretty=1", "json-lean pretty")
	f("list", "application/json;q=0.5,application/json"+drop, "json-lean")
	f("list", "application/json;drop=spec"+drop, "json-lean") // the last one counts, as in kube-apiserver
	f("list", "application/json;drop=", "json")               // this is no parameter, as in kube-apiserver
	f("list", "application/json;drop=spec", "no")
	f("list", "application/json,application/yaml;drop=spec;q=0.1", "json")
	f("list", "application/json;drop=metadata.managedfields", "no")
	f("list", `application/json;drop="metadata.managedFields"`, "no")
	f("list", "application/json"+drop+"+metadata.managedFields", "no")
	f("list", "application/yaml"+drop, "no")
	f("watch", "application/json;as=Table;g=meta.k8s.io;v=v1"+drop, "no")

	// CBOR may not be offered of anything, so it may be that nothing is.
	f("list", "application/cbor", "cbor")
	f("watch", "application/cbor;stream=watch", "cbor")
	f("list", "application/cbor,"+proto+",*/*;q=0.1", "cbor", "protobuf", "json")
	f("list", "application/cbor"+metadatas+",application/json", "cbor-metadata-v1", "json")
	f("list", "application/cbor-seq", "no")

	// Custom resources have no protobuf, so for them no clause of these headers can be served.
	f("list", proto+",application/yaml", "no")

	// kube-apiserver answers these with JSON too, but they are not recognised here.
	f("list", "text/html,application/json", "no")
	f("list", "application/json;profile=x", "no")
	f("list", "*/*;"+strings.Repeat("q=1,*/*;", 12), "no")

	f("list", "application/json;q=0.5,application/yaml;q=0.9", "no")
	f("list", "text/html", "no")
	f("list", "application/*", "no")
	f("list", "*", "no")
	f("list", "application/cbor,*", "no") // without CBOR, the router knows none of these
	f("list", "application / json", "no")
	f("list", "Application/JSON", "no")
	f("list", "application/yaml", "no")
	f("list", "application/json;stream=other", "no")
	f("list", "application/json;sv=v1", "no")
	f("list", "application/json;as=Table;g=meta.k8s.io;v=v1,application/json", "json-table-v1")
	f("list", "application/yaml,application/json;as=Table;g=meta.k8s.io;v=v1", "no")
	f("list", "application/json;as=Foo", "no")
	f("list", "application/json;as= ;q=1", "no")
	f("watch", proto+";v= ;q=1,application/json", "no")
	f("list", "application/json"+metadata, "no")
	f("get", "application/json"+metadatas, "no")
	f("list", "*/*"+metadatas, "no")
	f("list", "application/json;as=PartialObjectMetadataList;v=v1", "no")
	f("list", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v2", "no")
}

// Only the first Accept line counts.
func TestAcceptLines(t *testing.T) {
	proxytest.MustParse(t, Parse, "/api/v1/pods", "Accept: application/json", "Accept: application/yaml")
	proxytest.MustParse(t, Parse, "/api/v1/pods", "accept:", "Accept: application/yaml")
	if _, ok := Parse(proxytest.MustRead(t, "/api/v1/pods", "Accept: application/yaml",
		"Accept: application/json")); ok {
		t.Error("yaml, then json: recognised")
	}
}

func TestWantsPretty(t *testing.T) {
	f := func(query, userAgent string, want bool) {
		t.Helper()
		if got := proxytest.MustParse(t, Parse, "/api/v1/pods?"+query, "User-Agent: "+userAgent).Pretty; got != want {
			t.Errorf("%s, %s: got %v, want %v", query, userAgent, got, want)
		}
	}
	f("", "lab/1", false)
	f("", "curl/8", true)
	f("", "Wget/1", true)
	f("", "Mozilla/5.0 (X11)", true)
	f("", "xcurl/8", false)
	f("pretty=", "curl/8", true)
	f("pretty=false", "curl/8", false)
	f("pretty=banana", "curl/8", false)
	f("pretty=0&pretty=1", "curl/8", false)
	f("pretty=t", "lab/1", true)
	f("pretty=TRUE", "lab/1", true)
	f("prett%79=false", "curl/8", true)
	f("watch=1", "curl/8", false)
	f("watch=1&pretty=true", "lab/1", false)
}

// A client that says gzip gets it, but for the watches of generated clients.
func TestGzip(t *testing.T) {
	f := func(accept, line, userAgent string, want bool) {
		t.Helper()
		if got := proxytest.MustParse(t, Parse, line, "Accept-Encoding: "+accept, "User-Agent: "+userAgent).Gzip; got != want {
			t.Errorf("%s of %q, accepting %q: got %v, want %v", line, userAgent, accept, got, want)
		}
	}
	const list, watch = "/api/v1/pods", "/api/v1/pods?watch=1"
	for header, want := range map[string]bool{
		"": false, "gzip": true, "br, gzip": true, "gzip ,br": true, "gzip;q=1.0": false, "gzip;q=0": false,
		"deflate": false, "x-gzip": false, "*": false, "GZIP": false,
	} {
		f(header, list, "", want)
		f(header, watch, "mine (OpenAPI-Generator/36.0.2/python)", want)
	}
	f("gzip", watch, "OpenAPI-Generator/36.0.2/python", false)
	f("gzip", watch, "Swagger-Codegen/9.0.0/python", false)
	f("gzip", list, "OpenAPI-Generator/36.0.2/python", true)
}

// slowly performs all steps of kube-apiserver's negotiation and returns the form of the answer.
// cbor is a feature gate. kube-apiserver knows no other fields to drop than managedFields.
func slowly(accept, verb string, custom, cbor bool) string {
	if accept == "" {
		return "json"
	}
	routed := false
	for _, clause := range strings.Split(accept, ",") {
		switch strings.Trim(strings.Split(clause, ";")[0], " ") {
		case "*/*", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf":
			routed = true
		case "application/cbor":
			routed = routed || cbor
		}
	}
	if !routed && !custom {
		return "none"
	}
	for _, clause := range goautoneg.ParseAccept(accept) {
		for _, subType := range []string{"json", "yaml", "vnd.kubernetes.protobuf", "cbor"} {
			matches := clause.Type == "*" && clause.SubType == "*" ||
				clause.Type == "application" && (clause.SubType == "*" || clause.SubType == subType)
			p := clause.Params
			if !matches || subType == "cbor" && !cbor || p["sv"] != "" && p["sv"] != "v1" ||
				p["stream"] != "" && p["stream"] != "watch" {
				continue
			}
			form, lean := strings.TrimPrefix(subType, "vnd.kubernetes."), ""
			if p["drop"] == "metadata.managedFields" {
				lean = "-lean"
			}
			_, as := p["as"]
			_, group := p["g"]
			_, version := p["v"]
			if !as && !group && !version {
				if custom && form == "protobuf" {
					continue
				}
				return form + lean
			}
			if p["g"] != "meta.k8s.io" || p["v"] != "v1" && p["v"] != "v1beta1" {
				continue
			}
			switch as := p["as"]; {
			case as == "Table" && form != "protobuf" && form != "cbor":
				return form + "-table-" + p["v"] + lean
			case as == "PartialObjectMetadata" && verb != "list", as == "PartialObjectMetadataList" && verb == "list":
				return form + "-metadata-" + p["v"] + lean
			case strings.HasPrefix(as, "PartialObjectMetadata"):
				return "refused"
			}
		}
	}
	return "none"
}

// Each recognised Accept header leads to kube-apiserver's own choice, for built-in and custom
// resources, with CBOR and without.
func FuzzNegotiate(f *testing.F) {
	for _, seed := range []string{"", "*/*", "application/json", "application/vnd.kubernetes.protobuf,application/json",
		"application/json;q=0.5,application/yaml;q=0.9",
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1," +
			"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
		"application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "application/json;q=0.9,application/cbor;q=1",
		"application/cbor", "application/cbor;stream=watch,application/vnd.kubernetes.protobuf",
		"application/cbor;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/*", "application/*",
		"application/vnd.kubernetes.protobuf;as= ;q=1,application/json", "text/html,*/*;q=0.1", "application/json;stream=watch;pretty=1;charset=x",
		"application/json;drop=metadata.managedFields,*/*;drop=metadata.managedFields", "application/json;drop=spec,*/*"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		for _, verb := range []string{"get", "list", "watch"} {
			clauses, ok := negotiate(accept, verb)
			if !ok {
				continue
			}
			for i := range 4 {
				custom, cbor := i&1 != 0, i&2 != 0
				got := "none"
				for _, c := range clauses {
					if c.EveryKind() || c.Encoding == framing.Protobuf && !custom ||
						c.Encoding == framing.CBOR && cbor {
						got = formOf(c)
						break
					}
				}
				if want := slowly(accept, verb, custom, cbor); got != want && got != "none" {
					t.Errorf("%s %q, custom %v, CBOR %v: got %s, want %s", verb, accept, custom, cbor, got, want)
				}
			}
		}
	})
}

// A long Accept header is not parsed: that would take sixty times its memory before the client is known.
func TestLongAccept(t *testing.T) {
	for _, more := range []string{",*;c=d", ",a/b", ";c=d"} {
		long := "*/*" + strings.Repeat(more, 1<<20/len(more))
		allocs := testing.AllocsPerRun(1, func() {
			if _, ok := negotiate(long, "list"); ok {
				t.Errorf("%s, very often: recognised", more)
			}
		})
		if allocs > 0 {
			t.Errorf("%s, very often: %v allocations", more, allocs)
		}
	}
}
