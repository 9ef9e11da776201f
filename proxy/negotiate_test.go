package proxy

import (
	"strings"
	"testing"

	"github.com/munnerz/goautoneg"
)

func TestNegotiateJSON(t *testing.T) {
	f := func(accept, want string) {
		t.Helper()
		pretty, ok := negotiateJSON(accept)
		got := "no"
		switch {
		case ok && pretty:
			got = "pretty"
		case ok:
			got = "json"
		}
		if got != want {
			t.Errorf("%q: got %s, want %s", accept, got, want)
		}
	}

	f("", "json")
	f("*/*", "json")
	f("application/json", "json")
	f("application/json;charset=utf-8", "json")
	f("application/json, */*", "json")
	f("application/json;stream=watch", "json")
	f("application/json;pretty=1", "pretty")
	f("application/json; pretty=1; q=0.1", "pretty")
	f("application/json;pretty=true", "json")
	f("application/json;q=0,application/vnd.kubernetes.protobuf;q=0", "json")
	f("text/html;q=0.9,application/json", "json")
	f("*/*;q=1,application/json;q=0.1", "json")

	// kube-apiserver would answer JSON to these too; we do not try to know.
	f("text/html,application/json", "no")
	f("application/json;profile=x", "no")
	f("*/*;"+strings.Repeat("q=1,*/*;", 12), "no")

	f("application/json;q=0.5,application/yaml;q=0.9", "no")
	f("*/*;q=1,application/yaml;q=0.1", "no")
	f("text/html", "no")
	f("application/*", "no")
	f("*", "no")
	f("application / json", "no")
	f("Application/JSON", "no")
	f("application/vnd.kubernetes.protobuf", "no")
	f("application/vnd.kubernetes.protobuf,application/json", "no")
	f("application/yaml", "no")
	f("application/cbor", "no")
	f("application/json;stream=other", "no")
	f("application/json;sv=v1", "no")
	f("application/json;as=Table;g=meta.k8s.io;v=v1,application/json", "no")
	f("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "no")
	f("application/json;as=Foo", "no")
}

// Only the first Accept line counts.
func TestAcceptLines(t *testing.T) {
	mustParse(t, "/api/v1/pods", "Accept: application/json", "Accept: application/yaml")
	mustParse(t, "/api/v1/pods", "accept:", "Accept: application/yaml")
	if _, ok := parseRequest(mustRead(t, "/api/v1/pods", "Accept: application/yaml", "Accept: application/json")); ok {
		t.Error("yaml, then json: recognised")
	}
}

func TestWantsPretty(t *testing.T) {
	f := func(query, userAgent string, want bool) {
		t.Helper()
		if got := mustParse(t, "/api/v1/pods?"+query, "User-Agent: "+userAgent).pretty; got != want {
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
	if !mustParse(t, "/api/v1/pods?pretty=false", "Accept: application/json;pretty=1").pretty {
		t.Error("pretty=1 in Accept: got false")
	}
}

func TestAcceptsGzip(t *testing.T) {
	for header, want := range map[string]bool{
		"": false, "gzip": true, "br, gzip": true, "gzip ,br": true, "gzip;q=1.0": false, "gzip;q=0": false,
		"deflate": false, "x-gzip": false, "*": false, "GZIP": false,
	} {
		if got := mustParse(t, "/api/v1/pods", "Accept-Encoding: "+header).gzip; got != want {
			t.Errorf("%q: got %v, want %v", header, got, want)
		}
	}
}

// slowlyJSON goes through the whole of kube-apiserver's negotiation, for a
// built-in type.
func slowlyJSON(accept string) bool {
	if accept == "" {
		return true
	}
	routed := false
	for _, clause := range strings.Split(accept, ",") {
		switch strings.Trim(strings.Split(clause, ";")[0], " ") {
		case "*/*", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf":
			routed = true
		}
	}
	if !routed {
		return false
	}
	for _, clause := range goautoneg.ParseAccept(accept) {
		for _, subType := range []string{"json", "yaml", "vnd.kubernetes.protobuf"} {
			matches := clause.Type == "*" && clause.SubType == "*" ||
				clause.Type == "application" && (clause.SubType == "*" || clause.SubType == subType)
			p := clause.Params
			if !matches || p["as"]+p["g"]+p["v"] != "" || p["sv"] != "" || p["stream"] != "" && p["stream"] != "watch" {
				continue
			}
			return subType == "json"
		}
	}
	return false
}
