package upstream

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/watchfan/watchfan/framing"
)

// Definition holds the parts of one CustomResourceDefinition that the proxy uses.
type Definition struct {
	// Immutable.
	uid           types.UID
	Generation    int64  // counts changes of the spec
	scope         string // Namespaced or Cluster
	acceptedNames string // JSON
	Versions      map[string]DefinedVersion
	Gone          bool      // it was deleted or can't be read: the proxy serves nothing of it
	Seen          time.Time // when the proxy first read it
	Settled       time.Time // when kube-apiserver is taken to serve it; zero for the first one seen of a resource

	Object *framing.Object // the object that it was last read from; guarded by registry.CRDWatcher.mu
}

// DefinedVersion is one version of a custom resource.
type DefinedVersion struct {
	Served bool
	fields []framing.Field
}

// fields returns the selectable fields of a version; d may be nil.
func (d *Definition) fields(version string) []framing.Field {
	if d == nil {
		return nil
	}
	return d.Versions[version].fields
}

// Fits reports whether discovery has described the resource as it is defined. What it said before a
// resource was deleted and created again may be of another scope.
func (d *Definition) Fits(info ResourceInfo) bool {
	return d.scope == "" || (d.scope == "Namespaced") == info.Namespaced
}

// Equal reports whether kube-apiserver keeps its storage of the resource when d replaces e.
func (d *Definition) Equal(e *Definition) bool {
	return d.uid == e.uid && d.Generation == e.Generation && d.acceptedNames == e.acceptedNames && d.Gone == e.Gone
}

// storage identifies the storage that kube-apiserver has of the resource: it is the same for equal definitions. It is
// "" for no definition; d may be nil.
func (d *Definition) storage() string {
	if d == nil {
		return ""
	}
	return fmt.Sprintf("%s %d %s", d.uid, d.Generation, d.acceptedNames)
}

// ParseDefinition reads a CustomResourceDefinition (apiextensions.k8s.io/v1).
func ParseDefinition(raw []byte) (*Definition, error) {
	var crd struct {
		Metadata struct {
			UID        types.UID `json:"uid"`
			Generation int64     `json:"generation"`
		} `json:"metadata"`
		Spec struct {
			Scope    string `json:"scope"`
			Versions []struct {
				Name             string `json:"name"`
				Served           bool   `json:"served"`
				SelectableFields []struct {
					JSONPath string `json:"jsonPath"`
				} `json:"selectableFields"`
			} `json:"versions"`
		} `json:"spec"`
		Status struct {
			AcceptedNames json.RawMessage `json:"acceptedNames"`
		} `json:"status"`
	}
	if err := json.Unmarshal(raw, &crd); err != nil {
		return nil, fmt.Errorf("read CustomResourceDefinition: %w", err)
	}
	d := &Definition{
		uid:           crd.Metadata.UID,
		Generation:    crd.Metadata.Generation,
		scope:         crd.Spec.Scope,
		acceptedNames: string(crd.Status.AcceptedNames),
		Versions:      make(map[string]DefinedVersion, len(crd.Spec.Versions)),
	}
	for _, v := range crd.Spec.Versions {
		dv := DefinedVersion{Served: v.Served}
		for _, f := range v.SelectableFields {
			if field, ok := selectableField(f.JSONPath); ok {
				dv.fields = append(dv.fields, field)
			}
		}
		d.Versions[v.Name] = dv
	}
	return d, nil
}

// selectableField returns the field at a simple JSON path such as .spec.color. kube-apiserver
// accepts no other paths there. selectableField reports false for names that have a meaning in a
// JSON path, or could be escaped in JSON. Requests that select by those are passed through.
//
// The field's value is the text in the object's JSON. kube-apiserver compares with the same value
// as long as the object fits the definition's schema: a string, an integer of 64 bits or a boolean.
func selectableField(jsonPath string) (framing.Field, bool) {
	path, dotted := strings.CutPrefix(jsonPath, ".")
	if !dotted {
		return framing.Field{}, false
	}
	for name := range strings.SplitSeq(path, ".") {
		if !plainName(name) {
			return framing.Field{}, false
		}
	}
	return fieldAt(path, "", at(path)), true
}

// inPlainNames are the characters of names that mean the same in JSON and in a JSON path.
const inPlainNames = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

func plainName(s string) bool { return s != "" && strings.Trim(s, inPlainNames) == "" }

// BuiltIn reports whether the group is compiled into kube-apiserver; see ownGroups. Kubernetes 1.22
// removed "extensions".
func BuiltIn(group string) bool {
	switch group {
	case "", "apps", "autoscaling", "batch", "policy", "extensions":
		return true
	}
	return ownGroups[group]
}

// ownGroups are the API groups that kube-apiserver serves itself (k8s.io/kubernetes pkg/apis) and
// whose names have a dot, as the groups of all custom resources have.
var ownGroups = func() map[string]bool {
	groups := make(map[string]bool)
	for _, name := range []string{
		"admissionregistration", "apiextensions", "apiregistration", "authentication", "authorization", "certificates",
		"coordination", "discovery", "events", "flowcontrol.apiserver", "internal.apiserver", "networking", "node",
		"rbac.authorization", "resource", "scheduling", "storage", "storagemigration",
	} {
		groups[name+".k8s.io"] = true
	}
	return groups
}()

// MayBeCustom reports whether a resource of the group may have a CustomResourceDefinition.
func MayBeCustom(group string) bool { return strings.Contains(group, ".") && !ownGroups[group] }

// The resources that define custom resources, that name the server of each API group, and by whose labels
// objects are chosen.
var (
	NamespacesResource  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	CRDResource         = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	APIServicesResource = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
)
