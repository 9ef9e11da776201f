package upstream

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/framing"
)

func TestParseDefinition(t *testing.T) {
	const whole = `{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1",
"metadata":{"name":"foos.ex.io","uid":"u1","generation":3,"managedFields":[{}]},
"spec":{"group":"ex.io","versions":[
 {"name":"v1","served":true,
"selectableFields":[{"jsonPath":".spec.c"},{"jsonPath":".spec.a-b.c_D"},{"jsonPath":".top"}]},
 {"name":"v2","served":false,"selectableFields":[{"jsonPath":".spec.n"}]},
 {"name":"v3","served":true}]},
"status":{"acceptedNames":{"plural":"foos"},"conditions":[]}}`
	for _, c := range []struct{ name, raw, want string }{
		{"whole", whole, `u1 3 {"plural":"foos"} v1 true spec.c spec.a-b.c_D top; v2 false spec.n; v3 true`},
		{"not yet accepted",
			`{"metadata":{"uid":"u","generation":1},"spec":{"versions":[{"name":"v1","served":true}]}}`,
			`u 1  v1 true`},
		{"fields that are none of ours",
			`{"spec":{"versions":[{"name":"v1","selectableFields":[
{"jsonPath":"spec.c"},{"jsonPath":".spec.*"},{"jsonPath":"..c"},{"jsonPath":"."},{"jsonPath":".spec['c']"},
{"jsonPath":".spec.é"},{"jsonPath":".spec.a\\.b"},{"jsonPath":".spec.c."},{"jsonPath":""},{"jsonPath":".spec.l[0]"},
{"jsonPath":".spec.ok"}]}]}}`, ` 0  v1 false spec.ok`},
		{"nothing", `{}`, ` 0  `},
	} {
		d, err := ParseDefinition([]byte(c.raw))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var versions []string
		for _, name := range []string{"v1", "v2", "v3"} {
			v, ok := d.Versions[name]
			if !ok {
				continue
			}
			text := fmt.Sprintf("%s %t", name, v.Served)
			for _, f := range d.fields(name) {
				text += " " + f.Label
			}
			versions = append(versions, text)
		}
		got := fmt.Sprintf("%s %d %s %s", d.uid, d.Generation, d.acceptedNames, strings.Join(versions, "; "))
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	for _, raw := range []string{``, `[]`, `{"spec":1}`, `{"metadata":{"generation":"1"}}`,
		`{"spec":{"versions":[{}]}`} {
		if d, err := ParseDefinition([]byte(raw)); err == nil {
			t.Errorf("%q: got %+v, want an error", raw, d)
		}
	}
	if f := (*Definition)(nil).fields("v1"); f != nil {
		t.Errorf("no definition has fields %v", f)
	}
}

// kube-apiserver serves a definition from a new storage after a change of the spec, the accepted
// names or the UID.
func TestDefinitionEqual(t *testing.T) {
	same := Definition{uid: "u", Generation: 1, acceptedNames: `{"plural":"foos"}`}
	status := same
	status.Object = &framing.Object{}
	if !same.Equal(&status) {
		t.Error("read from another object: changed")
	}
	for name, change := range map[string]func(*Definition){
		"uid":        func(d *Definition) { d.uid = "v" },
		"generation": func(d *Definition) { d.Generation++ },
		"names":      func(d *Definition) { d.acceptedNames = "" },
		"gone":       func(d *Definition) { d.Gone = true },
	} {
		other := same
		change(&other)
		if same.Equal(&other) || other.Equal(&same) {
			t.Errorf("%s: not changed", name)
		}
	}
}

// FuzzDefinition: the fields of any definition can be scanned. Each has the value at its label's
// path.
func FuzzDefinition(f *testing.F) {
	f.Add(
		[]byte(`{"metadata":{"uid":"u","generation":1},"spec":{"versions":[{"name":"v1","served":true,` +
			`"selectableFields":[{"jsonPath":".spec.c"},{"jsonPath":".a"}]}]},"status":{"acceptedNames":{}}}`))
	f.Add([]byte(`{"spec":{"versions":[{"selectableFields":[{"jsonPath":".[0].x"},{"jsonPath":".\"."}]}]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := ParseDefinition(raw)
		if err != nil {
			return
		}
		if !d.Equal(d) {
			t.Error("not equal to itself")
		}
		for version := range d.Versions {
			for _, field := range d.fields(version) {
				name, object := field.Label, `"value"`
				for _, part := range slices.Backward(strings.Split(name, ".")) {
					object = `{"` + part + `":` + object + `}`
				}
				if strings.HasPrefix(name, "metadata") || strings.HasPrefix(name, "kind") ||
					strings.HasPrefix(name, "apiVersion") {
					continue // kube-apiserver does not accept it
				}
				line := `{"type":"ADDED","object":` + object[:len(object)-1] +
					`,"metadata":{"name":"n","resourceVersion":"1"}}}`
				ev, err := framing.NewScanner(framing.JSON, []framing.Field{field}).Event([]byte(line))
				if err != nil || ev.Object.Fields[0] != "value" {
					t.Fatalf("%q in %s: %v %v", name, line, ev.Object, err)
				}
			}
		}
	})
}
