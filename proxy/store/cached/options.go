package cached

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/base/option"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
)

// Options defines which resources are cached and how long watches last.
type Options struct {
	// ResidentResources are watched from the start and always. Their names have the form pods,
	// v1/pods or apps/v1/deployments.
	ResidentResources []string
	// Exclude are the resources that are always passed through, in any version. Their names have the
	// form of ResidentResources, or *.GROUP for all of a group. A name without a group matches all
	// groups.
	Exclude []string

	// MinRequestTimeout is the minimum duration of a watch without timeoutSeconds. Each such watch
	// lasts up to twice as long.
	MinRequestTimeout time.Duration

	// Tuning is what tests change and operators do not.
	Tuning Tuning
}

// Tuning is settings that have no flag.
type Tuning struct {
	// MostAlone is how many easy reads of one resource are passed through at a time; see passing.
	MostAlone int
}

// AddTo adds the options to t.
func (o *Options) AddTo(t *option.Table) {
	t.Group("Caching")
	t.Strings(&o.ResidentResources, "resident-resources", "`RESOURCES` to watch from the start and always, "+
		"comma-separated: pods, v1/configmaps, apps/v1/deployments", option.Like(resourceName,
		"is no resource: give plural names such as pods, deployments.apps or apps/v1/deployments"))
	t.Strings(&o.Exclude, "exclude", "`RESOURCES` that are never cached, named likewise or as *.cilium.io",
		option.Like(excludedName, "is no resource: give plural names such as pods, deployments.apps, apps/v1/deployments or *.cilium.io"))

	t.Group("Connections")
	t.Duration(&o.MinRequestTimeout, "min-request-timeout", 30*time.Minute,
		"least `DURATION` of a watch without timeoutSeconds; each gets up to twice that", option.Positive)
}

// Check reports resident resources that could never be served: Secrets that no client could read from
// the cache, and excluded ones. securePort is true if a port gives each client its own rights.
func (o *Options) Check(t *option.Table, securePort bool) error {
	var errs []error
	for _, name := range o.ResidentResources {
		if !securePort && isSecrets(residentName(name)) {
			errs = append(errs, fmt.Errorf("%s is of no use without --secure-port: Secrets are served from a cache only to "+
				"clients whose right to read them is reviewed, and clients of the insecure port have the proxy's own rights",
				t.Given("resident-resources", strconv.Quote(name))))
		}
	}
	for _, name := range o.Exclude {
		for _, resident := range o.ResidentResources {
			if excludedName.MatchString(name) && excludes(name, residentName(resident)) {
				errs = append(errs, fmt.Errorf("%s leaves %s of %s out: a resource is either always cached or never",
					t.Given("exclude", strconv.Quote(name)), resident, t.Named("resident-resources")))
			}
		}
	}
	return errors.Join(errs...)
}

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

func isSecrets(resource schema.GroupResource) bool {
	return resource == schema.GroupResource{Resource: "secrets"}
}
