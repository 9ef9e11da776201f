package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/fxamacker/cbor/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/watchfan/watchfan/framing"
)

// inBoth returns an object as kube-apiserver sends it in JSON and in protobuf.
func inBoth(t testing.TB, o runtime.Object) (inJSON, inProtobuf *framing.Object) {
	t.Helper()
	gvks, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil {
		t.Fatal(err)
	}
	o.GetObjectKind().SetGroupVersionKind(gvks[0])
	var wire bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(o, &wire); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var u runtime.Unknown
	if err := u.Unmarshal(wire.Bytes()[4:]); err != nil {
		t.Fatal(err)
	}
	if inJSON, err = framing.NewScanner(framing.JSON, nil).Item(text, nil); err != nil {
		t.Fatal(err)
	}
	typeMeta := wire.Bytes()[4 : bytes.Index(wire.Bytes(), u.Raw)-1]
	for size := 1; size < 6; size++ { // the length before the object
		if inProtobuf, err = framing.NewScanner(framing.Protobuf, nil).Item(u.Raw, typeMeta); err == nil && bytes.Equal(inProtobuf.Bytes(), wire.Bytes()) {
			return inJSON, inProtobuf
		}
		typeMeta = typeMeta[:len(typeMeta)-1]
	}
	t.Fatalf("%v: %x\nis not %x", err, inProtobuf.Bytes(), wire.Bytes())
	return nil, nil
}

// decoded returns an object's bytes as a value of JSON.
func decoded(t testing.TB, o []byte) (v map[string]any) {
	t.Helper()
	if !bytes.HasPrefix(o, []byte("k8s\x00")) {
		if err := json.Unmarshal(o, &v); err != nil {
			t.Fatalf("%v in %s", err, o)
		}
		return v
	}
	object, _, err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Decode(o, nil, nil)
	if err != nil {
		t.Fatalf("%v in %q", err, o)
	}
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return decoded(t, text)
}

// removed removes what a part leaves out of a decoded value.
func removed(value any, keep, drop [][]string) any {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range maps.Clone(v) {
			keepBelow, kept := below(keep, name)
			dropBelow, dropped := below(drop, name)
			if keep == nil || kept {
				keepBelow, kept = nil, true
			}
			if dropped || !kept && len(keepBelow) == 0 {
				delete(v, name)
			} else if len(keepBelow)+len(dropBelow) > 0 {
				v[name] = removed(inner, keepBelow, dropBelow)
			}
		}
	case []any:
		for i := range v {
			v[i] = removed(v[i], keep, drop)
		}
	}
	return value
}

func below(paths [][]string, name string) (rest [][]string, to bool) {
	for _, path := range paths {
		if path[0] == name && len(path) > 1 {
			rest = append(rest, path[1:])
		}
		to = to || path[0] == name && len(path) == 1
	}
	return rest, to
}

// withoutEmpty removes what protobuf and Go's types can't tell from nothing, and what types write of
// nothing.
func withoutEmpty(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range maps.Clone(v) {
			if v[name] = withoutEmpty(inner); v[name] == nil {
				delete(v, name)
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		for i := range v {
			v[i] = withoutEmpty(v[i])
		}
		if len(v) == 0 {
			return nil
		}
	case string, bool, float64:
		if reflect.ValueOf(v).IsZero() {
			return nil
		}
	}
	return value
}

// objects are some of many kinds.
func objects() []runtime.Object {
	meta := metav1.ObjectMeta{Name: "x", Namespace: "ns", UID: "u", ResourceVersion: "7", Generation: 3,
		Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a/b": "1", "c": "2"}, CreationTimestamp: metav1.Unix(1e9, 0),
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", UID: "v"}}, Finalizers: []string{"f"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}}}
	now, port := metav1.Unix(1.5e9, 0), intstr.FromString("http")
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: "n1", HostNetwork: true, Containers: []corev1.Container{
		{Name: "c", Image: "i:1", Env: []corev1.EnvVar{{Name: "e", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}}}},
			Resources:      corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi")}},
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: port}}}},
		{Name: "d"}},
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{Items: []corev1.KeyToPath{{Key: "k"}}}}}}},
		Status: corev1.PodStatus{Phase: "Running", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "::1"}}, StartTime: &now,
			ContainerStatuses: []corev1.ContainerStatus{{Name: "c", Ready: true, RestartCount: 3}}}}
	empty := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "y", ResourceVersion: "7"}}
	secret := &corev1.Secret{ObjectMeta: meta, Type: "Opaque", Data: map[string][]byte{"tls.crt": []byte("crt"), "tls.key": []byte("key")}}
	node := &corev1.Node{ObjectMeta: meta, Spec: corev1.NodeSpec{Unschedulable: true}, Status: corev1.NodeStatus{
		Capacity: corev1.ResourceList{"cpu": resource.MustParse("4")}, Images: []corev1.ContainerImage{{Names: []string{"a"}, SizeBytes: 7}}}}
	return []runtime.Object{pod, empty, secret, node}
}

var somePaths = []string{"metadata.annotations['a/b']", "metadata.annotations", "metadata.generation", "metadata.managedFields", "metadata.creationTimestamp",
	"spec", "spec.nodeName", "spec.containers.image", "spec.containers[*].env.valueFrom.secretKeyRef", "spec.containers.resources.limits['cpu']",
	"spec.containers.readinessProbe.httpGet.port", "spec.volumes.configMap.items", "spec.volumes.name", "spec.unschedulable", "status.phase", "status.podIPs",
	"status.startTime", "status.containerStatuses.ready", "status", "data['tls.crt']", "data", "type", "status.capacity['cpu']", "status.images.names", "metadata"}

// What a view leaves of objects is what is left of the decoded ones, in JSON as in protobuf.
func TestFormsLeave(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		o := objects()[random.IntN(4)]
		plural := schemaOf(o)
		var of Part
		for range random.IntN(4) {
			of.Keep = append(of.Keep, Kept(somePaths[random.IntN(len(somePaths))]))
		}
		for range random.IntN(3) {
			if f := Field(somePaths[random.IntN(len(somePaths))]); f.Wrong() == "" {
				of.Drop = append(of.Drop, f)
			}
		}
		of.Keep = slices.DeleteFunc(of.Keep, func(k Kept) bool { return unknown(plural, string(k)) })
		of.Drop = slices.DeleteFunc(of.Drop, func(f Field) bool { return unknown(plural, string(f)) })
		of.Resource = Resource(plural)
		if len(of.Keep)+len(of.Drop) == 0 {
			continue
		}
		v := newView(metrics.NewSet(), Config{Name: "v", Quiet: random.IntN(2) == 0, Resources: []Part{of}})
		inJSON, inProtobuf := inBoth(t, o)
		p := v.parts[0]
		keep, drop := p.keep, p.drop
		if keep != nil {
			for _, name := range slices.Concat(identity, owners) {
				keep = append(keep, []string{"metadata", name})
			}
			keep = append(keep, []string{"kind"}, []string{"apiVersion"})
			if slices.Contains(of.Keep, "metadata") && !slices.Contains(of.Keep, Kept(managedFields)) {
				drop = append(drop, []string{"metadata", "managedFields"})
			}
		}
		want := withoutEmpty(removed(decoded(t, inJSON.Bytes()), keep, drop))
		for _, o := range []*framing.Object{inJSON, inProtobuf} {
			e := framing.JSON
			if o == inProtobuf {
				e = framing.Protobuf
			}
			variant, err := v.Variant(pods.GroupVersion().WithResource(plural), e, false, false)
			if err != nil {
				t.Fatalf("%+v: %v", of, err)
			}
			left := bytes.Join(o.AppendTrimmed(nil, variant.Trim), nil)
			if got := withoutEmpty(decoded(t, left)); !reflect.DeepEqual(got, want) {
				t.Fatalf("%s %+v:\n got %v\nwant %v", e, of, got, want)
			}
			if left := variant.Trim; left.Quiet() && !o.SameIn(left, o) {
				t.Fatalf("%+v: not the same", of)
			}
		}
	}
}

func schemaOf(o runtime.Object) string { return strings.ToLower(reflect.TypeOf(o).Elem().Name()) + "s" }

func unknown(plural, path string) bool {
	_, err := readMessages().find(messageOf(pods.GroupVersion().WithResource(plural)), parsePath(path))
	return err != nil
}

// A condition has one answer for an object in JSON and in protobuf.
func TestFormsSelect(t *testing.T) {
	f := func(o runtime.Object, where string, want bool) {
		t.Helper()
		v := newView(metrics.NewSet(), Config{Name: "v", Resources: []Part{{Resource: Resource(schemaOf(o)), Where: Where(where), Keep: []Kept{"metadata"}}}})
		if wrong := v.config.Resources[0].Wrong(); wrong != "" {
			t.Fatal(where, wrong)
		}
		inJSON, inProtobuf := inBoth(t, o)
		for e, o := range map[framing.Encoding]*framing.Object{framing.JSON: inJSON, framing.Protobuf: inProtobuf} {
			variant, err := v.Variant(pods.GroupVersion().WithResource(string(v.parts[0].Resource)), e, false, false)
			if err != nil {
				t.Fatal(where, err)
			}
			if got := o.In(variant.Trim, nil); got != want || !variant.Trim.Selects() {
				t.Errorf("%s in %s: %v", where, e, got)
			}
		}
	}
	all := objects()
	pod, empty, secret, node := all[0], all[1], all[2], all[3]
	f(pod, "status.phase=Running", true)
	f(pod, "status.phase notin (Running, Failed)", false)
	f(pod, "spec.hostNetwork=true,spec.nodeName in (n1,n2),status.phase", true)
	f(pod, "status.startTime='2017-07-14T02:40:00Z'", true)
	f(pod, "metadata.annotations['a/b']=1,metadata.annotations['z']!=1,!metadata.annotations['z']", true)
	f(pod, "metadata.generation=3,metadata.uid=u,metadata.creationTimestamp='2001-09-09T01:46:40Z',!metadata.deletionTimestamp", true)
	f(pod, "metadata.labels['a'] in (c, b)", true)
	f(pod, "status.phase!=Failed,status.phase!=Succeeded,spec.nodeName,spec['nodeName']=n1", true)
	f(pod, "status.phase!=Running,status.phase!=Failed", false)
	f(empty, "spec.nodeName", false)
	f(empty, "!spec.nodeName,!spec.hostNetwork,spec.nodeName!=x,!metadata.generation,!status.startTime,!status.phase", true)
	f(empty, "spec.nodeName=", false)
	f(secret, "type=Opaque,data['tls.crt']='Y3J0',!data['ca.crt']", true)
	f(node, "spec.unschedulable=true,status.capacity['cpu']=4", true)
	f(node, "spec.unschedulable!=true", false)
	f(&corev1.ConfigMap{Data: map[string]string{"a": ""}, ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "ns", ResourceVersion: "7"}},
		"data.a,data['a'] in (),data['a'] notin (b),!data.b", true)
	f(&corev1.Secret{Data: map[string][]byte{"a": {}}, ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "ns", ResourceVersion: "7"}},
		"data.a,data['a'] in (),data['a'] notin (b),!data.b", true)
}

// A condition has one answer for a custom resource in JSON and in CBOR.
func TestFormsSelectInCBOR(t *testing.T) {
	mode, err := cbor.EncOptions{String: cbor.StringToByteString, ShortestFloat: cbor.ShortestFloat16}.EncMode()
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []any{1.5, 3.0, -0.25, 1e6, 1234567.5, -1e20, 1e21, 0.00001, 1e-6, 1e-7, 5e-324, math.MaxFloat64, 7, -7, true, "1e6", "", nil} {
		object := map[string]any{"kind": "Foo", "apiVersion": "ex.io/v1", "metadata": map[string]any{"name": "x", "resourceVersion": "7"},
			"spec": map[string]any{"a": value}}
		where := "!spec.a"
		if text, _ := json.Marshal(value); value != nil {
			where = "spec.a='" + strings.Trim(string(text), `"`) + "'"
		}
		v := newView(metrics.NewSet(), Config{Name: "v", Resources: []Part{{Resource: "foos", Where: Where(where)}}})
		for e, marshal := range map[framing.Encoding]func(any) ([]byte, error){framing.JSON: json.Marshal, framing.CBOR: mode.Marshal} {
			item, err := marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			o, err := framing.NewScanner(e, nil).Item(item, nil)
			if err != nil {
				t.Fatal(err)
			}
			variant, err := v.Variant(pods.GroupVersion().WithResource("foos"), e, false, false)
			if err != nil {
				t.Fatal(err)
			}
			if !o.In(variant.Trim, nil) {
				t.Errorf("%s: %v is not selected in %s", where, value, e)
			}
		}
	}
}

// A form says why it can't be made.
func TestFormErrors(t *testing.T) {
	f := func(resource, where string, keep Kept, e framing.Encoding, metadata bool, want string) {
		t.Helper()
		part := Part{Resource: Resource(resource), Where: Where(where)}
		if keep != "" {
			part.Keep = []Kept{keep}
		}
		v := newView(metrics.NewSet(), Config{Name: "v", Resources: []Part{part}})
		_, err := v.Variant(pods.GroupVersion().WithResource(resource), e, metadata, false)
		if fmt.Sprint(err) != want {
			t.Errorf("%+v: got %v, want %s", part, err, want)
		}
	}
	f("pods", "status.phase=x", "", framing.JSON, true, "it selects by status.phase, which metadata alone has not")
	f("pods", "status.newer=x", "", framing.Protobuf, false, "in protobuf status.newer is not known")
	f("pods", "", "spec.newer", framing.Protobuf, false, "in protobuf spec.newer is not known")
	f("pods", "", "spec.nodeName.x", framing.Protobuf, false, "in protobuf spec.nodeName is no object")
	ignored := newView(metrics.NewSet(), Config{Name: "v", Resources: []Part{{Resource: "pods", Drop: []Field{"spec.newer", "data", "spec.nodeName"}}}})
	if variant, err := ignored.Variant(pods, framing.Protobuf, false, false); err != nil || variant.Trim == nil {
		t.Errorf("a field to drop that is not known: %v", err)
	}
	f("foos", "", "spec", framing.Protobuf, false, "in protobuf custom resources are not known")
	f("foos", "", "metadata.generation", framing.Protobuf, false, "<nil>")
	f("foos", "metadata.name=x", "spec", framing.Protobuf, true, "<nil>")
	f("pods", "kind=Pod", "", framing.Protobuf, false, "in protobuf kind is not known")
	f("foos", "spec.a.b.c=x", "spec", framing.JSON, false, "<nil>")
}

// A part selects by labels and namespaces too, and a quiet view is told only of what it shows.
func TestFormsAreQuiet(t *testing.T) {
	v := newView(metrics.NewSet(), Config{Name: "v", Quiet: true, Resources: []Part{{Resource: "pods", Keep: []Kept{"status.podIPs"},
		LabelSelector: "a=b", Namespaces: Namespaces{Names: []Name{"ns"}}}}})
	pod := objects()[0].(*corev1.Pod)
	changed := func(f func(*corev1.Pod)) *corev1.Pod {
		p := pod.DeepCopy()
		p.ResourceVersion = "1000"
		f(p)
		return p
	}
	for i, c := range []struct {
		o        *corev1.Pod
		in, same bool
	}{
		{pod, true, true},
		{changed(func(p *corev1.Pod) {
			p.Status.Phase, p.ManagedFields[0].Time = "Failed", &metav1.Time{Time: time.Unix(1, 0)}
		}), true, true},
		{changed(func(p *corev1.Pod) { p.Status.PodIPs = p.Status.PodIPs[1:] }), true, false},
		{changed(func(p *corev1.Pod) { p.Labels["c"] = "d" }), true, false},
		{changed(func(p *corev1.Pod) { p.OwnerReferences = nil }), true, false},
		{changed(func(p *corev1.Pod) { p.Labels["a"] = "c" }), false, false},
		{changed(func(p *corev1.Pod) { p.Namespace = "other" }), false, false},
	} {
		for _, e := range []framing.Encoding{framing.JSON, framing.Protobuf} {
			variant, err := v.Variant(pods, e, false, false)
			if err != nil {
				t.Fatal(err)
			}
			before, _ := inBoth(t, pod)
			o, wire := inBoth(t, c.o)
			if e == framing.Protobuf {
				_, before = inBoth(t, pod)
				o = wire
			}
			if got := o.In(variant.Trim, nil); got != c.in {
				t.Errorf("case %d in %s: in the view %v", i, e, got)
			}
			if got := c.in && o.SameIn(variant.Trim, before); got != c.same {
				t.Errorf("case %d in %s: the same %v", i, e, got)
			}
		}
	}
	if !v.Changes(pods.GroupResource()) || !v.Selects(pods.GroupResource()) || v.Changes(secrets.GroupResource()) || v.Selects(secrets.GroupResource()) {
		t.Error("the view is of pods alone")
	}
}

// The form of a version is the same whether the version before has one, which spares work, or not, and so is
// what is told of the change.
func TestFormsFollow(t *testing.T) {
	long := func(random *rand.Rand) string {
		return strings.Repeat("0123456789"[random.IntN(10):], 8+random.IntN(3))
	}
	v := newView(metrics.NewSet(), Config{Name: "v", Quiet: true, Resources: []Part{{Resource: "pods", Where: "status.phase!=Failed",
		Keep: []Kept{"spec.nodeName", "spec.containers.image", "status.podIPs", "metadata.annotations['kept']"}, Drop: []Field{"metadata.ownerReferences"}}}})
	changes := []func(*corev1.Pod, *rand.Rand){
		func(p *corev1.Pod, r *rand.Rand) { p.Spec.Containers[r.IntN(2)].Image = long(r) },
		func(p *corev1.Pod, r *rand.Rand) {
			p.Spec.Containers[0].Args = append(p.Spec.Containers[0].Args[r.IntN(1+len(p.Spec.Containers[0].Args)):], long(r), "]}\"")
		},
		func(p *corev1.Pod, r *rand.Rand) { p.Spec.Containers[1].Env[0].Value = long(r) },
		func(p *corev1.Pod, r *rand.Rand) { p.Status.PodIPs[0].IP = "10.0.0." + fmt.Sprint(r.IntN(3)) },
		func(p *corev1.Pod, r *rand.Rand) {
			p.Annotations = map[string]string{[]string{"kept", "other"}[r.IntN(2)]: long(r)}
		},
		func(p *corev1.Pod, r *rand.Rand) {
			p.Status.Phase = []corev1.PodPhase{"Running", "Running", "Failed"}[r.IntN(3)]
		},
		func(p *corev1.Pod, r *rand.Rand) {
			p.Status.Conditions = []corev1.PodCondition{{Type: "Ready", Message: long(r)}, {Type: "Other", Message: long(r)}}[:r.IntN(3)]
		},
		func(p *corev1.Pod, r *rand.Rand) {
			p.ManagedFields[0].Time = &metav1.Time{Time: time.Unix(int64(r.IntN(1e9)), 0)}
		},
		func(p *corev1.Pod, r *rand.Rand) { p.Status.QOSClass = corev1.PodQOSClass(long(r)) },
	}
	var said [2]int
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 3))
		pod := objects()[0].(*corev1.Pod)
		pod.Spec.Containers[1].Env, pod.OwnerReferences = []corev1.EnvVar{{Name: "e"}}, nil
		pod.ResourceVersion = "95"
		var last [2]*framing.Object
		last[0], last[1] = inBoth(t, pod)
		for rv := range 20 {
			before := pod
			pod = pod.DeepCopy()
			pod.ResourceVersion = fmt.Sprint(96 + rv)
			for range random.IntN(3) {
				changes[random.IntN(len(changes))](pod, random)
			}
			before.ResourceVersion = pod.ResourceVersion
			var now, alone, older [2]*framing.Object
			now[0], now[1] = inBoth(t, pod)
			alone[0], alone[1] = inBoth(t, pod)
			older[0], older[1] = inBoth(t, before)
			for i, e := range []framing.Encoding{framing.JSON, framing.Protobuf} {
				variant, _ := v.Variant(pods, e, false, false)
				of := func(o *framing.Object) string { return string(bytes.Join(o.AppendTrimmed(nil, variant.Trim), nil)) }
				in := now[i].In(variant.Trim, last[i])
				if want := alone[i].In(variant.Trim, nil); in != want {
					t.Fatalf("seed %d, %s: in the view %v, want %v", seed, e, in, want)
				}
				if in && last[i].In(variant.Trim, nil) {
					same := now[i].SameIn(variant.Trim, last[i])
					if same != (of(alone[i]) == of(older[i])) {
						t.Fatalf("seed %d, %s: the same %v:\n%q\n%q", seed, e, same, of(older[i]), of(alone[i]))
					}
					said[len(fmt.Sprint(same))-4]++
				}
				if random.IntN(2) == 0 && of(now[i]) != of(alone[i]) {
					t.Fatalf("seed %d, %s: got %q, want %q", seed, e, of(now[i]), of(alone[i]))
				}
			}
			last = now
		}
	}
	if min(said[0], said[1]) < 200 {
		t.Errorf("%d changes are quiet, and %d are told", said[0], said[1])
	}
}

// An event that is quiet for all clients of a view is a walk over what may have changed, and a comparison of what is visible.
func BenchmarkQuiet(b *testing.B) {
	pod := objects()[0].(*corev1.Pod)
	pod.Spec.Containers[0].Env = nil
	for i := range 12 {
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprint("NAME_", i), Value: strings.Repeat("value ", 12)})
	}
	pod.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(`{"f:metadata":{` + strings.Repeat(`"f:labels":{".":{},"f:app":{}},`, 40) + `"f:annotations":{}}}`)
	v := newView(metrics.NewSet(), Config{Name: "v", Quiet: true, Resources: []Part{{Resource: "pods",
		Keep: []Kept{"spec.nodeName", "status.phase", "status.podIPs"}, Where: "status.phase notin (Succeeded, Failed)", Namespaces: Namespaces{Labels: "team=a"}}}})
	inJSON, inProtobuf := inBoth(b, pod)
	for e, before := range map[framing.Encoding]*framing.Object{framing.JSON: inJSON, framing.Protobuf: inProtobuf} {
		b.Run(e.String(), func(b *testing.B) {
			variant, err := v.Variant(pods, e, false, false)
			if err != nil || !before.In(variant.Trim, nil) {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.SetBytes(int64(len(before.Bytes())))
			for b.Loop() {
				if after := before.Repeated(7); !after.In(variant.Trim, before) || !after.SameIn(variant.Trim, before) {
					b.Fatal("told")
				}
			}
		})
	}
}

// FuzzForms cuts any bytes that a scanner takes for a pod. What is left is an object without anything else to
// leave out. If Go's types would have written the bytes, it is what is left of the decoded object.
func FuzzForms(f *testing.F) {
	notJSON := objects()[0].(*corev1.Pod)
	notJSON.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(`"`)
	for _, o := range append(objects()[:2], notJSON) {
		raw, err := o.(*corev1.Pod).Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	v := newView(metrics.NewSet(), Config{Name: "v", Quiet: true, Resources: []Part{{Resource: "pods", Where: "status.startTime!='2001-09-09T01:46:40Z',spec.hostNetwork!=x",
		Keep: []Kept{"spec.nodeName", "spec.containers[*].resources.limits['cpu']", "spec.volumes[*].configMap.name", "status", "metadata.annotations['a/b']"},
		Drop: []Field{"status.conditions.type", "status.containerStatuses"}}}})
	variant, err := v.Variant(pods, framing.Protobuf, false, false)
	if err != nil {
		f.Fatal(err)
	}
	scanner, typeMeta := framing.NewScanner(framing.Protobuf, nil), []byte("\n\t\n\x02v1\x12\x03Pod")
	f.Fuzz(func(t *testing.T, raw []byte) {
		o, err := scanner.Item(raw, typeMeta)
		if err != nil {
			return
		}
		left := bytes.Join(o.AppendTrimmed(nil, variant.Trim), nil)
		_ = o.In(variant.Trim, nil)
		again, ok := variant.Trim.With(nil, false).Body(framing.Protobuf, left)
		if twice := bytes.Join(again, nil); !ok || again != nil && !bytes.Equal(twice, left) {
			t.Fatalf("%q became %q and then %q", raw, left, twice)
		}
		var pod corev1.Pod
		if err := pod.Unmarshal(raw); err != nil {
			return
		}
		if written, err := pod.Marshal(); err != nil || !bytes.Equal(written, raw) {
			return
		}
		if _, err := json.Marshal(&pod); err != nil {
			return // the twin reads JSON, and a FieldsV1 may be none
		}
		var keep [][]string
		for _, name := range slices.Concat(identity, owners) {
			keep = append(keep, []string{"metadata", name})
		}
		keep = append(append(keep, v.parts[0].keep...), []string{"kind"}, []string{"apiVersion"})
		want := withoutEmpty(removed(decoded(t, o.Bytes()), keep, v.parts[0].drop))
		if got := withoutEmpty(decoded(t, left)); !reflect.DeepEqual(got, want) {
			t.Fatalf("got %v\nwant %v", got, want)
		}
	})
}
