package view

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/watchfan/watchfan/framing"
)

// drop and part are a Drop and a Part whose words have been parsed. deep says that they have a path that
// does not begin with metadata, and lean that they leave out managedFields alone.
type (
	drop struct {
		Drop
		paths      [][]string
		deep, lean bool
	}
	part struct {
		Part
		keep, drop [][]string
		where      []condition
		deep       bool
	}
)

func parseDrop(of Drop) drop {
	d := drop{Drop: of, lean: of.LabelSelector == ""}
	for _, f := range of.Fields {
		d.paths = append(d.paths, parsePath(string(f)))
		d.lean = d.lean && f == managedFields
	}
	for _, a := range of.Annotations {
		d.paths = append(d.paths, []string{"metadata", "annotations", string(a)})
		d.lean = false
	}
	d.deep = slices.ContainsFunc(d.paths, isDeep)
	return d
}

func parsePart(of Part) part {
	p := part{Part: of}
	for _, k := range of.Keep {
		p.keep = append(p.keep, parsePath(string(k)))
	}
	for _, f := range of.Drop {
		p.drop = append(p.drop, parsePath(string(f)))
	}
	if of.Where != "" {
		p.where, _ = parseWhere(string(of.Where)) // it has been checked
	}
	p.deep = slices.ContainsFunc(p.keep, isDeep) || slices.ContainsFunc(p.drop, isDeep) ||
		slices.ContainsFunc(p.where, func(c condition) bool { return isDeep(parsePath(c.path)) })
	return p
}

func isDeep(path []string) bool { return path[0] != "metadata" && !isType(path) }

func isType(path []string) bool { return path[0] == "kind" || path[0] == "apiVersion" }

// shaper makes the Trim of a form.
type shaper struct {
	form
	shape framing.Shape
	err   error // the first
}

// path appends a path, in the encoding of the form, to paths. One to what the objects of the form have
// not, or have elsewhere, is none.
func (s *shaper) path(paths []framing.Path, names []string) []framing.Path {
	switch {
	case s.bare && isDeep(names), s.message != "" && isType(names):
		return paths
	case s.message == "":
		return append(paths, framing.Names(names...))
	}
	to, err := s.find(names)
	s.fail(err)
	return append(paths, to.path)
}

var errCustom = errors.New("custom resources are not known")

// find returns what a path leads to in the form's message.
func (s *shaper) find(names []string) (target, error) {
	of := s.message
	if of != bare {
		of = readMessages().resources[of]
	}
	if of == "" {
		return target{}, errCustom
	}
	return readMessages().find(of, names)
}

// fail notes the first error.
func (s *shaper) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// drop leaves out the fields at paths. A field that is not known in protobuf stays: few kinds have all the
// fields of a drop for several.
func (s *shaper) drop(paths [][]string, of Selector) {
	d := framing.Drop{}
	for _, names := range paths {
		if s.message != "" {
			if _, err := s.find(names); err != nil && err != errCustom {
				continue
			}
		}
		d.Fields = s.path(d.Fields, names)
	}
	if of != "" {
		selector, _ := labels.Parse(string(of)) // it has been checked
		d.Selects = func(of map[string]string) bool { return selector.Matches(labels.Set(of)) }
	}
	if len(d.Fields) > 0 {
		s.shape.Drops = append(s.shape.Drops, d)
	}
}

// keep keeps what always stays, and the part's paths. Who keeps all metadata keeps managedFields only by
// their name: they change with each write, and have half of the bytes.
func (s *shaper) keep(p part) {
	if len(p.Keep) == 0 {
		return
	}
	s.shape.Keep = s.path(s.path(nil, []string{"kind"}), []string{"apiVersion"})
	for _, name := range slices.Concat(identity, owners) {
		s.shape.Keep = s.path(s.shape.Keep, []string{"metadata", name})
	}
	for _, names := range p.keep {
		s.shape.Keep = s.path(s.shape.Keep, names)
		if len(names) == 1 && names[0] == "metadata" && !slices.Contains(p.Keep, Kept(managedFields)) {
			s.drop([][]string{{"metadata", "managedFields"}}, "")
		}
	}
}

// where selects objects by their values.
func (s *shaper) where(all []condition) {
	if len(all) == 0 {
		return
	}
	at := make([]int, len(all)) // the index of each condition's value
	var paths [][]string
	for i, c := range all {
		names := parsePath(c.path)
		if at[i] = slices.IndexFunc(paths, func(p []string) bool { return slices.Equal(p, names) }); at[i] < 0 {
			at[i] = len(paths)
			paths = append(paths, names)
			s.value(c, names)
		}
	}
	s.shape.Where.Matches = func(values [][]byte) bool {
		for i, c := range all {
			if !c.matches(values[at[i]]) {
				return false
			}
		}
		return true
	}
}

// value has the value of a condition read.
func (s *shaper) value(c condition, names []string) {
	v := framing.Value{}
	switch {
	case s.bare && isDeep(names):
		s.fail(fmt.Errorf("it selects by %s, which metadata alone has not", c.path))
	case s.message == "":
		v.Path = framing.Names(names...)
	default:
		to, err := s.find(names)
		v.Path, v.Text = to.path, to.text()
		if err == nil && (v.Text == nil || to.within != "") {
			err = fmt.Errorf("%s has no single value", c.path)
		}
		s.fail(err)
	}
	s.shape.Where.Values = append(s.shape.Where.Values, v)
}

// trim returns the Trim; nil if it leaves all as it is. An error says which field has no number that is known.
func (s *shaper) trim(in func(*framing.Object) bool, quiet bool) (*framing.Trim, error) {
	if s.err != nil && s.message != "" {
		s.err = fmt.Errorf("in protobuf %w", s.err)
	}
	if s.err != nil {
		return nil, s.err
	}
	if len(s.shape.Keep)+len(s.shape.Drops)+len(s.shape.Where.Values) == 0 && in == nil {
		return nil, nil // whatever changes is seen
	}
	return s.shape.Trim().With(in, quiet), nil
}
