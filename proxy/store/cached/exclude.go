package cached

import (
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
)

var (
	// resourceName is the form of a name in --resident-resources; see upstream.Discovery.Resolve.
	resourceName = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)*(/[a-z0-9.-]+){0,2}$`)
	// excludedName is the form of a name in --exclude.
	excludedName = regexp.MustCompile(`^\*(\.[a-z0-9-]+)+$|` + resourceName.String())
)

// excluded reports whether --exclude names the resource.
func (o *Options) excluded(gvr schema.GroupVersionResource) bool {
	return slices.ContainsFunc(o.Exclude, func(name string) bool { return excludes(name, gvr.GroupResource()) })
}

// excludes reports whether a name of --exclude matches the resource. An ambiguous name matches more
// rather than less, because passing through is always right. A name matches all versions, because
// they hold the same objects. A name without a group matches all groups.
//
//	pods            of any group             v1/pods               of the core group
//	pods.example.com, pods.v1.example.com    example.com/v1/pods   of that group
//	*.example.com   all of that group
func excludes(name string, resource schema.GroupResource) bool {
	if strings.Contains(name, "/") {
		return resource == residentName(name)
	}
	name, group, grouped := strings.Cut(name, ".")
	if name != "*" && name != resource.Resource {
		return false
	}
	if version, of, versioned := strings.Cut(group, "."); versioned && upstream.APIVersion(version) && of == resource.Group {
		return true
	}
	return !grouped || group == resource.Group
}

// residentName parses a name of --resident-resources without asking kube-apiserver. A version in a
// dotted name remains part of the group.
func residentName(name string) schema.GroupResource {
	switch parts := strings.Split(name, "/"); len(parts) {
	case 2:
		return schema.GroupResource{Resource: parts[1]}
	case 3:
		return schema.GroupResource{Group: parts[0], Resource: parts[2]}
	}
	resource, group, _ := strings.Cut(name, ".")
	return schema.GroupResource{Group: group, Resource: resource}
}

// isSecrets reports whether the resource is Secrets.
func isSecrets(resource schema.GroupResource) bool {
	return resource == schema.GroupResource{Resource: "secrets"}
}

// maxNames is the maximum length of the names of a group, a version and a resource together, in
// bytes. Each is a DNS name, or a part of one.
const maxNames = 3 * 253

// neverCached returns why the read is never answered from a cache, "" if it may be. A client with the
// proxy's own rights never reads Secrets from a cache. Its reads need no review, and kube-apiserver
// must authorize and audit each read of Secrets.
func (c *Reads) neverCached(r *read) request.Reason {
	switch {
	case len(r.GVR.Group)+len(r.GVR.Version)+len(r.GVR.Resource) > maxNames:
		return request.Resource // no such resource exists; its name is not remembered
	case c.opts.excluded(r.GVR), r.id.Kind == auth.KindOwn && isSecrets(r.GVR.GroupResource()):
		return request.Excluded
	}
	return r.Unserved()
}
