package option

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Objects adds a setting that only the configuration file has: a list of objects, empty by default.
// T is a struct of strings, whole numbers, booleans, structs and lists of these, with tags of yaml. A value
// whose type has a method Wrong is checked when it is read: Wrong says what is wrong with it, and "" for nothing. An
// unknown field, a field that is given twice, and a value of the wrong type are errors too. An error
// names the line and the place: line 9: views[0].drop[1].fields[0].
func Objects[T any, L interface {
	~[]T
	Wrong() string
}](t *Table, p *L, name, text string) {
	list := reflect.ValueOf(p).Elem()
	flag := &pflag.Flag{Name: name, Usage: text, Value: &objectsValue{fileField(name), list}}
	t.insert(row{flag: flag, variable: list, standard: reflect.Zero(list.Type()), fileOnly: true,
		wrong: func() []fact { return nil }}) // decode has said it
}

// objectsValue is a list of objects. A flag can't set it.
type objectsValue struct {
	name string
	list reflect.Value
}

func (v *objectsValue) Type() string     { return "objects" }
func (v *objectsValue) String() string   { return "" }
func (v *objectsValue) Set(string) error { return errors.New("give it in the configuration file") }

func (v *objectsValue) read(node *yaml.Node) error {
	v.list.SetZero()
	return decode(node, v.list, v.name)
}

// decode sets v, which is at a place in the file, to the value of node, and returns the first error.
func decode(node *yaml.Node, v reflect.Value, place string) error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("line %d: %s: %w", node.Line, place, fmt.Errorf(format, args...))
	}
	switch v.Kind() {
	case reflect.Struct:
		if node.Kind != yaml.MappingNode {
			return wrong("give an object with %s", strings.Join(fieldNames(v), ", "))
		}
		if err := decodeFields(node, v, place); err != nil {
			return err
		}
	case reflect.Slice:
		if node.Kind != yaml.SequenceNode {
			return wrong("give a list")
		}
		for i, element := range node.Content {
			v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
			if err := decode(element, v.Index(i), fmt.Sprintf("%s[%d]", place, i)); err != nil {
				return err
			}
		}
	case reflect.Bool:
		if node.Kind != yaml.ScalarNode || node.ShortTag() != "!!bool" {
			return wrong("give true or false")
		}
		v.SetBool(strings.EqualFold(node.Value, "true"))
	case reflect.Int:
		n, err := strconv.Atoi(node.Value)
		if node.Kind != yaml.ScalarNode || node.ShortTag() != "!!int" || err != nil {
			return wrong("give a whole number")
		}
		v.SetInt(int64(n))
	default: // a string
		if node.Kind != yaml.ScalarNode || node.ShortTag() != "!!str" || node.Value == "" {
			return wrong("give a string, in quotes if YAML would take it for something else")
		}
		v.SetString(node.Value)
	}
	checked, ok := v.Interface().(interface{ Wrong() string })
	if !ok || checked.Wrong() == "" {
		return nil
	}
	if node.Kind == yaml.ScalarNode {
		return wrong("%q %s", node.Value, checked.Wrong())
	}
	return wrong("%s", checked.Wrong())
}

// decodeFields sets the fields of v to those of an object.
func decodeFields(node *yaml.Node, v reflect.Value, place string) error {
	names, seen := fieldNames(v), make(map[string]bool)
	for i := 0; i < len(node.Content); i += 2 {
		key := node.Content[i]
		at := slices.Index(names, key.Value)
		switch {
		case at < 0 || key.Kind != yaml.ScalarNode:
			return fmt.Errorf("line %d: %s: unknown field %.100q: give %s", key.Line, place, key.Value, strings.Join(names, ", "))
		case seen[key.Value]:
			return fmt.Errorf("line %d: %s: %s is given twice", key.Line, place, key.Value)
		}
		seen[key.Value] = true
		if err := decode(node.Content[i+1], v.Field(at), place+"."+key.Value); err != nil {
			return err
		}
	}
	return nil
}

// fieldNames returns the names of a struct's fields in the file.
func fieldNames(v reflect.Value) (names []string) {
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		names = append(names, name)
	}
	return names
}
