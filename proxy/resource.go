package proxy

import "k8s.io/apimachinery/pkg/runtime/schema"

// resourceText returns a resource's name, as logs and messages write it: apps/v1/deployments.
func resourceText(gvr schema.GroupVersionResource) string {
	if gvr.Group == "" {
		return gvr.Version + "/" + gvr.Resource
	}
	return gvr.Group + "/" + gvr.Version + "/" + gvr.Resource
}
