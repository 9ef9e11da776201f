package view

import (
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/watchfan/watchfan/framing"
)

// described are the messages of Kubernetes in protobuf, written by TestTypes from the Go types of
// k8s.io/api. The types themselves would be a third of the program. First come the resources:
//
//	apps/v1/deployments apps/v1.Deployment
//
// and behind an empty line the messages with their fields, each with its name in JSON, its number and
// its kind. A field without a name has its members in the parent in JSON. Kinds are scalars, scalars
// in JSON that are messages here (time, quantity), and messages. Before them stands [] for a list or
// {} for a map with strings as keys. A value with ? is not written in JSON if it is empty.
//
//	core/v1.Volume name:1:string :2:core/v1.VolumeSource
//
//go:embed types.txt
var described string

// bare is the message with the metadata alone, which is the beginning of any.
const bare = "meta/v1.PartialObjectMetadata"

// messages are the fields of messages in the order of types.txt, and the messages of resources.
type messages struct {
	fields    map[string][]field
	resources map[string]string
}

// field is a field of a message.
type field struct {
	name   string
	number protowire.Number
	kind   string // without what stands before and behind it
	list   bool
	keyed  bool // a map
	sparse bool // an empty value is not written in JSON
}

// readMessages reads types.txt when it is first needed.
var readMessages = sync.OnceValue(func() messages {
	m := messages{make(map[string][]field), make(map[string]string)}
	resources, types, _ := strings.Cut(described, "\n\n")
	for line := range strings.Lines(resources) {
		key, message, _ := strings.Cut(strings.TrimSpace(line), " ")
		m.resources[key] = message
	}
	for line := range strings.Lines(types) {
		words := strings.Fields(line)
		for _, word := range words[1:] {
			parts := strings.SplitN(word, ":", 3)
			number, _ := strconv.Atoi(parts[1])
			f := field{name: parts[0], number: protowire.Number(number)}
			f.kind, f.sparse = strings.CutSuffix(parts[2], "?")
			f.kind, f.list = strings.CutPrefix(f.kind, "[]")
			f.kind, f.keyed = strings.CutPrefix(f.kind, "{}")
			m.fields[words[0]] = append(m.fields[words[0]], f)
		}
	}
	return m
})

func resourceKey(of schema.GroupVersionResource) string {
	return of.GroupVersion().String() + "/" + of.Resource
}

// messageOf returns the message of a resource; "" if it is not known.
func messageOf(of schema.GroupVersionResource) string {
	return readMessages().resources[resourceKey(of)]
}

// target is what a path leads to in a message.
type target struct {
	path   framing.Path
	kind   string
	sparse bool
	within string // the first list on the way, or the list or map itself; "" for none
}

// find follows a path through a message and returns what it leads to.
func (m messages) find(message string, names []string) (to target, err error) {
	to.kind = message
	for i, name := range names {
		steps, f, ok := m.field(to.kind, name)
		switch {
		case m.fields[to.kind] == nil:
			return to, fmt.Errorf("%s is no object", strings.Join(names[:i], "."))
		case !ok:
			return to, fmt.Errorf("%s is not known", strings.Join(names[:i+1], "."))
		}
		to.path = append(to.path, steps...)
		to.kind, to.sparse = f.kind, f.sparse
		if to.within == "" && (f.list || f.keyed && i == len(names)-1) {
			to.within = strings.Join(names[:i+1], ".")
		}
		if f.keyed && i < len(names)-1 {
			to.path, to.sparse = append(to.path, framing.Step{Name: names[i+1]}), false
			if i+2 < len(names) {
				return to, fmt.Errorf("%s is too deep", strings.Join(names, "."))
			}
			return to, nil
		}
	}
	return to, nil
}

// field returns the steps to a field with a name in JSON, and the field.
func (m messages) field(message, name string) (framing.Path, field, bool) {
	for _, f := range m.fields[message] {
		step := framing.Step{Number: f.number}
		if f.name == name {
			return framing.Path{step}, f, true
		}
		if f.name == "" {
			if inner, found, ok := m.field(f.kind, name); ok {
				return append(framing.Path{step}, inner...), found, true
			}
		}
	}
	return nil, field{}, false
}

// text returns the function that makes text of a value, as JSON has it; nil if it is no scalar.
func (to target) text() func(number uint64, bytes []byte) []byte {
	unless := func(empty bool, text []byte) []byte {
		if empty && to.sparse {
			return nil
		}
		return text
	}
	switch to.kind {
	case "string":
		return func(_ uint64, b []byte) []byte { return unless(len(b) == 0, b[:len(b):len(b)]) }
	case "bool":
		return func(n uint64, _ []byte) []byte { return unless(n == 0, strconv.AppendBool(nil, n != 0)) }
	case "int":
		return func(n uint64, _ []byte) []byte { return unless(n == 0, strconv.AppendInt(nil, int64(n), 10)) }
	case "bytes":
		return func(_ uint64, b []byte) []byte {
			return unless(len(b) == 0, base64.StdEncoding.AppendEncode([]byte{}, b)) // of no bytes too it is not nil
		}
	case "time":
		return formOf(func() message { return new(metav1.Time) })
	case "microtime":
		return formOf(func() message { return new(metav1.MicroTime) })
	case "duration":
		return formOf(func() message { return new(metav1.Duration) })
	case "quantity":
		return formOf(func() message { return new(resource.Quantity) })
	case "intorstring":
		return formOf(func() message { return new(intstr.IntOrString) })
	}
	return nil
}

// message is a message that is a scalar in JSON.
type message interface {
	json.Marshaler
	Unmarshal(data []byte) error
}

func formOf(empty func() message) func(uint64, []byte) []byte {
	return func(_ uint64, b []byte) []byte {
		m := empty()
		var value any
		if m.Unmarshal(b) != nil {
			return nil
		}
		text, err := m.MarshalJSON()
		if err != nil || json.Unmarshal(text, &value) != nil || value == nil {
			return nil
		}
		if s, ok := value.(string); ok {
			return []byte(s)
		}
		return text
	}
}
