package view

import (
	"flag"
	"fmt"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

var update = flag.Bool("update", false, "write types.txt")

// describer writes types.txt from the struct tags of Kubernetes' Go types.
type describer struct {
	resources, messages []string
	seen                map[reflect.Type]bool
}

// forms are the messages that are scalars in JSON.
var forms = map[reflect.Type]string{
	reflect.TypeFor[metav1.Time](): "time", reflect.TypeFor[metav1.MicroTime](): "microtime", reflect.TypeFor[metav1.Duration](): "duration",
	reflect.TypeFor[resource.Quantity](): "quantity", reflect.TypeFor[intstr.IntOrString](): "intorstring",
}

var scalars = map[reflect.Kind]string{reflect.String: "string", reflect.Bool: "bool", reflect.Int32: "int", reflect.Int64: "int"}

// kind returns the word for a type, and describes it.
func (d *describer) kind(t reflect.Type) string {
	_, marshals := reflect.PointerTo(t).MethodByName("MarshalJSON")
	switch {
	case t.Kind() == reflect.Pointer:
		return d.kind(t.Elem())
	case forms[t] != "":
		return forms[t]
	case scalars[t.Kind()] != "" && !marshals:
		return scalars[t.Kind()]
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return "bytes"
	case t.Kind() == reflect.Struct && !marshals:
		return d.message(t)
	}
	return "opaque"
}

func nameOf(t reflect.Type) string {
	return path.Base(path.Dir(t.PkgPath())) + "/" + path.Base(t.PkgPath()) + "." + t.Name()
}

func (d *describer) message(t reflect.Type) string {
	if d.seen[t] {
		return nameOf(t)
	}
	d.seen[t] = true
	line := nameOf(t)
	for i := range t.NumField() {
		f := t.Field(i)
		numbers := strings.Split(f.Tag.Get("protobuf"), ",")
		if len(numbers) < 2 {
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		of, kind := f.Type, ""
		_, own := reflect.PointerTo(of).MethodByName("Unmarshal") // a list or map that is a message
		switch {
		case own && of.Kind() != reflect.Struct:
			kind = "opaque"
		case of.Kind() == reflect.Slice && of.Elem().Kind() != reflect.Uint8:
			kind = "[]" + d.kind(of.Elem())
		case of.Kind() == reflect.Map:
			kind = "{}" + d.kind(of.Elem())
		default:
			kind = d.kind(of)
		}
		if of.Kind() != reflect.Pointer && strings.Contains(options, "omit") {
			kind += "?"
		}
		line += fmt.Sprintf(" %s:%s:%s", name, numbers[1], kind)
	}
	d.messages = append(d.messages, line)
	return nameOf(t)
}

// types.txt is what Kubernetes' Go types say.
func TestTypes(t *testing.T) {
	d := describer{seen: make(map[reflect.Type]bool)}
	d.message(reflect.TypeFor[metav1.PartialObjectMetadata]())
	for gvk, of := range scheme.Scheme.AllKnownTypes() {
		f, _ := of.FieldByName("ObjectMeta")
		_, message := reflect.PointerTo(of).MethodByName("Unmarshal")
		if gvk.Version == "__internal" || f.Type != reflect.TypeFor[metav1.ObjectMeta]() || !message {
			continue
		}
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		d.resources = append(d.resources, resourceKey(plural)+" "+d.message(of))
	}
	slices.Sort(d.resources)
	slices.Sort(d.messages)
	want := strings.Join(d.resources, "\n") + "\n\n" + strings.Join(d.messages, "\n") + "\n"
	if *update {
		if err := os.WriteFile("types.txt", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if described != want {
		t.Error("types.txt is not what k8s.io/api says: go test ./proxy/gate/view -run TestTypes -update")
	}
}

var (
	pods    = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)
