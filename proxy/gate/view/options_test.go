package view

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/base/option"
)

func tableOf(o *Options) *option.Table {
	t := &option.Table{APIVersion: "v", Kind: "K"}
	o.AddTo(t)
	return t
}

const agents = `apiVersion: v
kind: K
views:
  - name: agents
    drop:
      - fields: [metadata.managedFields, metadata.ownerReferences]
        annotations:
          - kubectl.kubernetes.io/last-applied-configuration
      - fields: [status.images]
        resources: [nodes]
      - fields: [data, binaryData]
        resources: [configmaps, secrets.example.com]
        labelSelector: owner=helm, !x
  - {name: b-2, drop: [{annotations: [Example.com/A_b]}]}
  - name: quiet
    quiet: true
    resources:
      - resource: pods
        keep: [metadata, spec.nodeName, status.podIPs]
        drop:
          - metadata.annotations['a/b']
          - spec.containers[*].env
        where: status.phase notin (Succeeded, Failed), spec.nodeName
        labelSelector: app
        namespaces: {labels: team=a}
      - resource: secrets
        keep:
          - data['tls.crt']
        namespaces: {names: [a, b]}
`

// A configuration file is read, and written as it was read.
func TestOptions(t *testing.T) {
	var read, again Options
	if err := tableOf(&read).ReadConfig("f", []byte(agents)); err != nil {
		t.Fatal(err)
	}
	want := Configs{{Name: "agents", Drop: []Drop{
		{Fields: []Field{"metadata.managedFields", "metadata.ownerReferences"}, Annotations: []Annotation{"kubectl.kubernetes.io/last-applied-configuration"}},
		{Fields: []Field{"status.images"}, Resources: []Resource{"nodes"}},
		{Fields: []Field{"data", "binaryData"}, Resources: []Resource{"configmaps", "secrets.example.com"}, LabelSelector: "owner=helm, !x"},
	}}, {Name: "b-2", Drop: []Drop{{Annotations: []Annotation{"Example.com/A_b"}}}}, {Name: "quiet", Quiet: true, Resources: []Part{
		{Resource: "pods", Keep: []Kept{"metadata", "spec.nodeName", "status.podIPs"}, Drop: []Field{"metadata.annotations['a/b']", "spec.containers[*].env"},
			Where: "status.phase notin (Succeeded, Failed), spec.nodeName", LabelSelector: "app", Namespaces: Namespaces{Labels: "team=a"}},
		{Resource: "secrets", Keep: []Kept{"data['tls.crt']"}, Namespaces: Namespaces{Names: []Name{"a", "b"}}},
	}}}
	if !reflect.DeepEqual(read.Views, want) {
		t.Errorf("got %+v\nwant %+v", read.Views, want)
	}
	if err := tableOf(&read).Check(); err != nil {
		t.Error(err)
	}
	for _, o := range []Options{read, {}} {
		var b bytes.Buffer
		if err := tableOf(&o).WriteConfig(&b); err != nil {
			t.Fatal(err)
		}
		if err := tableOf(&again).ReadConfig("f", b.Bytes()); err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
		if len(again.Views) != len(o.Views) || len(o.Views) > 0 && !reflect.DeepEqual(again, o) {
			t.Errorf("got %+v\nwant %+v", again, o)
		}
	}
}

// Each error names its line.
func TestOptionsErrors(t *testing.T) {
	f := func(views, want string) {
		t.Helper()
		var o Options
		err := tableOf(&o).ReadConfig("f.yaml", []byte("apiVersion: v\nkind: K\nviews:\n"+views))
		line, what, _ := strings.Cut(want, ": ")
		if err == nil || !strings.Contains(err.Error(), what) || !strings.HasPrefix(err.Error(), "f.yaml:3: views: "+line+": ") {
			t.Errorf("%s\ngot %v\nwant %s", views, err, want)
		}
	}
	field := func(path, want string) {
		t.Helper()
		f("- name: a\n  drop:\n  - fields: [data]\n  - fields:\n    - spec.x\n    - "+path+"\n", `line 9: `+want)
	}
	field("metadata.name", `"metadata.name" must stay`)
	field("metadata.labels.app", `"metadata.labels.app" must stay`)
	field("metadata", `must stay`)
	field("kind", `must stay`)
	field("apiVersion.x", `must stay`)
	field("metadata.resourceVersion", `must stay`)
	field("metadata.uid", `must stay`)
	field("metadata.namespace", `must stay`)
	field("metadata.spec", `is no field of metadata`)
	field("metadata.managedFields.manager", `is too deep`)
	field(`"metadata.annotations[x]"`, `is no path`)
	field(`"spec.containers[0]"`, `is no path`)
	field("spec..x", `is no path`)
	field(".spec", `is no path`)
	field("a.b.c.d.e.f.g.h.i.j.k.l.m", `at most 12 names`)
	field("\"spec[*]['a']b\"", `is no path`)
	field(`"data['a]"`, `is no path`)
	field(`""`, `give a string`)
	field("7", `give a string`)
	field("[x]", `give a string`)
	f("- name: a\n  drop:\n  - annotations: [\"a b\"]\n", `line 6: "a b" is no name of an annotation`)
	f("- name: a\n  drop:\n  - {fields: [data], resources: [Nodes]}\n", `line 6: "Nodes" is no resource`)
	f("- name: a\n  drop:\n  - {fields: [data], labelSelector: \"a in\"}\n", `line 6: "a in" is no label selector`)
	f("- name: a\n  drop:\n  - resources: [nodes]\n", `line 6: leaves nothing out`)
	f("- name: a\n  drop: []\n", `line 4: changes nothing: give resources or drop`)
	part := func(text, want string) {
		t.Helper()
		f("- name: a\n  resources:\n  - resource: pods\n    keep: [spec]\n  - "+text+"\n", "line 8: views[0].resources[1]"+want)
	}
	part("resource: nodes", `: changes nothing`)
	part("keep: [data]", `: has no resource`)
	part("{resource: nodes, keep: [spec, metadata.x]}", `.keep[1]: "metadata.x" is no field of metadata`)
	part("{resource: nodes, keep: [spec], drop: [metadata.name]}", `.drop[0]: "metadata.name" must stay`)
	part("{resource: nodes, fieldSelector: a=b}", `: unknown field "fieldSelector": give resource, keep, drop, where, labelSelector, namespaces`)
	part("{resource: nodes, namespaces: {names: [a], labels: b}}", `.namespaces: has names and labels: give one of them`)
	part("{resource: nodes, namespaces: {names: [A]}}", `.namespaces.names[0]: "A" is no name`)
	part("{resource: nodes, where: status.phase is X}", `.where: "status.phase is X" is no condition: column 14: found "is": give =, !=, in (…), notin (…), or a comma`)
	part("{resource: nodes, where: spec.taints=x}", `: has where with "spec.taints", which has no single value: spec.taints is a list or a map`)
	part("{resource: nodes, where: status.capacity}", `: has where with "status.capacity", which has no single value`)
	part("{resource: nodes, where: spec}", `: has where with "spec", which is an object: give a path to a value`)
	part("{resource: nodes, where: \""+strings.Repeat("a,", 16)+"a\"}", `.where: "a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a" has 17 conditions: give at most 16`)
	f("- name: a\n  resources: [{resource: pods, keep: [spec]}, {resource: pods, keep: [spec]}]\n", `line 4: has the resource pods twice`)
	f("- name: a\n  quiet: 1\n", `line 5: views[0].quiet: give true or false`)
	f("- drop: [{fields: [data]}]\n", `line 4: has no name`)
	f("- {name: A, drop: [{fields: [data]}]}\n", `line 4: "A" is no name`)
	f("- {name: lean, drop: [{fields: [data]}]}\n", `line 4: has the name of the built-in view`)
	f("- {name: a.b, drop: [{fields: [data]}]}\n", `line 4: is no name`)
	f("- {name: a, drop: [{fields: [data]}]}\n- {name: a, drop: [{fields: [data]}]}\n", `line 4: has a twice`)
	f("- name: a\n  keep: [x]\n  drop: []\n", `line 5: views[0]: unknown field "keep": give name, quiet, resources, drop`)
	f("- name: a\n  name: b\n", `line 5: name is given twice`)
	f("- a\n", `line 4: give an object with name, quiet, resources, drop`)
	f("  a: b\n", `line 4: give a list`)
	f(strings.Repeat("- {name: a, drop: [{fields: [data]}]}\n", MostViews+1), `line 4: are too many: give at most 32`)
	f("- {name: a, drop: ["+strings.Repeat("{fields: [data]},", mostDrops+1)+"]}\n", `line 4: has too much to drop`)
}

// FuzzViews reads any text as the file. What is accepted stays within the bounds, is written as it was read, and
// its forms can be made, and cut any object.
func FuzzViews(f *testing.F) {
	f.Add(strings.TrimPrefix(agents, "apiVersion: v\nkind: K\n"))
	f.Add("views: [{name: a, quiet: true, resources: [{resource: pods, keep: [a[*].b, c], where: '!a,b in (c)'}]}]")
	f.Add("views: [{name: a, drop: [{fields: [" + strings.Repeat("a.", 500) + "b]}]}]")
	raw := []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"b","resourceVersion":"7"},"spec":{"a":[{"b":1}]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var read Options
		if err := tableOf(&read).ReadConfig("f", []byte("apiVersion: v\nkind: K\n"+text)); err != nil {
			return
		}
		if len(read.Views) > MostViews {
			t.Fatalf("%d views", len(read.Views))
		}
		for _, v := range New(&read, metrics.NewSet()).All() {
			for _, e := range []framing.Encoding{framing.JSON, framing.Protobuf, framing.CBOR} {
				variant, err := v.Variant(pods, e, false, false)
				if err != nil || e != framing.JSON {
					continue
				}
				o, err := framing.NewScanner(e, nil).Item(raw, nil)
				if err != nil {
					t.Fatal(err)
				}
				if left := bytes.Join(o.AppendTrimmed(nil, variant.Trim), nil); o.In(variant.Trim, nil) && !bytes.Contains(left, []byte(`"resourceVersion":"7"`)) {
					t.Fatalf("left %s", left)
				}
			}
		}
	})
}
