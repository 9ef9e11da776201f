package enrol

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/watchfan/watchfan/proxy/gate/view"
)

// Target is what is enrolled: a namespace, or a workload of one.
type Target struct {
	Resource        schema.GroupVersionResource
	Namespace, Name string // of a namespace, Namespace is ""
}

// kinds are the kinds of workloads by the names that kubectl accepts.
var kinds = map[string]string{"deployment": "deployments", "deploy": "deployments", "statefulset": "statefulsets",
	"sts": "statefulsets", "daemonset": "daemonsets", "ds": "daemonsets"}

// ParseTarget reads NAMESPACE, or TYPE/NAME of a namespace.
func ParseTarget(argument, namespace string) (Target, error) {
	kind, name, workload := strings.Cut(argument, "/")
	kind = strings.ToLower(strings.TrimSuffix(kind, ".apps"))
	resource := cmp.Or(kinds[kind], kinds[strings.TrimSuffix(kind, "s")])
	switch {
	case !workload && namespace != "":
		return Target{}, fmt.Errorf("%s: give TYPE/NAME with -n, or the name of a namespace without it", argument)
	case !workload:
		return Target{Resource: Namespaces, Name: argument}, nil
	case resource == "":
		return Target{}, fmt.Errorf("%s: give deployment/NAME, statefulset/NAME or daemonset/NAME; put the label "+
			"%s=true on the pod template of anything else", argument, Label)
	case namespace == "":
		return Target{}, fmt.Errorf("%s: give its namespace with -n", argument)
	}
	return Target{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: resource}, namespace, name}, nil
}

func (t Target) String() string {
	if t.Namespace == "" {
		return "namespace/" + t.Name
	}
	return strings.TrimSuffix(t.Resource.Resource, "s") + "/" + t.Name
}

// Enroller changes labels, and templates where there is no policy.
type Enroller struct {
	Client dynamic.Interface
	// DryRun asks kube-apiserver for the result of a change, and changes nothing.
	DryRun bool
	// Template writes all that the policy would change into the workload's template.
	Template bool
	// View is the view in which a namespace's clients read; "" leaves it as it is.
	View string
}

var policies = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1",
	Resource: "mutatingadmissionpolicies"}

// hasPolicy reports whether the cluster has the policy. Who may not look assumes that it has: then seen is false.
func (e *Enroller) hasPolicy(ctx context.Context) (policy, seen bool, err error) {
	_, err = e.Client.Resource(policies).Get(ctx, PolicyName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, true, nil
	case apierrors.IsForbidden(err):
		return true, false, nil
	}
	return err == nil, true, err
}

// Enrol enrols t, and returns it as it is then.
func (e *Enroller) Enrol(ctx context.Context, t Target) (*unstructured.Unstructured, error) {
	policy, seen, err := e.hasPolicy(ctx)
	if err != nil {
		return nil, err
	}
	if t.Namespace == "" {
		if !policy {
			return nil, fmt.Errorf("this cluster has no policy %s: install the chart with enrol.enabled=true, which needs "+
				"Kubernetes 1.36, or enrol workloads one by one", PolicyName)
		}
		labels := map[string]any{Label: "true"}
		if e.View != "" {
			labels[view.Label] = e.View
		}
		o, err := e.label(ctx, t.Name, labels)
		if err == nil && !e.DryRun {
			err = e.awaitEnrolment(ctx, t.Name, nil, seen)
		}
		return o, err
	}
	namespace, err := e.Client.Resource(Namespaces).Get(ctx, t.Namespace, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	_, labelled := namespace.GetLabels()[Label]
	if !labelled && !e.DryRun {
		if _, err := e.label(ctx, t.Namespace, map[string]any{Label: "pods"}); err != nil {
			return nil, fmt.Errorf("the namespace needs the label %s=pods: %w", Label, err)
		}
	}
	if policy && !e.Template {
		asks := map[string]any{Label: "true"}
		if !e.DryRun {
			if err = e.awaitEnrolment(ctx, t.Namespace, asks, seen); err != nil {
				return nil, err
			}
		}
		return e.patch(ctx, t, template(map[string]any{"metadata": map[string]any{"labels": asks}}))
	}
	if !labelled && e.DryRun { // nobody writes the bundle meanwhile
		if addresses, err := e.bundle(ctx, t.Namespace); err != nil || len(addresses) == 0 {
			return nil, cmp.Or(err, fmt.Errorf("namespace %s has neither the label %s nor a ConfigMap %s with addresses: give it "+
				"the label %[2]s=pods first, which a dry run does not", t.Namespace, Label, BundleName))
		}
	}
	return e.write(ctx, t)
}

// Leave takes back what Enrol does, and returns t as it is then.
func (e *Enroller) Leave(ctx context.Context, t Target) (*unstructured.Unstructured, error) {
	if t.Namespace == "" {
		o, err := e.label(ctx, t.Name, map[string]any{Label: nil, view.Label: nil})
		if err == nil && !e.DryRun {
			e.awaitPolicy(ctx, t.Name, nil, false)
		}
		return o, err
	}
	namespace, err := e.Client.Resource(Namespaces).Get(ctx, t.Namespace, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	spec, err := e.podSpec(ctx, t)
	if err != nil {
		return nil, err
	}
	labels := map[string]any{Label: nil, EnrolledLabel: nil}
	if namespace.GetLabels()[Label] == "true" {
		labels[Label] = "false"
	}
	return e.patch(ctx, t, template(map[string]any{"metadata": map[string]any{"labels": labels}, "spec": unwritten(spec)}))
}

// label gives a namespace labels; nil is the value of one that it must not have.
func (e *Enroller) label(ctx context.Context, namespace string, labels map[string]any) (*unstructured.Unstructured, error) {
	return e.patch(ctx, Target{Resource: Namespaces, Name: namespace},
		map[string]any{"metadata": map[string]any{"labels": labels}})
}

func template(content map[string]any) map[string]any {
	return map[string]any{"spec": map[string]any{"template": content}}
}

// patch makes a strategic merge patch.
func (e *Enroller) patch(ctx context.Context, t Target, content map[string]any) (*unstructured.Unstructured, error) {
	body, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	options := metav1.PatchOptions{FieldManager: "kubectl-watchfan"}
	if e.DryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	resource := e.Client.Resource(t.Resource).Namespace(t.Namespace)
	return resource.Patch(ctx, t.Name, types.StrategicMergePatchType, body, options)
}

// bundlePatience is how long a keeper may take to write a bundle.
const bundlePatience = 15 * time.Second

// awaitBundle waits for a namespace's bundle, because a pod that is created before is not enrolled. It
// returns the addresses.
func (e *Enroller) awaitBundle(ctx context.Context, namespace string) (addresses []string, err error) {
	complete := func(ctx context.Context) (bool, error) {
		addresses, err = e.bundle(ctx, namespace)
		return len(addresses) > 0, err
	}
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, bundlePatience, true, complete)
	if wait.Interrupted(err) {
		err = fmt.Errorf("namespace %s has the label, and no ConfigMap %s with addresses after %s: is enrol.enabled true "+
			"in the chart, and what does the keeper log?", namespace, BundleName, bundlePatience)
	}
	return addresses, err
}

// bundle returns the addresses of a namespace's bundle; none if there is none yet, or none with addresses.
func (e *Enroller) bundle(ctx context.Context, namespace string) (addresses []string, err error) {
	o, err := e.Client.Resource(ConfigMaps).Namespace(namespace).Get(ctx, BundleName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	text, _, _ := unstructured.NestedString(o.Object, "data", AddressesKey)
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' }), nil
}

// awaitEnrolment waits until a pod with labels would be enrolled in a namespace: see awaitPolicy. If the policy has
// not been seen and no such pod would be, there is none.
func (e *Enroller) awaitEnrolment(ctx context.Context, namespace string, labels map[string]any, seen bool) error {
	if _, err := e.awaitBundle(ctx, namespace); err != nil {
		return err
	}
	if e.awaitPolicy(ctx, namespace, labels, true) || seen {
		return nil
	}
	return fmt.Errorf("kube-apiserver enrols no pods in namespace %s, and does not say whether it has the policy %s: "+
		"enrol workloads one by one with --template", namespace, PolicyName)
}

// policyPatience is how long kube-apiserver may take to see a label and a bundle.
const policyPatience = 5 * time.Second

// awaitPolicy waits until a pod with labels would be enrolled in a namespace, or would not. It asks
// kube-apiserver, which sees a label and a bundle a little later. It does not wait where it may not ask, or
// where something else forbids such a pod. It reports false if kube-apiserver has said otherwise to the end.
func (e *Enroller) awaitPolicy(ctx context.Context, namespace string, labels map[string]any, want bool) bool {
	pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"generateName": "watchfan-enrol-", "labels": labels},
		"spec": map[string]any{"automountServiceAccountToken": true, // whatever the account says
			"containers": []any{map[string]any{"name": "c", "image": "i"}}}}}
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	follows := func(ctx context.Context) (bool, error) {
		o, err := e.Client.Resource(pods).Namespace(namespace).Create(ctx, pod.DeepCopy(), dry)
		return err == nil && (o.GetLabels()[EnrolledLabel] == "true") == want, err
	}
	return !wait.Interrupted(wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, policyPatience, true, follows))
}

func (e *Enroller) podSpec(ctx context.Context, t Target) (*corev1.PodSpec, error) {
	o, err := e.Client.Resource(t.Resource).Namespace(t.Namespace).Get(ctx, t.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	content, _, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	if err != nil {
		return nil, err
	}
	spec := &corev1.PodSpec{}
	return spec, runtime.DefaultUnstructuredConverter.FromUnstructured(content, spec)
}

// Where ServiceAccount admission mounts its volume, which it leaves out where something is mounted.
const accountPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// accessVolume is the name of the volume that is written into a template.
const accessVolume = "watchfan-access"

// write writes into the template what the policy changes in pods, with a token volume of its own.
func (e *Enroller) write(ctx context.Context, t Target) (*unstructured.Unstructured, error) {
	spec, err := e.podSpec(ctx, t)
	if err != nil {
		return nil, err
	}
	if err := e.hasToken(ctx, t, spec); err != nil {
		return nil, err
	}
	addresses, err := e.awaitBundle(ctx, t.Namespace)
	if err != nil {
		return nil, err
	}
	fields, err := written(spec, addresses)
	if err != nil {
		return nil, err
	}
	return e.patch(ctx, t, template(map[string]any{
		"metadata": map[string]any{"labels": map[string]any{Label: "true", EnrolledLabel: "true"}}, "spec": fields}))
}

// hasToken returns an error if pods of a template get no token by themselves: a volume would give them
// one.
func (e *Enroller) hasToken(ctx context.Context, t Target, spec *corev1.PodSpec) error {
	mount := spec.AutomountServiceAccountToken
	if mount == nil {
		account, err := e.Client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}).
			Namespace(t.Namespace).Get(ctx, cmp.Or(spec.ServiceAccountName, "default"), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if v, ok, _ := unstructured.NestedBool(account.Object, "automountServiceAccountToken"); ok {
			mount = &v
		}
	}
	if mount != nil && !*mount {
		return errors.New("its pods get no token (automountServiceAccountToken is false), so they do not use kube-apiserver")
	}
	return nil
}

// written returns the fields of a template's spec, as a strategic merge patch. Containers that say
// where kube-apiserver is, or mount something in the token's place, are left alone, and as by the policy so are
// templates without others and those with an alias of their own. Addresses of an earlier Service are taken out.
func written(spec *corev1.PodSpec, addresses []string) (map[string]any, error) {
	var aliases []any
	again := isWritten(spec)
	for _, a := range spec.HostAliases {
		switch {
		case !again && (slices.Contains(a.Hostnames, Host) || slices.Contains(addresses, a.IP)):
			return nil, fmt.Errorf("its template has a host alias of its own for %s: %q", a.IP, a.Hostnames)
		case slices.Equal(a.Hostnames, []string{Host}) && !slices.Contains(addresses, a.IP):
			aliases = append(aliases, remove("ip", a.IP))
		}
	}
	for _, ip := range addresses {
		aliases = append(aliases, map[string]any{"ip": ip, "hostnames": []string{Host}})
	}
	sources := []any{
		map[string]any{"serviceAccountToken": map[string]any{"path": "token", "expirationSeconds": 3607}},
		map[string]any{"configMap": map[string]any{"name": BundleName,
			"items": []any{map[string]any{"key": caKey, "path": caKey}}}},
		map[string]any{"downwardAPI": map[string]any{"items": []any{map[string]any{"path": "namespace",
			"fieldRef": map[string]any{"fieldPath": "metadata.namespace"}}}}},
	}
	volume := map[string]any{"name": accessVolume, "projected": map[string]any{"sources": sources}}
	fields := map[string]any{"hostAliases": aliases, "volumes": []any{volume}}
	for list, containers := range lists(spec) {
		var patched []any
		for _, c := range containers {
			if slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return variables[v.Name] != "" }) ||
				slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == accountPath }) {
				continue
			}
			var env []any
			for name, value := range variables {
				env = append(env, map[string]any{"name": name, "value": value})
			}
			patched = append(patched, map[string]any{"name": c.Name, "env": env,
				"volumeMounts": []any{map[string]any{"name": accessVolume, "mountPath": accountPath, "readOnly": true}}})
		}
		if len(patched) > 0 {
			fields[list] = patched
		}
	}
	if !again && fields["containers"] == nil && fields["initContainers"] == nil {
		return nil, errors.New("its containers say themselves where kube-apiserver is, or have a token of their own")
	}
	return fields, nil
}

// isWritten reports whether written has been put into a template.
func isWritten(spec *corev1.PodSpec) bool {
	return slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == accessVolume })
}

// remove is the element of a strategic merge patch that takes the one with this key out of a list.
func remove(key, value string) any { return map[string]any{key: value, "$patch": "delete"} }

func lists(spec *corev1.PodSpec) map[string][]corev1.Container {
	return map[string][]corev1.Container{"containers": spec.Containers, "initContainers": spec.InitContainers}
}

// variables are what enrolled containers have.
var variables = map[string]string{"KUBERNETES_SERVICE_HOST": Host, "KUBERNETES_SERVICE_PORT": "443"}

// unwritten returns a strategic merge patch that takes out of a template's spec what written puts in.
func unwritten(spec *corev1.PodSpec) map[string]any {
	fields := make(map[string]any)
	if !isWritten(spec) {
		return fields
	}
	fields["volumes"] = []any{remove("name", accessVolume)}
	var aliases []any
	for _, a := range spec.HostAliases {
		if slices.Equal(a.Hostnames, []string{Host}) {
			aliases = append(aliases, remove("ip", a.IP))
		}
	}
	if len(aliases) > 0 { // null would take out all
		fields["hostAliases"] = aliases
	}
	for list, containers := range lists(spec) {
		var patched []any
		for _, c := range containers {
			if slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == accessVolume }) {
				var env []any
				for name := range variables {
					env = append(env, remove("name", name))
				}
				patched = append(patched, map[string]any{"name": c.Name, "env": env,
					"volumeMounts": []any{remove("mountPath", accountPath)}})
			}
		}
		if len(patched) > 0 {
			fields[list] = patched
		}
	}
	return fields
}
