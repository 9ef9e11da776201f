package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
)

// replicas starts watchfans with one certificate, each of which has those before it as siblings.
func replicas(t *testing.T, c *cluster) (next func(flags ...string) *watchfan) {
	t.Helper()
	certFile, keyFile, err := downstream.SelfSigned(filepath.Join(t.TempDir(), "tier"))
	if err != nil {
		t.Fatal(err)
	}
	siblings := ""
	return func(flags ...string) *watchfan {
		t.Helper()
		args := append([]string{"--tls-cert-file=" + certFile, "--tls-private-key-file=" + keyFile}, flags...)
		if siblings != "" {
			args = append(args, "--seed-from="+siblings[1:])
		}
		p := privateWatchfan(t, c, args...)
		p.waitReady(t)
		siblings += "," + p.Ports.Secure
		return p
	}
}

// TestSeeds: the second and the third replica list nothing at kube-apiserver. Each has one watch
// there. What they serve is kube-apiserver's, to the byte, in each representation.
func TestSeeds(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "seeds")
	createCRD(t, direct, "seeds.example.com", "Seedling", "Namespaced") // only this test asks for it
	const seedlings, configMaps = "/apis/seeds.example.com/v1/namespaces/seeds/seedlings", "/api/v1/namespaces/seeds/configmaps"
	for i := range 300 {
		direct.create(t, seedlings, fmt.Sprintf(
			`{"apiVersion":"seeds.example.com/v1","kind":"Seedling","metadata":{"name":"s%03d"},"spec":{"n":%d}}`, i, i))
		if i < 20 {
			direct.create(t, configMaps, fmt.Sprintf(
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c%d"},"data":{"k":"<&>é😀"}}`, i))
		}
	}
	// Without the schema, replicas do not know that the same build answers all of them.
	steady.Until(t, "resource's schema", func() error {
		if resp := direct.get(t, "/openapi/v3"); !bytes.Contains(resp.body, []byte("apis/seeds.example.com/v1")) {
			return fmt.Errorf("%d bytes without it", len(resp.body))
		}
		return nil
	})
	next := replicas(t, c)
	first := next()
	sameLists(t, first, direct, seedlings, "s000", jsonType, partials)
	sameLists(t, first, direct, configMaps, "c0", jsonType, protoType, partials, partialsProto)
	before := listed(t, direct, "seedlings")
	for range 2 {
		p := next("--resident-resources=configmaps")
		sameLists(t, p, direct, seedlings, "s000", jsonType, partials)
		sameLists(t, p, direct, configMaps, "c0", jsonType, protoType, partials, partialsProto)
		admin := p.admin(t)
		filled := admin.metric(t, "watchfan_lanes_filled_total", `source="sibling"`)
		others := admin.metric(t, "watchfan_lanes_filled_total", `source="upstream"`)
		if filled < 6 || others != 0 {
			t.Errorf("%v lanes were filled by siblings and %v by kube-apiserver", filled, others)
		}
		if n := admin.metric(t, "watchfan_upstream_watches", `resource="seedlings"`, `encoding="json"`); n != 1 {
			t.Errorf("%v watches upstream", n)
		}
	}
	if n := listed(t, direct, "seedlings") - before; n != 0 {
		t.Errorf("the second and the third replica listed %v times", n)
	}
}

// TestCacheDir: a watchfan that is killed goes on where its files end. It lists nothing at kube-apiserver, and
// what has been written meanwhile is not missing.
func TestCacheDir(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "kept")
	createCRD(t, direct, "kept.example.com", "Keeping", "Namespaced") // only this test asks for it
	const uri = "/apis/kept.example.com/v1/namespaces/kept/keepings"
	object := func(n int) string {
		return fmt.Sprintf(`{"apiVersion":"kept.example.com/v1","kind":"Keeping","metadata":{"name":"k%03d"},"spec":{"n":%d}}`, n, n)
	}
	for i := range 300 {
		direct.create(t, uri, object(i))
	}
	certFile, keyFile, err := downstream.SelfSigned(filepath.Join(t.TempDir(), "tier"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	start := func() *watchfan {
		p := mortalWatchfan(t, binary(t, "WATCHFAN_BIN", "watchfan"), c, "--cache-dir="+dir, "--tls-cert-file="+certFile,
			"--tls-private-key-file="+keyFile)
		p.waitReady(t)
		sameLists(t, p, direct, uri, "k000", jsonType, partials)
		sameLists(t, p, direct, "/api/v1/namespaces/kept/configmaps", "c", protoType)
		return p
	}
	direct.create(t, "/api/v1/namespaces/kept/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`)
	p := start()
	for _, lane := range []string{"kept.example.com_v1_keepings_json", "kept.example.com_v1_keepings_json-metadata-v1", "v1_configmaps_protobuf"} {
		steady.Until(t, "file of "+lane, func() error {
			_, err := os.Stat(filepath.Join(dir, lane+".watch"))
			return err
		})
	}
	p.kill()
	direct.create(t, uri, object(300))
	direct.remove(t, uri+"/k001")
	before := listed(t, direct, "keepings")
	admin := start().admin(t)
	if n := listed(t, direct, "keepings") - before; n != 0 {
		t.Errorf("watchfan listed %v times", n)
	}
	for source, want := range map[string]float64{"disk": 3, "upstream": 0} {
		if n := admin.metric(t, "watchfan_lanes_filled_total", `source="`+source+`"`); n < want || want == 0 && n > 0 {
			t.Errorf("%v lanes were filled from %s", n, source)
		}
	}
}

// listed counts the lists of a whole collection at kube-apiserver.
func listed(t *testing.T, direct *target, resource string) float64 {
	t.Helper()
	of := fmt.Sprintf("resource=%q", resource)
	return direct.metric(t, "apiserver_request_total", of, `verb="LIST"`, `scope="cluster"`) +
		direct.metric(t, "apiserver_request_total", of, `verb="WATCHLIST"`)
}

const partialsProto = protoType + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

// sameLists compares lists of p's caches with kube-apiserver's, in several forms, after a write to
// the object of a name.
func sameLists(t *testing.T, p *watchfan, direct *target, uri, name string, forms ...string) {
	t.Helper()
	plain := p.plain(t)
	plain.warmAs(t, uri, forms...)
	rv := direct.patch(t, uri+"/"+name, fmt.Sprintf(`{"metadata":{"annotations":{"of":%q}}}`, p.Ports.Secure))
	plain.awaitWrite(t, uri, rv, forms...)
	for _, form := range forms {
		row{uri: fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact", uri, rv), header: accept(form), cached: true}.check(t, direct, plain)
	}
}
