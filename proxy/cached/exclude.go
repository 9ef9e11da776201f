package cached

import (
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/auth"
	"github.com/watchfan/watchfan/proxy/upstream"
)

var (
	// resourceName is how --resident-resources names a resource; see discovery.resolve.
	resourceName = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)*(/[a-z0-9.-]+){0,2}$`)
	// excludedName is how --exclude does.
	excludedName = regexp.MustCompile(`^\*(\.[a-z0-9-]+)+$|` + resourceName.String())
)

// excluded reports whether --exclude names the resource.
func (o *Options) excluded(gvr schema.GroupVersionResource) bool {
	return slices.ContainsFunc(o.Exclude, func(name string) bool { return excludes(name, gvr.GroupResource()) })
}

// excludes reports whether one name of --exclude is the resource's. Where it leaves open what it
// means it means more rather than less, because to pass through is always right: all versions,
// which hold the same objects, and without a group all groups.
//
//	pods            of any group             v1/pods               of the core group
//	pods.example.com, pods.v1.example.com    example.com/v1/pods   of that group
//	*.example.com   all of that group
func excludes(name string, resource schema.GroupResource) bool {
	if parts := strings.Split(name, "/"); len(parts) == 2 {
		return resource == schema.GroupResource{Resource: parts[1]}
	} else if len(parts) == 3 {
		return resource == schema.GroupResource{Group: parts[0], Resource: parts[2]}
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

// residentName reads a name of --resident-resources as far as can be done without asking
// kube-apiserver: what is dotted may hold a version, which stays a part of the group.
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

// maxNames is how long the names of a group, a version and a resource can be together, in bytes:
// each is a DNS name, or a part of one.
const maxNames = 3 * 253

// mayBeCached reports whether the read may be answered from a cache at all. Secrets are not read
// from a cache with the proxy's own rights: nobody is asked then whether the client may read them,
// so that kube-apiserver is to say it, and to write it down.
func (c *Reads) mayBeCached(r *read) bool {
	resource := r.GVR.GroupResource()
	if len(r.GVR.Group)+len(r.GVR.Version)+len(r.GVR.Resource) > maxNames {
		return false // there is no such resource, and its name is not worth remembering
	}
	return r.Served() && !c.opts.excluded(r.GVR) && (r.id.Kind != auth.KindOwn || !isSecrets(resource))
}
