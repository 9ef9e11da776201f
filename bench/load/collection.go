package load

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
)

// A Collection is the objects that the writer updates and the watchers watch: the ConfigMaps of one
// namespace, or all pods (pods.go), of which pod o runs on its own node and gets a new status.
//
// Writes have numbers. From a number a watcher knows the object, and whether it has missed a write:
// the n-th write of object o (its creation is the 0th) has number n × objects + o.
type Collection struct {
	Namespace string // "" for pods
	Objects   int
	pad       int // bytes of payload in each ConfigMap
}

// The objects of a collection.
const (
	ObjectConfigMaps = "configmaps"
	ObjectPods       = "pods"
)

var Objects = []string{ObjectConfigMaps, ObjectPods}

// NewCollection returns a collection of so many ConfigMaps or pods.
func NewCollection(object string, configMaps, pods int) *Collection {
	if object == ObjectPods {
		return &Collection{Objects: pods}
	}
	return &Collection{Namespace: "bench", Objects: configMaps}
}

// Path returns the path to list and watch.
func (c *Collection) Path() string {
	if c.pods() {
		return PodsPath
	}
	return "/api/v1/namespaces/" + c.Namespace + "/configmaps"
}

func (c *Collection) pods() bool { return c.Namespace == "" }

// ObjectPath returns the path to update object o.
func (c *Collection) ObjectPath(o int) string {
	if c.pods() {
		return NewPod(o).statusPath()
	}
	return c.Path() + "/" + objectName(o)
}

func objectName(o int) string { return fmt.Sprintf("object-%04d", o) }

func (c *Collection) node(o int) string { return fmt.Sprintf("node-%05d", o) }

// body returns object o after write number seq. A ConfigMap's length is the same for all numbers of
// up to ten digits, except for the annotation.
func (c *Collection) body(o int, seq uint64) string {
	if c.pods() {
		return NewPod(o).On(c.node(o)).written(seq, int(seq)/c.Objects).Json
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
	body, err := e.Get(ctx, coll.Path())
	if err != nil {
		return "", err
	}
	var list struct {
		Metadata struct{ ResourceVersion string }
		Items    []json.RawMessage
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return "", fmt.Errorf("list %s: %w", coll.Path(), err)
	}
	if len(list.Items) != coll.Objects {
		return "", fmt.Errorf("list %s: %d objects, want %d", coll.Path(), len(list.Items), coll.Objects)
	}
	return list.Metadata.ResourceVersion, nil
}
