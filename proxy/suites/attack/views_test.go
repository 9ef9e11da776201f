package attack_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// attackViews is how many views there are: as many as there may be.
const attackViews = 32

// viewsConfig writes a configuration with views that select, are quiet, and leave out much.
func viewsConfig(t *testing.T) (file string) {
	t.Helper()
	text := "apiVersion: watchfan.io/v1alpha1\nkind: WatchfanConfiguration\nviews:\n"
	for i := range attackViews {
		text += fmt.Sprintf("- {name: v%d, quiet: true, drop: [{fields: [metadata.managedFields]}], resources: [\n", i)
		for _, resource := range []string{"configmaps", "secrets", "pods"} {
			text += fmt.Sprintf("  {resource: %s, keep: [metadata.annotations, data, spec.nodeName], where: metadata.annotations.n%d notin (a)},\n",
				resource, i)
		}
		text += "  ]}\n"
	}
	file = filepath.Join(t.TempDir(), "views.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// inViews is a hostile client's request in a view: any resume, selector, page, form and place, and now and then
// one of a thousand names, most of which are no view, or a write.
func inViews(a *attacker) request {
	pick := func(from ...string) string { return from[a.rng.IntN(len(from))] }
	query := url.Values{}
	for name, values := range map[string][]string{
		"resourceVersion":      {"", "0", "1", a.OldVersion, "9999999999"},
		"resourceVersionMatch": {"", "", "Exact", "NotOlderThan"},
		"labelSelector":        {"", "app=a1", fmt.Sprintf("app!=none-%d", a.rng.IntN(1000))},
		"fieldSelector":        {"", "metadata.name=cm-1", "spec.nodeName=x"},
		"limit":                {"", "", "7"},
		"continue":             {"", "", "", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTAxLCJzdGFydCI6ImEifQ"},
		"watch":                {"", "1"},
		"sendInitialEvents":    {"", "", "true"},
	} {
		if value := pick(values...); value != "" {
			query.Set(name, value)
		}
	}
	query.Set("timeoutSeconds", "1")
	name := a.rng.IntN(attackViews)
	if a.rng.IntN(8) == 0 {
		name = a.rng.IntN(1000)
	}
	place := pick("", "namespaces/"+hostileTenants[a.tenant]+"/", "namespaces/"+hostileTenants[a.tenant]+"/", "namespaces/t0/")
	return request{method: pick(http.MethodGet, http.MethodGet, http.MethodGet, http.MethodDelete), gzip: a.rng.IntN(2) == 0,
		uri: fmt.Sprintf("/views/v%d/api/v1/%s%s?%s", name, place, pick("configmaps", "secrets", "pods"), query.Encode()),
		accept: pick("application/json", protobufType, "application/cbor", "application/json;as=Table;g=meta.k8s.io;v=v1,application/json",
			"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")}
}

// everyView lists and watches the attacker's own objects in each view and form, compressed and not, with a
// thousand selectors.
func everyView(ctx context.Context, a *attacker) {
	forms := []string{"application/json", protobufType, "application/cbor"}
	c := a.client(mallory(a))
	defer c.close()
	crowd(attackViews, func(i int) {
		for n := i; ctx.Err() == nil; n++ {
			uri := fmt.Sprintf("/views/v%d%s?resourceVersion=0&labelSelector=app!=none-%d", i, a.own(), n%1000)
			if n%3 == 2 {
				uri = strings.Replace(uri, "configmaps", "secrets", 1)
			}
			if n%2 == 1 {
				uri += "&watch=1&timeoutSeconds=1"
			}
			a.ask(ctx, c, request{uri: uri, accept: forms[n/2%3], gzip: n/6%2 == 0}, patient)
		}
	})
}
