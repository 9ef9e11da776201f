package request

import "k8s.io/apimachinery/pkg/runtime/schema"

// ResourceText returns a resource's name in the form of logs and messages: apps/v1/deployments.
func ResourceText(gvr schema.GroupVersionResource) string {
	if gvr.Group == "" {
		return gvr.Version + "/" + gvr.Resource
	}
	return gvr.Group + "/" + gvr.Version + "/" + gvr.Resource
}
