package enrol

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"
)

// patched returns a template's spec after a patch, as kube-apiserver makes it.
func patched(t *testing.T, spec *corev1.PodSpec, patch map[string]any) *corev1.PodSpec {
	t.Helper()
	before, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(patch)
	if err != nil {
		t.Fatal(err)
	}
	after, err := strategicpatch.StrategicMergePatch(before, content, corev1.PodSpec{})
	if err != nil {
		t.Fatal(err)
	}
	spec = &corev1.PodSpec{}
	if err := json.Unmarshal(after, spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

func specOf(t *testing.T, text string) *corev1.PodSpec {
	t.Helper()
	spec := &corev1.PodSpec{}
	if err := yaml.UnmarshalStrict([]byte(text), spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

func wantAliases(t *testing.T, spec *corev1.PodSpec, want ...string) {
	t.Helper()
	var got []string
	for _, a := range spec.HostAliases {
		got = append(got, fmt.Sprint(a.IP, a.Hostnames))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("aliases %v, want %v", got, want)
	}
}

// A template that is written again leads to the Service as it is now. Whatever becomes of the aliases meanwhile,
// a workload that leaves keeps those of its own.
func TestWrittenAgain(t *testing.T) {
	spec := specOf(t, `
hostAliases: [{ip: 192.0.2.1, hostnames: [a]}]
containers: [{name: c, image: i}]
`)
	for _, ip := range []string{"10.0.0.7", "10.0.0.8"} {
		patch, err := written(spec, []string{ip})
		if err != nil {
			t.Fatal(err)
		}
		spec = patched(t, spec, patch)
		wantAliases(t, spec, ip+"[kubernetes.default.svc]", "192.0.2.1[a]")
		wantAliases(t, patched(t, spec, unwritten(spec)), "192.0.2.1[a]")
	}
	spec.HostAliases = spec.HostAliases[1:] // by hand
	left := patched(t, spec, unwritten(spec))
	wantAliases(t, left, "192.0.2.1[a]")
	if c := left.Containers[0]; len(left.Volumes)+len(c.Env)+len(c.VolumeMounts) > 0 {
		t.Errorf("%+v", left)
	}
}

// A template that the policy would leave alone is not written.
func TestWrittenNever(t *testing.T) {
	for _, text := range []string{
		"{hostAliases: [{ip: 192.0.2.1, hostnames: [kubernetes.default.svc]}], containers: [{name: c}]}",
		"{hostAliases: [{ip: 10.0.0.7, hostnames: [a]}], containers: [{name: c}]}", // it would lose its name
		"{containers: [{name: c, env: [{name: KUBERNETES_SERVICE_HOST, value: h}]}]}",
		"{containers: [{name: c, volumeMounts: [{name: v, mountPath: " + accountPath + "}]}]}",
	} {
		if patch, err := written(specOf(t, text), []string{"10.0.0.7"}); err == nil {
			t.Errorf("%s: %v", text, patch)
		}
	}
}
