package view

import (
	"fmt"
	"path"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/base/option"
)

// Options are the views that the configuration file adds to the built-in one.
type Options struct {
	// Views are at most MostViews.
	Views Configs
}

// MostViews is how many views may be configured. Each that clients use has frames, compressed
// blocks and lists of its own in each lane.
const MostViews = 32

// Bounds of one view. Each drop has a bit in framing, and the paths of a resource are looked at in each
// object.
const (
	mostDrops     = 32
	mostResources = 64
	mostPaths     = 64
	mostNamed     = 1024 // namespaces
)

// AddTo adds the options to t.
func (o *Options) AddTo(t *option.Table) {
	t.Group("Serving")
	option.Objects[Config](t, &o.Views, "views", "`VIEWS` of the API: read-only at /views/NAME, without some fields, "+
		"objects and events (default only lean, which leaves out metadata.managedFields)")
}

// Configs are configured views.
type Configs []Config

// Config is a configured view.
type Config struct {
	Name Name `yaml:"name"`
	// Quiet is true if a client is told of a change only if the view shows it.
	Quiet bool `yaml:"quiet,omitempty"`
	// Resources say what the view has of some resources. Of any other it has all but what Drop says.
	Resources []Part `yaml:"resources,omitempty"`
	Drop      []Drop `yaml:"drop,omitempty"`
}

// Part is what a view has of one resource.
type Part struct {
	// Resource is the plural name, as pods or deployments.apps. The first part that names a resource
	// counts.
	Resource Resource `yaml:"resource"`
	// Keep are all fields that objects have, beside their type, identity, labels and owners; empty for
	// all fields. metadata is all of it but managedFields.
	Keep []Kept `yaml:"keep,omitempty"`
	// Drop are fields that objects lack.
	Drop []Field `yaml:"drop,omitempty"`
	// Where, LabelSelector and Namespaces select the objects that the view has; "" for all.
	Where         Where      `yaml:"where,omitempty"`
	LabelSelector Selector   `yaml:"labelSelector,omitempty"`
	Namespaces    Namespaces `yaml:"namespaces,omitempty"`
}

// Namespaces are those with names, or those with labels; all if neither is given. An object without a
// namespace is in none.
type Namespaces struct {
	Names  []Name   `yaml:"names,omitempty"`
	Labels Selector `yaml:"labels,omitempty"`
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
	Name       string // of a view or a namespace
	Kept       string // a path
	Field      string // a path to what may be left out
	Where      string // conditions on values
	Annotation string
	Resource   string
	Selector   string
)

var (
	dnsLabel   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	annotation = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?/)?` +
		`[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	resourceName = regexp.MustCompile(`^[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*$`)
)

// Wrong says what is wrong with a name.
func (n Name) Wrong() string {
	return option.Like(dnsLabel, "is no name: give lower-case letters, digits and dashes, at most 63")(string(n))
}

// Wrong says what is wrong with a path of Keep.
func (k Kept) Wrong() string { return wrongPath(string(k)) }

// Wrong says what is wrong with a path of what is left out.
func (f Field) Wrong() string {
	if wrong := wrongPath(string(f)); wrong != "" {
		return wrong
	}
	path := parsePath(string(f))
	if path[0] == "kind" || path[0] == "apiVersion" ||
		path[0] == "metadata" && (len(path) == 1 || slices.Contains(identity, path[1])) {
		return "must stay: clients tell objects apart, and select them, by their type, name, namespace, uid, " +
			"resourceVersion and labels"
	}
	return ""
}

// Wrong says what is wrong with conditions.
func (w Where) Wrong() string {
	all, err := parseWhere(string(w))
	switch {
	case err != nil:
		return fmt.Sprintf("is no condition: %v", err)
	case len(all) > framing.MostValues:
		return fmt.Sprintf("has %d conditions: give at most %d", len(all), framing.MostValues)
	}
	return ""
}

// Wrong says what is wrong with the name of an annotation.
func (a Annotation) Wrong() string {
	return option.Like(annotation, "is no name of an annotation: give one, for example "+
		"kubectl.kubernetes.io/last-applied-configuration")(string(a))
}

// Wrong says what is wrong with the name of a resource.
func (r Resource) Wrong() string {
	return option.Like(resourceName, "is no resource: give plural names such as nodes or deployments.apps")(string(r))
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

// Wrong says what is wrong with namespaces, apart from their parts.
func (n Namespaces) Wrong() string {
	switch {
	case len(n.Names) > 0 && n.Labels != "":
		return "has names and labels: give one of them"
	case len(n.Names) > mostNamed:
		return fmt.Sprintf("has too many names: give at most %d", mostNamed)
	}
	return ""
}

// Wrong says what is wrong with a part, apart from its parts.
func (p Part) Wrong() string {
	switch {
	case p.Resource == "":
		return "has no resource: give one, for example resource: pods"
	case len(p.Keep)+len(p.Drop) > mostPaths:
		return fmt.Sprintf("has too many paths: give at most %d", mostPaths)
	case len(p.Keep)+len(p.Drop) == 0 && !p.selects():
		return "changes nothing: give keep, drop, where, labelSelector or namespaces"
	}
	conditions, _ := parseWhere(string(p.Where))
	for _, c := range conditions {
		if wrong := p.Resource.wrongValue(c.path); wrong != "" {
			return fmt.Sprintf("has where with %q, which %s", c.path, wrong)
		}
	}
	return ""
}

// selects reports whether objects may be outside of the view.
func (p Part) selects() bool {
	return p.Where != "" || p.LabelSelector != "" || len(p.Namespaces.Names) > 0 || p.Namespaces.Labels != ""
}

// wrongValue says why a path to a known field of a resource is none to a value.
func (r Resource) wrongValue(field string) string {
	m := readMessages()
	for key, message := range m.resources {
		gv, _ := schema.ParseGroupVersion(path.Dir(key))
		if !r.names(gv.WithResource(path.Base(key)).GroupResource()) {
			continue
		}
		to, err := m.find(message, parsePath(field))
		switch {
		case err != nil: // a newer API server may know the field
		case to.within != "":
			return fmt.Sprintf("has no single value: %s is a list or a map", to.within)
		case to.text() == nil:
			return "is an object: give a path to a value"
		}
	}
	return ""
}

// Wrong says what is wrong with a view, apart from its parts.
func (c Config) Wrong() string {
	switch {
	case c.Name == "":
		return "has no name: give one"
	case c.Name == Lean:
		return "has the name of the built-in view: give another name"
	case len(c.Resources)+len(c.Drop) == 0:
		return "changes nothing: give resources or drop"
	case len(c.Drop) > mostDrops:
		return fmt.Sprintf("has too much to drop: give at most %d elements", mostDrops)
	case len(c.Resources) > mostResources:
		return fmt.Sprintf("has too many resources: give at most %d", mostResources)
	}
	seen := make(map[Resource]bool)
	for _, p := range c.Resources {
		if seen[p.Resource] {
			return fmt.Sprintf("has the resource %s twice: give all about it in one place", p.Resource)
		}
		seen[p.Resource] = true
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
