package view

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/watchfan/watchfan/proxy/base/option"
)

// Options are the views that the configuration file adds to the built-in one.
type Options struct {
	// Views are at most MostViews.
	Views Configs
}

// MostViews is how many views may be configured. Each that clients use has frames, compressed
// blocks and lists of its own in each lane.
const MostViews = 8

// mostDrops is how many drops a view may have. Each has a bit in framing.
const mostDrops = 32

// AddTo adds the options to t.
func (o *Options) AddTo(t *option.Table) {
	t.Group("Serving")
	option.Objects[Config](t, &o.Views, "views", "`VIEWS` of the API: read-only at /views/NAME, without some fields; "+
		"read at the start, so a change needs a restart (default only lean, which leaves out metadata.managedFields)")
}

// Configs are configured views.
type Configs []Config

// Config is a configured view.
type Config struct {
	Name Name   `yaml:"name"`
	Drop []Drop `yaml:"drop"`
}

// Drop is some fields that a view leaves out.
type Drop struct {
	// Fields are paths with dots: metadata.managedFields, status.images, data.
	Fields []Field `yaml:"fields,omitempty"`
	// Annotations are names of annotations.
	Annotations []Annotation `yaml:"annotations,omitempty"`
	// Resources are plural names, as nodes or deployments.apps; empty for all.
	Resources []Resource `yaml:"resources,omitempty"`
	// LabelSelector selects the objects; "" for all.
	LabelSelector Selector `yaml:"labelSelector,omitempty"`
}

// The words of the configuration. Their Wrong methods say what is wrong with a value; "" for
// nothing.
type (
	Name       string // of a view
	Field      string
	Annotation string
	Resource   string
	Selector   string
)

var (
	dnsLabel   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	memberName = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$-]{0,62}$`)
	annotation = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?/)?` +
		`[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	resourceName = regexp.MustCompile(`^[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*$`)
)

// Wrong says what is wrong with a name.
func (n Name) Wrong() string {
	switch {
	case !dnsLabel.MatchString(string(n)):
		return "is no name of a view: give lower-case letters, digits and dashes, at most 63"
	case n == Lean:
		return "is the built-in view: give another name"
	}
	return ""
}

// mostNames is how many names a path may have.
const mostNames = 8

// kept are the fields of metadata by which objects are told apart and selected. ofMetadata are the
// others.
var kept = []string{"name", "namespace", "uid", "resourceVersion", "labels"}

var ofMetadata = []string{"annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers",
	"generateName", "generation", "managedFields", "ownerReferences", "selfLink"}

// Wrong says what is wrong with a path.
func (f Field) Wrong() string {
	path := strings.Split(string(f), ".")
	for _, name := range path {
		if !memberName.MatchString(name) || len(path) > mostNames {
			return fmt.Sprintf("is no path: give at most %d names with dots between them, for example status.images",
				mostNames)
		}
	}
	switch {
	case path[0] == "kind", path[0] == "apiVersion", f == "metadata",
		path[0] == "metadata" && slices.Contains(kept, path[1]):
		return "must stay: clients tell objects apart, and select them, by their type, name, namespace, uid, " +
			"resourceVersion and labels"
	case path[0] != "metadata":
		return ""
	case path[1] == "annotations" && len(path) > 2:
		return "is no path: give the annotation's name under annotations"
	case !slices.Contains(ofMetadata, path[1]):
		return "is no field of metadata: give metadata with one of " + strings.Join(ofMetadata, ", ")
	case len(path) > 2:
		return "is too deep: a field of metadata is left out whole"
	}
	return ""
}

// Wrong says what is wrong with the name of an annotation.
func (a Annotation) Wrong() string {
	if !annotation.MatchString(string(a)) {
		return "is no name of an annotation: give one, for example kubectl.kubernetes.io/last-applied-configuration"
	}
	return ""
}

// Wrong says what is wrong with the name of a resource.
func (r Resource) Wrong() string {
	if !resourceName.MatchString(string(r)) {
		return "is no resource: give plural names such as nodes or deployments.apps"
	}
	return ""
}

// Wrong says what is wrong with a selector.
func (s Selector) Wrong() string {
	if _, err := labels.Parse(string(s)); err != nil {
		return fmt.Sprintf("is no label selector: %v", err)
	}
	return ""
}

// Wrong says what is wrong with a drop, apart from its parts.
func (d Drop) Wrong() string {
	if len(d.Fields)+len(d.Annotations) == 0 {
		return "leaves nothing out: give fields or annotations"
	}
	return ""
}

// Wrong says what is wrong with a view, apart from its parts.
func (c Config) Wrong() string {
	switch {
	case c.Name == "":
		return "has no name: give one"
	case len(c.Drop) == 0:
		return "leaves nothing out: give drop"
	case len(c.Drop) > mostDrops:
		return fmt.Sprintf("has too much to drop: give at most %d elements", mostDrops)
	}
	return ""
}

// Wrong says what is wrong with the views together.
func (cs Configs) Wrong() string {
	if len(cs) > MostViews {
		return fmt.Sprintf("are too many: give at most %d", MostViews)
	}
	seen := make(map[Name]bool)
	for _, c := range cs {
		if seen[c.Name] {
			return fmt.Sprintf("has %s twice: give each view another name", c.Name)
		}
		seen[c.Name] = true
	}
	return ""
}
