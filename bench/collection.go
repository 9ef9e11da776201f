//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
)

// A collection is the objects that the writer updates and the watchers watch. They are the
// ConfigMaps of one namespace. Or
// they are its EndpointSlices (endpoint_slices.go). Or they are all pods (pods.go), of which pod o
// runs on its own node and gets a new status.
//
// Writes have numbers. From a number a watcher knows the object, and whether it has missed a write:
// the n-th write of object o (its creation is the 0th) has number n × objects + o.
type collection struct {
	namespace string // "" for pods
	slices    bool   // EndpointSlices, and not ConfigMaps
	objects   int
	pad       int // bytes of payload in each ConfigMap
}

// The objects of a collection.
const (
	objectConfigMaps = "configmaps"
	objectPods       = "pods"
	objectSlices     = "endpointslices"
)

var objects = []string{objectConfigMaps, objectPods, objectSlices}

// newCollection returns a collection of so many ConfigMaps or pods, or of EndpointSlices.
func newCollection(object string, configMaps, pods int) *collection {
	switch object {
	case objectPods:
		return &collection{objects: pods}
	case objectSlices:
		return &collection{namespace: slicesSpace, slices: true, objects: slicesObjects}
	}
	return &collection{namespace: "bench", objects: configMaps}
}

// path returns the path to list and watch.
func (c *collection) path() string {
	switch {
	case c.pods():
		return podsPath
	case c.slices:
		return "/apis/discovery.k8s.io/v1/namespaces/" + c.namespace + "/endpointslices"
	}
	return "/api/v1/namespaces/" + c.namespace + "/configmaps"
}

func (c *collection) pods() bool { return c.namespace == "" }

// objectPath returns the path to update object o.
func (c *collection) objectPath(o int) string {
	if c.pods() {
		return newPod(o).statusPath()
	}
	return c.path() + "/" + objectName(o)
}

// objectName is the name of the o-th ConfigMap or EndpointSlice.
func objectName(o int) string { return fmt.Sprintf("object-%04d", o) }

// node returns the node of pod o.
func (c *collection) node(o int) string { return fmt.Sprintf("node-%05d", o) }

// body returns object o after write number seq. A ConfigMap's length is the same for all numbers of
// up to ten digits, except for the annotation.
func (c *collection) body(o int, seq uint64) string {
	switch {
	case c.pods():
		return newPod(o).on(c.node(o)).written(seq, int(seq)/c.objects).json
	case c.slices:
		return endpointSlice(objectName(o), o, seq, int(seq)/c.objects)
	}
	return fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"%s","namespace":"%s",`+
		`"labels":{"app":"bench","group":"g%d"},"annotations":{"%s":"%d"}},"data":{"pad":"%010d%s"}}`,
		objectName(o), c.namespace, o%10, seqAnnotation, seq, seq, strings.Repeat("x", c.pad))
}

// A filter is the selector of a watcher, and the objects that match it.
type filter struct {
	query string // in the watch's URL: "" or "&labelSelector=…"
	match func(object int) bool
}

var everything = filter{match: func(int) bool { return true }}

// fieldQuery returns the query of a field selector.
func fieldQuery(name, value string) string {
	return "&fieldSelector=" + url.QueryEscape(name+"="+value)
}

// labelQuery returns the query of a label selector.
func labelQuery(selector string) string { return "&labelSelector=" + url.QueryEscape(selector) }

// nodeFilters returns the filters of n kubelets. Each watches the pods of its own node; pod o is on
// node o.
func (c *collection) nodeFilters(n int) []filter {
	filters := make([]filter, n)
	for i := range filters {
		filters[i] = filter{fieldQuery("spec.nodeName", c.node(i)), func(o int) bool { return o == i }}
	}
	return filters
}

// listVersion lists the collection at an endpoint, as a client does before its watch, and returns
// the list's resourceVersion.
func listVersion(ctx context.Context, e endpoint, coll *collection) (string, error) {
	body, err := e.get(ctx, coll.path())
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
	if len(list.Items) != coll.objects {
		return "", fmt.Errorf("list %s: %d objects, want %d", coll.path(), len(list.Items), coll.objects)
	}
	return list.Metadata.ResourceVersion, nil
}
