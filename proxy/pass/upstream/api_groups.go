package upstream

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

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

// The resources that define custom resources, and that name the server of each API group.
var (
	CRDResource         = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	APIServicesResource = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
)
