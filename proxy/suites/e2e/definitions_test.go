package e2e_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// widgetSpec returns the spec of widgets with versions, each its name and then its options: fields=.spec.c,… for
// selectable fields, filler=… for a default of spec.filler, deprecated=… for a warning, and hidden=true if it is not
// served. The first is stored.
func widgetSpec(group string, versions []string) string {
	var options []map[string]string
	for _, word := range versions {
		if name, value, ok := strings.Cut(word, "="); ok {
			options[len(options)-1][name] = value
		} else {
			options = append(options, map[string]string{"name": word})
		}
	}
	var all []string
	for i, v := range options {
		fields := ""
		if v["fields"] != "" {
			fields = `{"jsonPath":"` + strings.ReplaceAll(v["fields"], ",", `"},{"jsonPath":"`) + `"}`
		}
		filler := ""
		if v["filler"] != "" {
			filler = fmt.Sprintf(`,"filler":{"type":"string","default":%q}`, v["filler"])
		}
		deprecated := ""
		if v["deprecated"] != "" {
			deprecated = fmt.Sprintf(`"deprecated":true,"deprecationWarning":%q,`, v["deprecated"])
		}
		all = append(all, fmt.Sprintf(`{"name":%q,"served":%t,"storage":%t,%s"selectableFields":[%s],"additionalPrinterColumns":[
{"name":"C","type":"string","jsonPath":".spec.c"},{"name":"Born","type":"date","jsonPath":".metadata.creationTimestamp"}],
"schema":{"openAPIV3Schema":{"type":"object","properties":{"kind":{"type":"string"},"spec":{"type":"object","default":{},
"properties":{"c":{"type":"string"},"n":{"type":"integer"},"b":{"type":"boolean"},"deep-er":{"type":"object",
"properties":{"x_1":{"type":"string"}}}%s}}}}}}`, v["name"], v["hidden"] == "", i == 0, deprecated, fields, filler))
	}
	return fmt.Sprintf(`"spec":{"group":%q,"scope":"Namespaced","names":{"plural":"widgets","singular":"widget",`+
		`"kind":"Widget","listKind":"WidgetList"},"versions":[%s]}`, group, strings.Join(all, ","))
}

// defineWidgets creates the definition, or changes it. It waits until kube-apiserver serves the first version.
func defineWidgets(t testing.TB, d *target, group string, versions ...string) {
	t.Helper()
	one := definitionsPath + "/widgets." + group
	if d.get(t, one).status == http.StatusOK {
		d.patch(t, one, "{"+widgetSpec(group, versions)+"}")
	} else {
		d.create(t, definitionsPath, fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",`+
			`"metadata":{"name":"widgets.%s"},%s}`, group, widgetSpec(group, versions)))
	}
	awaitServed(t, d, "/apis/"+group+"/"+versions[0]+"/widgets")
}

// awaitServed waits until kube-apiserver serves a custom resource.
func awaitServed(t testing.TB, d *target, uri string) {
	t.Helper()
	steady.Until(t, uri, func() error {
		resp, err := d.look(uri+"?watch=1", nil)
		if err == nil && resp.status != http.StatusOK {
			err = fmt.Errorf("%d", resp.status)
		}
		return err
	})
}

const foosCRD = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
"metadata":{"name":"PLURAL.GROUP"},"spec":{
"group":"GROUP","scope":"SCOPE","names":{"plural":"PLURAL","singular":"SINGULAR","kind":"KIND","listKind":"KINDList"},
"versions":[{"name":"v1","served":true,"storage":true,"selectableFields":[{"jsonPath":".spec.c"}],
"additionalPrinterColumns":[{"name":"C","type":"string","jsonPath":".spec.c"}],
"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object",
"x-kubernetes-preserve-unknown-fields":true,"properties":{"c":{"type":"string"},"n":{"type":"integer"}}}}}}}]}}`

// createCRD creates a custom resource and waits until kube-apiserver serves it.
func createCRD(t *testing.T, d *target, group, kind, scope string) {
	t.Helper()
	singular := strings.ToLower(kind)
	body := strings.NewReplacer("GROUP", group, "KIND", kind, "SCOPE", scope, "PLURAL", singular+"s", "SINGULAR",
		singular).Replace(foosCRD)
	d.create(t, definitionsPath, body)
	awaitServed(t, d, "/apis/"+group+"/v1/"+singular+"s")
}

// warm waits until each way answers from a cache, so that later writes are in the cache's history. While a
// cache is filled, reads may pass through.
func warm(t testing.TB, ways []*target, uris ...string) {
	t.Helper()
	for _, way := range ways {
		for _, uri := range uris {
			way.warmAs(t, uri, jsonType)
		}
	}
}

// warmAs waits until a list is answered from the cache of each form.
func (d *target) warmAs(t testing.TB, uri string, forms ...string) {
	t.Helper()
	for _, form := range forms {
		steady.Until(t, fmt.Sprintf("answer from %s's cache of %s as %s", d.name, uri, form), func() error {
			resp, err := d.look(uri+"?resourceVersion=0", accept(form))
			if err == nil && (resp.status != http.StatusOK || !proxytest.FromCache(resp.header)) {
				err = fmt.Errorf("%d", resp.status)
			}
			return err
		})
	}
}

// awaitWrite waits until the cache of each form of a collection holds the write that made resourceVersion rv.
// Before that, a list as of exactly rv may pass through.
func (d *target) awaitWrite(t testing.TB, uri string, rv uint64, forms ...string) {
	t.Helper()
	for _, form := range forms {
		version := strconv.FormatUint(rv, 10)
		written := `"` + version + `"`
		if strings.HasPrefix(form, cborType) {
			written = string(rune(0x40+len(version))) + version
		} else if strings.HasPrefix(form, protoType) { // it is the sixth field of ObjectMeta
			written = string(protowire.AppendString(protowire.AppendTag(nil, 6, protowire.BytesType), version))
		}
		steady.Until(t, fmt.Sprintf("write %d in %s's cache of %s as %s", rv, d.name, uri, form), func() error {
			resp, err := d.try(http.MethodGet, uri+"?resourceVersion=0", accept(form), "")
			if err == nil && (!proxytest.FromCache(resp.header) || !strings.Contains(string(resp.body), written)) {
				err = fmt.Errorf("%d, and it is not there", resp.status)
			}
			return err
		})
	}
}
