//testlint:allow timeout whole answers to watches are compared

package e2e_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
)

const (
	cborType     = "application/cbor"
	cborPartials = cborType + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// cborItems returns the items of a sequence as clients of Kubernetes read them.
func cborItems(sequence []byte) (items []any, err error) {
	for len(sequence) > 0 {
		var item cbor.RawMessage
		if sequence, err = cbor.UnmarshalFirst(sequence, &item); err != nil {
			return items, err
		}
		var v any
		if err := direct.Unmarshal(item, &v); err != nil {
			return items, err
		}
		items = append(items, v)
	}
	return items, nil
}

// at returns the value at a path in v, nil if there is none.
func at(v any, path ...string) any {
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// normalCBOR returns a list, an object or a watch with its maps in order and without what may
// differ between two answers.
func normalCBOR(b []byte) []byte {
	items, err := cborItems(b)
	if err != nil {
		return fmt.Appendf(nil, "%v: %x", err, b)
	}
	var normal [][]byte
	ended := false
	for _, v := range items {
		var metadata map[string]any
		switch {
		case at(v, "type") == "BOOKMARK":
			metadata, _ = at(v, "object", "metadata").(map[string]any)
		case at(v, "kind") != nil && strings.HasSuffix(at(v, "kind").(string), "List"):
			metadata, _ = at(v, "metadata").(map[string]any)
		}
		if metadata != nil {
			metadata["resourceVersion"] = "RV"
		}
		if token, _ := metadata["continue"].(string); token != "" {
			var fields map[string]any
			raw, _ := base64.RawURLEncoding.DecodeString(token)
			if json.Unmarshal(raw, &fields) == nil {
				metadata["continue"] = fmt.Sprint(fields["v"], fields["start"])
			}
		}
		if m, ok := v.(map[string]any); ok && m["kind"] == "Status" {
			m["message"] = currentRV.ReplaceAllString(fmt.Sprint(m["message"]), "current: N")
		}
		line, err := direct.Marshal(v)
		if err != nil {
			line = []byte(err.Error())
		}
		end := at(v, "type") == "BOOKMARK"
		if !end || !ended && at(v, "object", "metadata", "annotations") != nil { // as in normalLines
			normal = append(normal, line)
			ended = ended || end
		}
	}
	return bytes.Join(normal, []byte("\n"))
}

// TestCBOR: where kube-apiserver offers CBOR (feature gate CBORServingAndStorage), watchfan serves
// it like JSON and protobuf.
func TestCBOR(t *testing.T) {
	parallel(t)
	c := privateCluster(t, append([]string{"--apiserver-arg", "feature-gates=CBORServingAndStorage=true"}, endWatches...)...)
	makeFixtures(t, c.direct(t))
	p := privateWatchfan(t, c)
	p.waitReady(t)
	t.Run("reads", func(t *testing.T) { testCBORReads(t, c, p) })
	t.Run("watches", func(t *testing.T) { runScenarios(t, "testdata/scenarios/cbor", c, p) })
	if n := p.admin(t).metric(t, "watchfan_passthrough_requests_total", `verb="watch"`); n != 0 {
		t.Errorf("%v watches were passed through", n)
	}
	// A restarted kube-apiserver remembers nothing, and neither does another watchfan.
	c.restart(t)
	row{uri: "/api/v1/configmaps?watch=1&resourceVersion=1&timeoutSeconds=5", header: accept(cborType)}.
		check(t, c.direct(t), privateWatchfan(t, c).plain(t))
}

func testCBORReads(t *testing.T, c *cluster, p *watchfan) {
	const all = "/api/v1/configmaps"
	direct, way := c.direct(t), p.plain(t)
	for _, uri := range []string{all, "/apis/ex.io/v1/foos", "/apis/apps/v1/controllerrevisions"} { // a lane may know no older resourceVersions than its own
		way.warmAs(t, uri, cborType, cborPartials)
	}
	now, pages := direct.version(t, all), pagesOf(t, direct, all+"?limit=2")
	_, token, _ := strings.Cut(pages[0], "&continue=")
	// The caches hold a write that is newer than the token. A proof that the objects have not changed would tell them
	// one newer resourceVersion, and not those before it.
	way.awaitWrite(t, all, makeConfigMap(t, direct, "a", "at-least", ""), cborType, cborPartials)
	foo := direct.create(t, "/apis/ex.io/v1/namespaces/a/foos", `{"apiVersion":"ex.io/v1","kind":"Foo","metadata":{"name":"f3"}}`)
	way.awaitWrite(t, "/apis/ex.io/v1/foos", foo, cborType, cborPartials)
	rows := requests(t, "cbor", map[string]string{"NOW": fmt.Sprint(now), "FOO": fmt.Sprint(foo), "TOKEN": token})
	checkAll(t, rows, direct, p.ways(t, c.token(t, "admin"))...)
}

// TestCBORNotOffered: where kube-apiserver does not offer CBOR, a client that asks for it gets its
// next choice from the cache, or 406.
func TestCBORNotOffered(t *testing.T) {
	parallel(t)
	c, p := quietCluster(t)
	d, way := c.direct(t), p.plain(t)
	const configMaps, foos = "/api/v1/namespaces/a/configmaps", "/apis/ex.io/v1/namespaces/a/foos"
	// Reads and short watches pass through or are refused while their caches are filled.
	way.warmAs(t, configMaps, jsonType, protoType, partials)
	way.warmAs(t, foos, jsonType, partials)
	checkAll(t, requests(t, "no-cbor", map[string]string{"NOW": fmt.Sprint(d.version(t, configMaps))}), d, way)
}
