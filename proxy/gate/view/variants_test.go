package view

import (
	"testing"

	"github.com/VictoriaMetrics/metrics"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// Each set of drops has one Trim. What leaves out the same as a lean client shares its frames.
func TestTrims(t *testing.T) {
	v := newView(metrics.NewSet(), "trims", Drop{Fields: []Field{"metadata.managedFields"}, Resources: []Resource{"pods", "foos.ex.io"}},
		Drop{Fields: []Field{"data"}, Resources: []Resource{"configmaps"}},
		Drop{Annotations: []Annotation{"a"}, Resources: []Resource{"nodes", "endpoints"}})
	of := func(resource string, lean bool) *framing.Trim {
		return v.Variant(schema.ParseGroupResource(resource), lean).Trim
	}
	lean := newView(metrics.NewSet(), Lean, Drop{Fields: []Field{managedFields}})
	selects := newView(metrics.NewSet(), "selects", Drop{Fields: []Field{managedFields}, LabelSelector: "a=b"})
	var none *View
	for i, c := range []struct{ got, want *framing.Trim }{
		{none.Variant(schema.GroupResource{}, true).Trim, framing.Lean},
		{of("pods", false), framing.Lean}, {of("pods.metrics.k8s.io", true), framing.Lean}, {of("foos.ex.io", false), framing.Lean},
		{of("foos", false), nil}, {of("foos.example.com", false), nil}, {of("services", true), framing.Lean},
		{of("nodes", false), of("endpoints", false)}, {of("configmaps", true), of("configmaps", true)},
		{lean.Variant(schema.GroupResource{Resource: "x"}, false).Trim, framing.Lean}, {lean.Variant(schema.GroupResource{Resource: "x"}, true).Trim, framing.Lean},
	} {
		if c.got != c.want {
			t.Errorf("case %d: got %p, want %p", i, c.got, c.want)
		}
	}
	if w := v.Whole(); w.Trim != nil || w.Account != &v.account || none.Whole() != fanout.Whole {
		t.Errorf("whole objects: %+v", w)
	}
	if none.Variant(schema.GroupResource{}, false) != fanout.Whole || none.Variant(schema.GroupResource{}, true) != fanout.Lean {
		t.Error("no view has a variant of its own")
	}
	if a, b := v.Variant(schema.GroupResource{Resource: "pods"}, false), v.Variant(schema.GroupResource{Resource: "pods"}, false); a != b {
		t.Error("a variant is made twice")
	}
	different := []*framing.Trim{nil, framing.Lean, of("nodes", false), of("nodes", true), of("configmaps", false), of("configmaps", true),
		selects.Variant(schema.GroupResource{Resource: "pods"}, false).Trim}
	for i, a := range different {
		for j, b := range different {
			if i != j && a == b {
				t.Errorf("Trims %d and %d are the same", i, j)
			}
		}
	}
}

// Selectors decide for each object.
func TestTrimSelects(t *testing.T) {
	v := newView(metrics.NewSet(), "chosen", Drop{Fields: []Field{"data"}, LabelSelector: "owner in (helm)"})
	trim := v.Variant(schema.GroupResource{Resource: "configmaps"}, false).Trim
	for object, shorter := range map[string]bool{
		`{"metadata":{"name":"x","resourceVersion":"7","labels":{"owner":"helm"}},"data":{}}`: true,
		`{"metadata":{"name":"x","resourceVersion":"7","labels":{"owner":"x"}},"data":{}}`:    false,
		`{"metadata":{"name":"x","resourceVersion":"7"},"data":{}}`:                           false,
	} {
		o, err := framing.NewScanner(framing.JSON, nil).Item([]byte(object), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := o.TrimmedFrame(trim, framing.Added).Len() < o.Frame(framing.Added).Len(); got != shorter {
			t.Errorf("%s: shorter %v, want %v", object, got, shorter)
		}
	}
}
