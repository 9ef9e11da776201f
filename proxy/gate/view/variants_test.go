package view

import (
	"testing"

	"github.com/VictoriaMetrics/metrics"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

func viewOf(drops ...Drop) *View { return newView(metrics.NewSet(), Config{Name: "v", Drop: drops}) }

// variantOf and trimOf return a view's form in JSON.
func variantOf(v *View, of schema.GroupResource, lean bool) *fanout.Variant {
	variant, _ := v.Variant(of.WithVersion("v1"), framing.JSON, false, lean)
	return variant
}

func trimOf(v *View, of schema.GroupResource, lean bool) *framing.Trim {
	return variantOf(v, of, lean).Trim
}

// Each set of drops has one Trim. What leaves out the same as a lean client shares its frames.
func TestTrims(t *testing.T) {
	v := viewOf(Drop{Fields: []Field{"metadata.managedFields"}, Resources: []Resource{"pods", "foos.ex.io"}},
		Drop{Fields: []Field{"data"}, Resources: []Resource{"configmaps"}},
		Drop{Annotations: []Annotation{"a"}, Resources: []Resource{"nodes", "endpoints"}})
	of := func(resource string, lean bool) *framing.Trim {
		return trimOf(v, schema.ParseGroupResource(resource), lean)
	}
	lean := viewOf(Drop{Fields: []Field{managedFields}})
	selects := viewOf(Drop{Fields: []Field{managedFields}, LabelSelector: "a=b"})
	var none *View
	for i, c := range []struct{ got, want *framing.Trim }{
		{trimOf(none, schema.GroupResource{}, true), framing.Lean},
		{of("pods", false), framing.Lean}, {of("pods.metrics.k8s.io", true), framing.Lean}, {of("foos.ex.io", false), framing.Lean},
		{of("foos", false), nil}, {of("foos.example.com", false), nil}, {of("services", true), framing.Lean},
		{of("nodes", false), of("endpoints", false)}, {of("configmaps", true), of("configmaps", true)},
		{trimOf(lean, schema.GroupResource{Resource: "x"}, false), framing.Lean}, {trimOf(lean, schema.GroupResource{Resource: "x"}, true), framing.Lean},
	} {
		if c.got != c.want {
			t.Errorf("case %d: got %p, want %p", i, c.got, c.want)
		}
	}
	if w := v.Whole(); w.Trim != nil || w.Account != &v.account || none.Whole() != fanout.Whole {
		t.Errorf("whole objects: %+v", w)
	}
	if variantOf(none, schema.GroupResource{}, false) != fanout.Whole || variantOf(none, schema.GroupResource{}, true) != fanout.Lean {
		t.Error("no view has a variant of its own")
	}
	if a, b := variantOf(v, pods.GroupResource(), false), variantOf(v, pods.GroupResource(), false); a != b {
		t.Error("a variant is made twice")
	}
	different := []*framing.Trim{nil, framing.Lean, of("nodes", false), of("nodes", true), of("configmaps", false), of("configmaps", true),
		trimOf(selects, pods.GroupResource(), false)}
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
	v := viewOf(Drop{Fields: []Field{"data"}, LabelSelector: "owner in (helm)"})
	trim := trimOf(v, schema.GroupResource{Resource: "configmaps"}, false)
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

// Objects do not keep a form of a view that has been replaced, if it is made only then.
func TestOutdatedForms(t *testing.T) {
	of := func(value string) *Options {
		return &Options{Views: Configs{{Name: "v", Resources: []Part{{Resource: "foos", Where: Where("spec.a=" + value)}}}}}
	}
	views := New(of("1"), metrics.NewSet())
	o, err := framing.NewScanner(framing.JSON, nil).Item([]byte(`{"metadata":{"name":"x","resourceVersion":"7"},"spec":{"a":1}}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	var forms framing.Forms
	o.CountForms(&forms)
	foos := schema.GroupResource{Resource: "foos"}
	entered := views.Get("v")
	views.Replace(of("2"))
	o.In(trimOf(views.Get("v"), foos, false), nil)
	one := forms.Bytes()
	o.In(trimOf(entered, foos, false), nil)
	if n := forms.Bytes(); n != one {
		t.Errorf("forms take %d bytes, want %d", n, one)
	}
}
