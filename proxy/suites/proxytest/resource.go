package proxytest

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Resource is one resource of a Server.
type Resource struct {
	Group, Version, Name, Kind string
}

// The resources of every Server: a built-in one, whose lists omit the kind and apiVersion of their
// items; a custom one, whose members are sorted; and events, which has no watch cache.
var (
	ConfigMaps = Resource{Version: "v1", Name: "configmaps", Kind: "ConfigMap"}
	Foos       = Resource{Group: "ex.io", Version: "v1", Name: "foos", Kind: "Foo"}
	Events     = Resource{Version: "v1", Name: "events", Kind: "Event"}

	// Definitions is the resource that says which resources are custom; see Server.Add.
	Definitions = Resource{Group: "apiextensions.k8s.io", Version: "v1", Name: "customresourcedefinitions",
		Kind: "CustomResourceDefinition"}
)

// Path returns the path of the whole collection.
func (r Resource) Path() string {
	if r.Group == "" {
		return "/api/" + r.Version + "/" + r.Name
	}
	return "/apis/" + r.Group + "/" + r.Version + "/" + r.Name
}

func (r Resource) apiVersion() string { return strings.TrimPrefix(r.Group+"/"+r.Version, "/") }

// object is one version of an object.
type object struct {
	namespace, name, uid string
	labels               map[string]string
	data                 string
	rv                   uint64

	generation int    // 0 for none
	members    string // instead of data: members, as JSON

	typed Typed // instead of all of it; nil for none
}

func (o object) key() string {
	if o.namespace == "" {
		return o.name
	}
	return o.namespace + "/" + o.name
}

// json returns the object as r's watch sends it or, if item is true, as a list has it.
func (o object) json(r Resource, item bool) string {
	if o.typed != nil {
		return o.typedJSON(item)
	}
	labels := ""
	if len(o.labels) > 0 {
		b, _ := json.Marshal(o.labels) // a map of strings
		labels = `"labels":` + string(b) + `,`
	}
	namespace, data := fmt.Sprintf(`"namespace":%q,`, o.namespace), fmt.Sprintf(`"data":{"v":%q}`, o.data)
	if o.members != "" {
		namespace, data = fmt.Sprintf(`"generation":%d,`, o.generation), o.members
	}
	meta := fmt.Sprintf(`"metadata":{%s"name":%q,%s"resourceVersion":"%d","uid":%q}`, labels,
		o.name, namespace, o.rv, o.uid)
	switch {
	case r.Group != "":
		return fmt.Sprintf(`{"apiVersion":%q,%s,"kind":%q,%s}`, r.apiVersion(), data, r.Kind, meta)
	case item:
		return fmt.Sprintf(`{%s,%s}`, meta, data)
	}
	return fmt.Sprintf(`{"kind":%q,"apiVersion":%q,%s,%s}`, r.Kind, r.apiVersion(), meta, data)
}

type change struct {
	kind string
	object
}

func (ch change) line(r Resource) string {
	return fmt.Sprintf("{\"type\":%q,\"object\":%s}\n", ch.kind, ch.json(r, false))
}

// Bookmark returns the line of a bookmark.
func (r Resource) Bookmark(rv uint64, end bool) string {
	annotations := ""
	if end {
		annotations = `,"annotations":{"k8s.io/initial-events-end":"true"}`
	}
	if r.Group != "" {
		annotations = strings.TrimPrefix(annotations, ",")
		if annotations != "" {
			annotations += ","
		}
		return fmt.Sprintf("{\"type\":\"BOOKMARK\",\"object\":{\"apiVersion\":%q,\"kind\":%q,\"metadata\":{%s\"resourceVersion\":\"%d\"}}}\n",
			r.apiVersion(), r.Kind, annotations, rv)
	}
	return fmt.Sprintf("{\"type\":\"BOOKMARK\",\"object\":{\"kind\":%q,\"apiVersion\":%q,\"metadata\":{\"resourceVersion\":\"%d\"%s}}}\n",
		r.Kind, r.apiVersion(), rv, annotations)
}

// Event returns the line of an event. The collection need not have the object.
func (r Resource) Event(kind, namespace, name string, rv uint64) string {
	return change{kind, object{namespace: namespace, name: name, uid: "u0", rv: rv}}.line(r)
}

// ListBody returns a list of the resource.
func (r Resource) ListBody(rv, next string, items ...string) string {
	if r.Group != "" {
		return fmt.Sprintf("{\"apiVersion\":%q,\"items\":[%s],\"kind\":\"%sList\",\"metadata\":{\"continue\":%q,\"resourceVersion\":%q}}\n",
			r.apiVersion(), strings.Join(items, ","), r.Kind, next, rv)
	}
	if next != "" {
		next = fmt.Sprintf(`,"continue":%q`, next)
	}
	return fmt.Sprintf("{\"kind\":\"%sList\",\"apiVersion\":%q,\"metadata\":{\"resourceVersion\":%q%s},\"items\":[%s]}\n",
		r.Kind, r.apiVersion(), rv, next, strings.Join(items, ","))
}
