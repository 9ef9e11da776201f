package deploytest

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"
)

// TestSidecar: kube-apiserver accepts the manifests.
func TestSidecar(t *testing.T) {
	c := theCluster(t)
	for _, name := range []string{"rbac.yaml", "kubelets.yaml", "static-pod.yaml", "daemonset.yaml"} {
		t.Run(name, func(t *testing.T) { c.dryRun(t, parse(t, readFile(t, "../sidecar/"+name))) })
	}
}

// apiServerPod contains the parts of kubeadm's static pod of kube-apiserver with which the patch
// could collide.
const apiServerPod = `
apiVersion: v1
kind: Pod
metadata: {name: kube-apiserver, namespace: kube-system, labels: {component: kube-apiserver, tier: control-plane}}
spec:
  hostNetwork: true
  priorityClassName: system-node-critical
  securityContext: {seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: kube-apiserver
      image: kube-apiserver
      command: [kube-apiserver, --secure-port=6443]
      ports: [{name: probe-port, containerPort: 6443, hostPort: 6443, protocol: TCP}]
      volumeMounts: [{name: k8s-certs, mountPath: /etc/kubernetes/pki, readOnly: true}]
  volumes:
    - name: k8s-certs
      hostPath: {path: /etc/kubernetes/pki, type: DirectoryOrCreate}
`

// TestKubeadmPatch: merged in kubeadm's way, the patch adds a container and does not change
// kube-apiserver's.
func TestKubeadmPatch(t *testing.T) {
	patch, err := yaml.YAMLToJSONStrict([]byte(readFile(t, "../sidecar/patches/kube-apiserver+strategic.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	original, err := yaml.YAMLToJSONStrict([]byte(apiServerPod))
	if err != nil {
		t.Fatal(err)
	}
	merged, err := strategicpatch.StrategicMergePatch(original, patch, corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	var before, after corev1.Pod
	if err := yaml.UnmarshalStrict(original, &before); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(merged, &after); err != nil {
		t.Fatal(err)
	}
	if len(after.Spec.Containers) != 3 || len(after.Spec.Volumes) != 3 {
		t.Fatalf("got %s", merged)
	}
	for _, container := range after.Spec.Containers {
		if container.Name == "kube-apiserver" && container.String() != before.Spec.Containers[0].String() {
			t.Errorf("kube-apiserver's container has become %s", container.String())
		}
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(merged); err != nil {
		t.Fatal(err)
	}
	theCluster(t).dryRun(t, []*unstructured.Unstructured{o})
}

// TestSidecarFallback: in each manifest the second watchfan falls back for the first, at the same port.
func TestSidecarFallback(t *testing.T) {
	for _, name := range []string{"static-pod.yaml", "daemonset.yaml", "patches/kube-apiserver+strategic.yaml"} {
		var pairs [][]string
		for _, o := range parse(t, readFile(t, "../sidecar/"+name)) {
			spec, found, _ := unstructured.NestedMap(o.Object, "spec", "template", "spec")
			if !found {
				spec, _, _ = unstructured.NestedMap(o.Object, "spec")
			}
			for _, c := range containers(spec) {
				args, _, _ := unstructured.NestedStringSlice(c, "args")
				pairs = append(pairs, args)
			}
		}
		if len(pairs) != 2 {
			t.Fatalf("%s: %d containers", name, len(pairs))
		}
		for _, flag := range []string{"--secure-port=8443", "--bind-address=0.0.0.0"} {
			if !slices.Contains(pairs[0], flag) || !slices.Contains(pairs[1], flag) {
				t.Errorf("%s: not both have %s", name, flag)
			}
		}
		if !slices.Contains(pairs[0], "--permit-port-sharing") || !slices.Contains(pairs[0], "--admin-port=8002") ||
			!slices.Contains(pairs[1], "--fallback-for=http://127.0.0.1:8002/readyz") {
			t.Errorf("%s: the second does not fall back for the first", name)
		}
	}
}

// TestSidecarIsWithinTheChartsRights: the lists of rules, which are kept by hand, agree. Kubelets take
// the same rights at both.
func TestSidecarIsWithinTheChartsRights(t *testing.T) {
	chart, sidecar := rights(render(t, "")), rights(parse(t, readFile(t, "../sidecar/rbac.yaml")))
	if len(sidecar) < 40 {
		t.Errorf("only %d rights were read", len(sidecar))
	}
	if !sidecar["get namespaces."] {
		t.Error("the sidecar may not get the namespace kube-system, and keeps nothing in --cache-dir")
	}
	for right := range sidecar {
		if !chart[right] {
			t.Errorf("the sidecar may %s, the chart may not", right)
		}
	}
	kubelets := rights(render(t, kubeletValues))
	maps.DeleteFunc(kubelets, func(right string, _ bool) bool { return chart[right] })
	if got := rights(parse(t, readFile(t, "../sidecar/kubelets.yaml"))); !maps.Equal(got, kubelets) {
		t.Errorf("kubelets.yaml: %v\nthe chart: %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(kubelets)))
	}
}

// TestNodesActAsNobody: each node has a token with the ClusterRole that the DaemonSet names, which lists and watches,
// whomever the tier may act as.
func TestNodesActAsNobody(t *testing.T) {
	name := ""
	for _, o := range parse(t, readFile(t, "../sidecar/daemonset.yaml")) {
		if o.GetKind() == "ClusterRoleBinding" {
			name, _, _ = unstructured.NestedString(o.Object, "roleRef", "name")
		}
	}
	for _, values := range []string{"", kubeletValues, strings.Replace(kubeletValues, "nodes:", "unconstrained: true, nodes:", 1)} {
		all := slices.DeleteFunc(render(t, values), func(o *unstructured.Unstructured) bool {
			return o.GetKind() != "ClusterRole" || o.GetName() != name
		})
		may := rights(all)
		if !may["list pods."] {
			t.Errorf("%q: %s may %v", values, name, may)
		}
		for right := range may {
			if verb, _, _ := strings.Cut(right, " "); !slices.Contains([]string{"get", "list", "watch"}, verb) {
				t.Errorf("%q: a node may %s", values, right)
			}
		}
	}
}

// TestFallbackActsAs: a fall-back's account sees the tier's endpoints and writes its slices, acts as those whom the tier's
// may act as, and has no other right.
func TestFallbackActsAs(t *testing.T) {
	for _, values := range []string{"", kubeletValues} {
		of := func(end string) map[string]bool {
			return rights(slices.DeleteFunc(render(t, values), func(o *unstructured.Unstructured) bool {
				return !strings.HasSuffix(o.GetKind(), "Role") || !strings.HasSuffix(o.GetName(), end)
			}))
		}
		want := of("-impersonation")
		if (values != "") != want["impersonate:arbitrary-node nodes.authentication.k8s.io"] {
			t.Errorf("%q: the tier may %v", values, slices.Sorted(maps.Keys(want)))
		}
		want["get /readyz"] = true
		for _, verb := range []string{"list", "create", "patch"} {
			want[verb+" endpointslices.discovery.k8s.io"] = true
		}
		if got := of("-fallback"); !maps.Equal(got, want) {
			t.Errorf("%q: a fall-back may %v, want %v", values, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
	}
}

// rights returns what the rules of objects allow, as a verb and a resource with its group, or a path.
func rights(objects []*unstructured.Unstructured) map[string]bool {
	all := make(map[string]bool)
	for _, o := range objects {
		list, _, _ := unstructured.NestedSlice(o.Object, "rules")
		for _, rule := range list {
			rule := rule.(map[string]any)
			groups, _, _ := unstructured.NestedStringSlice(rule, "apiGroups")
			resources, _, _ := unstructured.NestedStringSlice(rule, "resources")
			on, _, _ := unstructured.NestedStringSlice(rule, "nonResourceURLs")
			for _, group := range groups {
				for _, resource := range resources {
					on = append(on, resource+"."+group)
				}
			}
			verbs, _, _ := unstructured.NestedStringSlice(rule, "verbs")
			for _, verb := range verbs {
				for _, right := range on {
					all[verb+" "+right] = true
				}
			}
		}
	}
	return all
}
