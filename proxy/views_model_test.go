package proxy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/watchfan/watchfan/proxy/gate/view"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// This is what deploy/VIEWS.md says, on decoded objects, and objects and views to try it with.

// tree is an object, or a part of one, as JSON decodes it.
type tree = map[string]any

// decoded returns an object as JSON has it.
func decoded(o any) (f tree) {
	text, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil {
		panic(err) // it is of a type of k8s.io/api
	}
	return f
}

// valueAt returns the value at a path; nil for none.
func valueAt(o tree, path string) any {
	var value any = o
	for _, name := range namesOf(path) {
		m, _ := value.(tree)
		value = m[name]
	}
	return value
}

// namesOf returns the names of a path.
func namesOf(path string) (names []string) {
	path = strings.ReplaceAll(path, "[*]", "")
	plain, key, _ := strings.Cut(path, "['")
	names = strings.Split(plain, ".")
	if key != "" {
		names = append(names, strings.TrimSuffix(key, "']"))
	}
	return names
}

// viewModel is what a view makes of objects. where are the conditions of the parts, by resource.
type viewModel struct {
	view.Config
	where map[view.Resource][]condition
}

// condition is a path, and what its value is like.
type condition struct {
	path, text string
	holds      func(value string, there bool) bool
}

// part returns what the view says of a resource; nil for nothing.
func (v *viewModel) part(resource string) *view.Part {
	i := slices.IndexFunc(v.Resources, func(p view.Part) bool { return string(p.Resource) == resource })
	if i < 0 {
		return nil
	}
	return &v.Resources[i]
}

// byNamespaceLabels reports whether the view selects namespaces by labels.
func (v *viewModel) byNamespaceLabels(resource string) bool {
	p := v.part(resource)
	return p != nil && p.Namespaces.Labels != ""
}

// has reports whether an object is in the view, where namespaces have these labels.
func (v *viewModel) has(o tree, resource string, spaces map[string]labels.Set) bool {
	p := v.part(resource)
	if p == nil {
		return true
	}
	namespace, _ := valueAt(o, "metadata.namespace").(string)
	switch {
	case !matches(p.LabelSelector, labelsOf(o)),
		len(p.Namespaces.Names) > 0 && !slices.Contains(p.Namespaces.Names, view.Name(namespace)),
		p.Namespaces.Labels != "" && !matches(p.Namespaces.Labels, spaces[namespace]):
		return false
	}
	for _, c := range v.where[p.Resource] {
		value := valueAt(o, c.path)
		text := fmt.Sprint(value)
		if number, ok := value.(float64); ok {
			text = strconv.FormatFloat(number, 'f', -1, 64)
		}
		if !c.holds(text, value != nil) {
			return false
		}
	}
	return true
}

func labelsOf(o tree) labels.Set {
	set := labels.Set{}
	all, _ := o["metadata"].(tree)["labels"].(tree)
	for k, v := range all {
		set[k] = v.(string)
	}
	return set
}

func matches(selector view.Selector, set labels.Set) bool {
	s, err := labels.Parse(string(selector))
	if err != nil {
		panic(err)
	}
	return s.Matches(set)
}

// always are the fields that stay.
var always = []string{"metadata.name", "metadata.namespace", "metadata.uid", "metadata.resourceVersion", "metadata.labels",
	"metadata.ownerReferences", "metadata.deletionTimestamp"}

// form returns what the view shows of an object, but for its type and its resourceVersion.
func (v *viewModel) form(o tree, resource string) tree {
	shown := any(o)
	var drop [][]string
	if p := v.part(resource); p != nil {
		if len(p.Keep) > 0 {
			var keep [][]string
			for _, path := range always {
				keep = append(keep, namesOf(path))
			}
			for _, path := range p.Keep {
				keep = append(keep, namesOf(string(path)))
				if path == "metadata" && !slices.Contains(p.Keep, "metadata.managedFields") {
					drop = append(drop, []string{"metadata", "managedFields"})
				}
			}
			shown = picked(shown, keep)
		}
		for _, path := range p.Drop {
			drop = append(drop, namesOf(string(path)))
		}
	}
	for _, d := range v.Drop {
		if len(d.Resources) > 0 && !slices.Contains(d.Resources, view.Resource(resource)) || !matches(d.LabelSelector, labelsOf(o)) {
			continue
		}
		for _, path := range d.Fields {
			drop = append(drop, namesOf(string(path)))
		}
		for _, a := range d.Annotations {
			drop = append(drop, []string{"metadata", "annotations", string(a)})
		}
	}
	f, _ := withoutEmpty(without(shown, drop)).(tree)
	return withoutVersion(f)
}

// withoutVersion returns an object without its type and its resourceVersion.
func withoutVersion(o tree) tree {
	o = maps.Clone(o)
	delete(o, "kind")
	delete(o, "apiVersion")
	if meta, ok := o["metadata"].(tree); ok {
		meta = maps.Clone(meta)
		delete(meta, "resourceVersion")
		o["metadata"] = meta
	}
	return o
}

// picked returns what paths lead to.
func picked(value any, paths [][]string) any {
	if slices.ContainsFunc(paths, func(p []string) bool { return len(p) == 0 }) {
		return value
	}
	switch v := value.(type) {
	case tree:
		some := tree{}
		for name, inner := range v {
			if to := below(paths, name); len(to) > 0 {
				some[name] = picked(inner, to)
			}
		}
		return some
	case []any:
		return each(v, func(e any) any { return picked(e, paths) })
	}
	return nil
}

// without returns what no path leads to.
func without(value any, paths [][]string) any {
	switch v := value.(type) {
	case tree:
		rest := tree{}
		for name, inner := range v {
			to := below(paths, name)
			if !slices.ContainsFunc(to, func(p []string) bool { return len(p) == 0 }) {
				rest[name] = without(inner, to)
			}
		}
		return rest
	case []any:
		return each(v, func(e any) any { return without(e, paths) })
	}
	return value
}

// below returns what is behind a name, of the paths that begin with it.
func below(paths [][]string, name string) (rest [][]string) {
	for _, p := range paths {
		if p[0] == name {
			rest = append(rest, p[1:])
		}
	}
	return rest
}

func each(list []any, f func(any) any) []any {
	made := make([]any, len(list))
	for i, e := range list {
		made[i] = f(e)
	}
	return made
}

// withoutEmpty returns a value without what is empty, which protobuf and the types of Go can't tell from
// nothing; nil if nothing is left. Elements of lists stay.
func withoutEmpty(value any) any {
	switch v := value.(type) {
	case tree:
		rest := tree{}
		for name, inner := range v {
			if inner = withoutEmpty(inner); inner != nil {
				rest[name] = inner
			}
		}
		if len(rest) == 0 {
			return nil
		}
		return rest
	case []any:
		if len(v) == 0 {
			return nil
		}
		return each(v, withoutEmpty)
	}
	if value == nil || reflect.ValueOf(value).IsZero() {
		return nil
	}
	return value
}

// viewKind is a resource, with what there is to select and to leave out.
type viewKind struct {
	proxytest.Resource
	selectors  []string // by fields, of clients
	keep, drop []string
	where      []condition
	random     func(rng *rand.Rand, meta metav1.ObjectMeta) proxytest.Typed
	beat       func(o proxytest.Typed, n int) // changes what many views do not show
}

// is returns conditions on a path: that its value is one of values, is not, is there, and is not there.
func is(path string, values ...string) []condition {
	in := func(value string, there bool) bool { return there && slices.Contains(values, value) }
	list := strings.Join(values, ", ")
	return []condition{
		{path, fmt.Sprintf("%s in (%s)", path, list), in},
		{path, fmt.Sprintf("%s notin (%s)", path, list), func(value string, there bool) bool { return !in(value, there) }},
		{path, fmt.Sprintf("%s!='%s'", path, values[0]), func(value string, there bool) bool { return !there || value != values[0] }},
		{path, path, func(_ string, there bool) bool { return there }},
		{path, "!" + path, func(_ string, there bool) bool { return !there }},
	}
}

const (
	note  = "metadata.annotations['example.com/note']"
	beats = "metadata.annotations.beat"
)

var podKind = &viewKind{
	Resource:  proxytest.Resource{Version: "v1", Name: "pods", Kind: "Pod"},
	selectors: []string{"spec.nodeName=n1", "spec.nodeName!=n1", "status.phase=Running", "status.phase!=Failed,spec.nodeName!=n2"},
	keep: []string{"metadata", "metadata.annotations", note, "metadata.creationTimestamp", "spec", "spec.nodeName", "spec.hostNetwork",
		"spec.containers.image", "spec.containers[*].name", "spec.containers.env", "status", "status.phase", "status.podIPs",
		"status.conditions.type", "status.conditions.status"},
	drop: []string{"metadata.managedFields", "metadata.annotations", beats, "spec.containers.env", "spec.containers[*].env.value",
		"spec.containers", "status.conditions.lastProbeTime", "status.podIPs", "status"},
	where: slices.Concat(is("status.phase", "Succeeded", "Failed"), is("spec.nodeName", "n1"), is("spec.hostNetwork", "true"), is(note, "x")),
	random: func(rng *rand.Rand, meta metav1.ObjectMeta) proxytest.Typed {
		pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: oneOf(rng, "", "n1", "n2"), HostNetwork: rng.IntN(2) == 0},
			Status: corev1.PodStatus{Phase: corev1.PodPhase(oneOf(rng, "Pending", "Running", "Succeeded", "Failed"))}}
		for i := range 1 + rng.IntN(2) {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprintf("c%d", i), Image: oneOf(rng, "", "i1", "i2"),
				Env: []corev1.EnvVar{{Name: "E", Value: oneOf(rng, "", "1", "2")}}})
		}
		for range rng.IntN(3) {
			pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: oneOf(rng, "10.0.0.1", "10.0.0.2")})
		}
		if rng.IntN(2) == 0 {
			pod.Status.Conditions = []corev1.PodCondition{{Type: "Ready", Status: corev1.ConditionStatus(oneOf(rng, "True", "False"))}}
		}
		return pod
	},
	beat: func(o proxytest.Typed, n int) {
		for i := range o.(*corev1.Pod).Status.Conditions {
			o.(*corev1.Pod).Status.Conditions[i].LastProbeTime = metav1.Unix(1e9+int64(n), 0)
		}
	},
}

var configMapKind = &viewKind{
	Resource:  proxytest.ConfigMaps,
	selectors: []string{"metadata.name=o1", "metadata.name!=o2", "metadata.namespace=a"},
	keep: []string{"metadata", "metadata.annotations", note, "metadata.managedFields", "data", "data.phase", "data['tls.crt']", "immutable",
		"binaryData"},
	drop:  []string{"metadata.managedFields", beats, note, "data", "data.noise", "data['tls.crt']", "binaryData"},
	where: slices.Concat(is("data.phase", "done", "new"), is("immutable", "true"), is("data['tls.crt']", "")),
	random: func(rng *rand.Rand, meta metav1.ObjectMeta) proxytest.Typed {
		cm := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"phase": oneOf(rng, "new", "runs", "done")}}
		if rng.IntN(2) == 0 {
			cm.Data["tls.crt"] = oneOf(rng, "", "x")
		}
		if rng.IntN(2) == 0 {
			cm.Immutable = new(rng.IntN(2) == 0)
		}
		if rng.IntN(2) == 0 {
			cm.BinaryData = map[string][]byte{"b": []byte(oneOf(rng, "1", "22"))}
		}
		return cm
	},
	beat: func(o proxytest.Typed, n int) {
		cm := o.(*corev1.ConfigMap)
		if cm.Data == nil {
			cm.Data = make(map[string]string)
		}
		cm.Data["noise"] = strconv.Itoa(n)
	},
}

func oneOf(rng *rand.Rand, values ...string) string { return values[rng.IntN(len(values))] }

// someOf returns some of values, each once, in any order.
func someOf[S ~string](rng *rand.Rand, most int, values []string) (some []S) {
	for _, i := range rng.Perm(len(values))[:rng.IntN(most+1)] {
		some = append(some, S(values[i]))
	}
	return some
}

// randomMeta returns the metadata of an object.
func randomMeta(rng *rand.Rand, namespace, name string) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"l": oneOf(rng, "1", "2")},
		CreationTimestamp: metav1.Unix(1e9, 0), Annotations: map[string]string{}}
	if rng.IntN(2) == 0 {
		meta.Labels["m"] = oneOf(rng, "a", "b")
	}
	if rng.IntN(2) == 0 {
		meta.Annotations["example.com/note"] = oneOf(rng, "x", "y")
	}
	if rng.IntN(4) == 0 {
		meta.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "n"}}
	}
	return meta
}

// beaten returns an object after a change of which many views show nothing.
func (k *viewKind) beaten(o proxytest.Typed, n int) proxytest.Typed {
	o = o.DeepCopyObject().(proxytest.Typed)
	switch n % 3 {
	case 0:
		k.beat(o, n)
	case 1:
		all := maps.Clone(o.GetAnnotations())
		if all == nil {
			all = make(map[string]string)
		}
		all["beat"] = strconv.Itoa(n)
		o.SetAnnotations(all)
	}
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: fmt.Sprintf("m%d", n), Operation: "Update",
		FieldsV1: metav1.NewFieldsV1(fmt.Sprintf(`{"f:beat":{"f:%d":{}}}`, n))}})
	return o
}

// randomView returns a view of the kinds.
func randomView(rng *rand.Rand, name string, kinds []*viewKind) *viewModel {
	v := &viewModel{Config: view.Config{Name: view.Name(name), Quiet: rng.IntN(3) > 0}, where: make(map[view.Resource][]condition)}
	for _, k := range kinds {
		p := view.Part{Resource: view.Resource(k.Name), Keep: someOf[view.Kept](rng, 4, k.keep), Drop: someOf[view.Field](rng, 3, k.drop)}
		var texts []string
		for _, i := range rng.Perm(len(k.where))[:max(0, rng.IntN(4)-1)] {
			v.where[p.Resource] = append(v.where[p.Resource], k.where[i])
			texts = append(texts, k.where[i].text)
		}
		p.Where = view.Where(strings.Join(texts, ", "))
		p.LabelSelector = view.Selector(oneOf(rng, "", "", "l=1", "m", "m notin (a)"))
		switch rng.IntN(6) {
		case 0:
			p.Namespaces.Names = []view.Name{"a", "b"}
		case 1, 2:
			p.Namespaces.Labels = view.Selector(oneOf(rng, "team=a", "team!=a"))
		}
		if len(p.Keep)+len(p.Drop) > 0 || p.Where != "" || p.LabelSelector != "" || p.Namespaces.Labels != "" || len(p.Namespaces.Names) > 0 {
			v.Resources = append(v.Resources, p)
		}
	}
	drops := []view.Drop{{Fields: []view.Field{"metadata.managedFields"}}, {Annotations: []view.Annotation{"beat"}, LabelSelector: "l=1"},
		{Fields: []view.Field{"data", "spec.nodeName"}, Resources: []view.Resource{"configmaps"}, LabelSelector: "m=a"},
		{Fields: []view.Field{"status.phase", "metadata.annotations"}, Resources: []view.Resource{"pods"}, LabelSelector: "!m"}}
	v.Drop = drops[rng.IntN(len(drops)):][:1]
	return v
}

// leanView is the view that every server has.
func leanView() *viewModel {
	return &viewModel{Config: view.Config{Name: view.Lean, Drop: []view.Drop{{Fields: []view.Field{"metadata.managedFields"}}}}}
}
