package request

import (
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

const kubectlAccept = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"

// A watch in Tables may be answered from a cache if it begins with the changes after a
// resourceVersion, and its rows name their objects.
func TestTableWatches(t *testing.T) {
	f := func(query string, want Reason, include string) {
		t.Helper()
		req := proxytest.MustParse(t, Parse, "/api/v1/pods?watch=true&"+query, kubectlAccept)
		if got := req.Unserved(); got != want || req.Accepts[0].Include != include || !req.AsTable() {
			t.Errorf("%s: unserved because %q, includeObject %q, want %q, %q", query, got, req.Accepts[0].Include, want, include)
		}
	}
	f("resourceVersion=7", "", "")
	f("resourceVersion=7&includeObject=", "", "")
	f("resourceVersion=7&includeObject=Metadata", "", "")
	f("resourceVersion=7&includeObject=Object", "", "Object")
	f("resourceVersion=7&includeObject=Object&includeObject=None", "", "Object")
	f("resourceVersion=7&includeObject=None", TableNoObjects, "None")
	f("resourceVersion=7&timeoutSeconds=-1", Parameters, "")
	f("", TableRows, "")
	f("resourceVersion=0", TableRows, "")
	f("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=7", TableRows, "")
	f("sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=7", Parameters, "")

	req := proxytest.MustParse(t, Parse, "/api/v1/pods?watch=true&resourceVersion=7&includeObject=x", "Accept: application/json")
	if req.Unserved() != "" || req.AsTable() {
		t.Errorf("a watch without Tables is unserved because %q", req.Unserved())
	}
	if why := proxytest.MustParse(t, Parse, "/api/v1/pods?includeObject=None", kubectlAccept).Unserved(); why != "" {
		t.Errorf("a list is unserved because %q", why)
	}
	proto := "Accept: application/vnd.kubernetes.protobuf,application/json;as=Table;v=v1;g=meta.k8s.io"
	for _, line := range []string{"/api/v1/pods?watch=true&resourceVersion=7", "/api/v1/pods"} {
		if why := proxytest.MustParse(t, Parse, line, proto).Unserved(); why != Form {
			t.Errorf("%s, protobuf before Tables: %q, want %q", line, why, Form)
		}
	}
}

// A request that no cache can answer says why.
func TestUncacheable(t *testing.T) {
	f := func(target string, want Reason, head ...string) {
		t.Helper()
		req, cacheable := Parse(proxytest.MustRead(t, target, head...))
		if cacheable || req.Uncacheable != want {
			t.Errorf("%s: cacheable %v, because %q, want %q", target, cacheable, req.Uncacheable, want)
		}
	}
	f("/healthz", Path)
	f("/api/v1/pods?watch=true&x=%zz", Path)
	f("/api/v1/pods?watch=true", Headers, "Origin: https://example.com")
	f("/api/v1/pods?watch=true&resourceVersion=x", Parameters)
	f("/api/v1/pods?watch=true&resourceVersion=7&includeObject=x", Parameters, kubectlAccept)
	f("/api/v1/pods?watch=true", Form, "Accept: application/yaml")
	f("/api/v1/pods/x", Form, kubectlAccept)
}

// Each representation has a name of its own, because lanes and metrics go by it.
func TestRepresentationNames(t *testing.T) {
	for want, r := range map[string]Representation{
		"json-table-v1":        {Table: "v1"},
		"json-table-v1beta1":   {Table: "v1beta1"},
		"json-table-v1-object": {Table: "v1", Include: IncludeObject},
		"json-metadata-v1":     {Metadata: "v1"},
		"json":                 {},
	} {
		if got := r.String(); got != want {
			t.Errorf("%+v: %s, want %s", r, got, want)
		}
	}
	table := Representation{Table: "v1"}
	if got, want := table.Accept(false), "application/json;as=Table;g=meta.k8s.io;v=v1"; got != want || table.Accept(true) != "application/json" {
		t.Errorf("Accept %s of a watch and %s of a list", got, table.Accept(true))
	}
}
