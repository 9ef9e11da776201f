//go:build linux

package load

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
)

// A Collection is the objects that the writer updates and the watchers watch: the ConfigMaps of one
// namespace, its EndpointSlices, or all pods (pods.go), of which pod o runs on its own node and gets a
// new status.
//
// Writes have numbers. From a number a watcher knows the object, and whether it has missed a write:
// the n-th write of object o (its creation is the 0th) has number n × objects + o.
type Collection struct {
	Namespace string // "" for pods
	slices    bool   // EndpointSlices, and not ConfigMaps
	Objects   int
	pad       int // bytes of payload in each ConfigMap
}

// The objects of a collection.
const (
	ObjectConfigMaps = "configmaps"
	ObjectPods       = "pods"
	ObjectSlices     = "endpointslices"
)

var Objects = []string{ObjectConfigMaps, ObjectPods, ObjectSlices}

// NewCollection returns a collection of so many ConfigMaps or pods, or of EndpointSlices.
func NewCollection(object string, configMaps, pods int) *Collection {
	switch object {
	case ObjectPods:
		return &Collection{Objects: pods}
	case ObjectSlices:
		return &Collection{Namespace: slicesSpace, slices: true, Objects: slicesObjects}
	}
	return &Collection{Namespace: "bench", Objects: configMaps}
}

// path returns the path to list and watch.
func (c *Collection) path() string {
	switch {
	case c.pods():
		return PodsPath
	case c.slices:
		return "/apis/discovery.k8s.io/v1/namespaces/" + c.Namespace + "/endpointslices"
	}
	return "/api/v1/namespaces/" + c.Namespace + "/configmaps"
}

func (c *Collection) pods() bool { return c.Namespace == "" }

// objectPath returns the path to update object o.
func (c *Collection) objectPath(o int) string {
	if c.pods() {
		return NewPod(o).statusPath()
	}
	return c.path() + "/" + objectName(o)
}

// objectName is the name of the o-th ConfigMap or EndpointSlice.
func objectName(o int) string { return fmt.Sprintf("object-%04d", o) }

// node returns the node of pod o.
func (c *Collection) node(o int) string { return fmt.Sprintf("node-%05d", o) }

// body returns object o after write number seq. A ConfigMap's length is the same for all numbers of
// up to ten digits, except for the annotation.
func (c *Collection) body(o int, seq uint64) string {
	switch {
	case c.pods():
		return NewPod(o).On(c.node(o)).written(seq, int(seq)/c.Objects).Json
	case c.slices:
		return endpointSlice(objectName(o), o, seq, int(seq)/c.Objects)
	}
	return fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"%s","namespace":"%s",`+
		`"labels":{"app":"bench","group":"g%d"},"annotations":{"%s":"%d"}},"data":{"pad":"%010d%s"}}`,
		objectName(o), c.Namespace, o%10, seqAnnotation, seq, seq, strings.Repeat("x", c.pad))
}

// A Filter is the selector of a watcher, and the objects that match it.
type Filter struct {
	query string // in the watch's URL: "" or "&labelSelector=…"
	match func(object int) bool
}

var Everything = Filter{match: func(int) bool { return true }}

// FieldQuery returns the query of a field selector.
func FieldQuery(name, value string) string {
	return "&fieldSelector=" + url.QueryEscape(name+"="+value)
}

// LabelQuery returns the query of a label selector.
func LabelQuery(selector string) string { return "&labelSelector=" + url.QueryEscape(selector) }

// NodeFilters returns the filters of n kubelets. Each watches the pods of its own node; pod o is on
// node o.
func (c *Collection) NodeFilters(n int) []Filter {
	filters := make([]Filter, n)
	for i := range filters {
		filters[i] = Filter{FieldQuery("spec.nodeName", c.node(i)), func(o int) bool { return o == i }}
	}
	return filters
}

// ListVersion lists the collection at an endpoint, as a client does before its watch, and returns
// the list's resourceVersion.
func ListVersion(ctx context.Context, e Endpoint, coll *Collection) (string, error) {
	body, err := e.Get(ctx, coll.path())
	if err != nil {
		return "", err
	}
	var list struct {
		Metadata struct{ ResourceVersion string }
		Items    []json.RawMessage
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return "", fmt.Errorf("list %s: %w", coll.path(), err)
	}
	if len(list.Items) != coll.Objects {
		return "", fmt.Errorf("list %s: %d objects, want %d", coll.path(), len(list.Items), coll.Objects)
	}
	return list.Metadata.ResourceVersion, nil
}

const (
	slicesSpace    = "slices" // namespace of the EndpointSlices
	slicesObjects  = 200
	sliceEndpoints = 34 // of each, which makes 10 KB of JSON
)

// endpointSlice returns an EndpointSlice after write number seq, the n-th of this object. It has
// the fields that the EndpointSlice controller sets. A rolling update replaces one endpoint after
// the other: each write replaces one, and the others stay as they are.
func endpointSlice(name string, object int, seq uint64, n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":%q,`+
		`"labels":{"kubernetes.io/service-name":"checkout","endpointslice.kubernetes.io/managed-by":"bench"},`+
		`"annotations":{"%s":"%d"}},"addressType":"IPv4","ports":[{"name":"http","port":8080,"protocol":"TCP"}],`+
		`"endpoints":[`, name, seqAnnotation, seq)
	for e := range sliceEndpoints {
		if e > 0 {
			b.WriteByte(',')
		}
		b.WriteString(sliceEndpoint(object*sliceEndpoints+e, replaced(e, n)))
	}
	b.WriteString("]}")
	return b.String()
}

// replaced returns how often endpoint e of a slice has been replaced after n writes. Write 1
// replaces endpoint 0, write 2 endpoint 1, and so on, and then endpoint 0 again.
func replaced(e, n int) int { return (n + sliceEndpoints - 1 - e) / sliceEndpoints }

// sliceEndpoint returns the i-th endpoint of all slices in one generation, the same in every run.
func sliceEndpoint(i, generation int) string {
	r := rand.NewChaCha8(seed(i<<20 | generation))
	return fmt.Sprintf(`{"addresses":["10.%d.%d.%d"],"conditions":{"ready":true,"serving":true,"terminating":false},`+
		`"nodeName":"node-%05d","targetRef":{"kind":"Pod","name":"checkout-6f7d9c8b5-%s","namespace":"%s",`+
		`"uid":"%s-%s-4%s-8%s-%s"},"zone":"zone-%c"}`,
		128+r.Uint64()%100, r.Uint64()%250, 1+r.Uint64()%250, r.Uint64()%5000, hex(r, 3), slicesSpace,
		hex(r, 4), hex(r, 2), hex(r, 2)[1:], hex(r, 2)[1:], hex(r, 6), 'a'+byte(r.Uint64()%3))
}
