package view

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// managedFields is the path that the view lean leaves out, and a client with drop= in its Accept
// header.
const managedFields Field = "metadata.managedFields"

// form is what a view makes of some resources in some encodings: a bit for each of its drops, and one of
// its parts.
type form struct {
	drops uint32
	part  int  // -1 for none
	lean  bool // the client asks for lean objects too
	bare  bool // the objects are metadata alone, and the view has paths to more
	// message is the objects' message in protobuf; "" in other encodings.
	message string
}

// made is the Variant of a form, or why there is none.
type made struct {
	variant *fanout.Variant
	err     error
}

// retire says that clients get another form from now on.
func (m made) retire() {
	if m.variant != nil && m.variant.Trim != nil && m.variant.Trim != framing.Lean {
		m.variant.Trim.Retire()
	}
}

// Variant returns the form in which the view serves the objects of a resource in an encoding, with the
// view's account. metadata says that they are metadata alone. lean leaves out metadata.managedFields
// too. The result is the same each time. An error, which is for the client, says why the view can't be
// made in this encoding. v may be nil, for no view.
func (v *View) Variant(of schema.GroupVersionResource, e framing.Encoding, metadata, lean bool) (*fanout.Variant, error) {
	switch {
	case v == nil && lean:
		return fanout.Lean, nil
	case v == nil:
		return fanout.Whole, nil
	}
	f := form{drops: v.concerning(of.GroupResource()), part: v.partOf(of.GroupResource()), lean: lean}
	deep := f.part >= 0 && v.parts[f.part].deep
	for i, d := range v.drops {
		deep = deep || d.deep && f.drops&(1<<i) != 0
	}
	f.bare = deep && metadata
	switch {
	case e != framing.Protobuf:
	case deep && !metadata:
		f.message = resourceKey(of)
	default:
		f.message = bare
	}
	return v.variant(f)
}

// Whole returns the form of what the view leaves as it is. v may be nil, for no view.
func (v *View) Whole() *fanout.Variant {
	if v == nil {
		return fanout.Whole
	}
	whole, _ := v.variant(form{part: -1})
	return whole
}

// Selects reports whether objects of a resource may be outside of the view, which may be nil.
func (v *View) Selects(of schema.GroupResource) bool {
	i := v.partOf(of)
	return i >= 0 && v.parts[i].selects()
}

// Changes reports whether clients of the view, which may be nil, get less of a resource than others.
func (v *View) Changes(of schema.GroupResource) bool {
	return v != nil && (v.partOf(of) >= 0 || v.concerning(of) != 0)
}

// concerning returns the drops that concern a resource.
func (v *View) concerning(of schema.GroupResource) (bits uint32) {
	for i, d := range v.drops {
		if d.concerns(of) {
			bits |= 1 << i
		}
	}
	return bits
}

// concerns reports whether a drop is about a resource.
func (d Drop) concerns(of schema.GroupResource) bool {
	return len(d.Resources) == 0 || slices.ContainsFunc(d.Resources, func(r Resource) bool { return r.names(of) })
}

// partOf returns the index of the part about a resource; -1 for none.
func (v *View) partOf(of schema.GroupResource) int {
	if v == nil {
		return -1
	}
	return slices.IndexFunc(v.parts, func(p part) bool { return p.Resource.names(of) })
}

// names reports whether r names a resource. A name without a group is of every group.
func (r Resource) names(of schema.GroupResource) bool {
	name, group, grouped := strings.Cut(string(r), ".")
	return name == of.Resource && (!grouped || group == of.Group)
}

func (v *View) variant(f form) (*fanout.Variant, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	m, ok := v.made[f]
	if !ok {
		m = v.make(f)
		v.made[f] = m
		if v.outdated.Load() { // for a request that entered before
			m.retire()
		}
	}
	return m.variant, m.err
}

func (v *View) make(f form) made {
	variant := &fanout.Variant{Account: &v.account}
	var err error
	if variant.Trim, err = v.trim(f); err != nil {
		return made{err: err}
	}
	if f.part >= 0 && v.parts[f.part].Namespaces.Labels != "" {
		variant.Namespaces, _ = labels.Parse(string(v.parts[f.part].Namespaces.Labels)) // it has been checked
	}
	return made{variant: variant}
}

// trim returns the Trim of a form; nil if it leaves all as it is. Lean clients without a view share the
// frames of a form that leaves out the same.
func (v *View) trim(f form) (*framing.Trim, error) {
	s, lean := shaper{form: f}, f.lean || f.drops != 0
	for i, d := range v.drops {
		if f.drops&(1<<i) != 0 {
			s.drop(d.paths, d.LabelSelector)
			lean = lean && d.lean
		}
	}
	if f.lean {
		s.drop([][]string{{"metadata", "managedFields"}}, "")
	}
	if f.part < 0 && !v.config.Quiet && lean {
		return framing.Lean, nil
	}
	if f.part < 0 {
		return s.trim(nil, v.config.Quiet)
	}
	p := v.parts[f.part]
	s.keep(p)
	s.drop(p.drop, "")
	s.where(p.where)
	return s.trim(p.in(), v.config.Quiet)
}

// in returns the function that says whether an object may be in the part, by its labels and its
// namespace's name; nil for all.
func (p part) in() func(*framing.Object) bool {
	if p.LabelSelector == "" && len(p.Namespaces.Names) == 0 {
		return nil
	}
	selector, _ := labels.Parse(string(p.LabelSelector)) // it has been checked
	names := make(map[string]bool)
	for _, n := range p.Namespaces.Names {
		names[string(n)] = true
	}
	return func(o *framing.Object) bool {
		return (len(names) == 0 || names[o.Namespace]) && selector.Matches(labels.Set(o.Labels))
	}
}

// Unknown returns the paths of the view's part about a resource that lead to no field that is known of it:
// those of a newer API server, and misspelt ones. Nothing is known of a custom resource.
func (v *View) Unknown(of schema.GroupVersionResource) (paths []string) {
	message, i := messageOf(of), v.partOf(of.GroupResource())
	if message == "" || i < 0 {
		return nil
	}
	p := v.parts[i]
	var all []string
	for _, k := range p.Keep {
		all = append(all, string(k))
	}
	for _, f := range p.Drop {
		all = append(all, string(f))
	}
	for _, c := range p.where {
		all = append(all, c.path)
	}
	return slices.DeleteFunc(all, func(path string) bool {
		names := parsePath(path)
		_, err := readMessages().find(message, names)
		return err == nil || isType(names)
	})
}
