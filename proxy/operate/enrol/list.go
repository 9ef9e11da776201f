package enrol

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"

	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/gate/view"
)

// Workload is the pods of one controller, or one pod without a controller.
type Workload struct {
	Namespace, Name string // as deployment/web
	Pods, Enrolled  int
	Since           time.Time // of the oldest enrolled pod; zero if none is
	IPs             []string  // of the enrolled pods
	View            string    // that the namespace names; "" for none
	Restarts        bool      // kubectl rollout restart restarts it
}

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// pageSize is how many pods are listed at a time, and mostPages how many times. No cluster has so many pods.
const pageSize, mostPages = 500, 1000

// List returns the workloads that are enrolled, or could be, of namespaces with the label, or of one
// namespace. They are in order of namespace and name.
func List(ctx context.Context, client dynamic.Interface, namespace string) ([]*Workload, error) {
	selection := metav1.ListOptions{LabelSelector: Label}
	if namespace != "" {
		selection.FieldSelector = "metadata.name=" + namespace
	}
	namespaces, err := client.Resource(Namespaces).List(ctx, selection)
	if err != nil {
		return nil, err
	}
	found := make(map[string]*Workload) // by namespace and name
	for _, n := range namespaces.Items {
		page := metav1.ListOptions{Limit: pageSize}
		for pages := 0; pages == 0 || page.Continue != ""; pages++ {
			if pages == mostPages {
				return nil, errors.New("the list of pods does not end")
			}
			list, err := client.Resource(pods).Namespace(n.GetName()).List(ctx, page)
			if err != nil {
				return nil, err
			}
			for i := range list.Items {
				add(found, &list.Items[i], n.GetLabels())
			}
			page.Continue = list.GetContinue()
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *Workload) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}), nil
}

// add counts a pod of a namespace with labels. Pods that are never enrolled and those that have ended do not
// count.
func add(found map[string]*Workload, pod *unstructured.Unstructured, of map[string]string) {
	labels, all := pod.GetLabels(), of[Label] == "true"
	phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
	ended := phase == "Succeeded" || phase == "Failed" || pod.GetDeletionTimestamp() != nil
	if own, ok := labels[Label]; ended || own != "true" && (ok || !all || neverEnrolled(pod)) {
		return
	}
	name, restarts := workloadOf(pod)
	w := found[pod.GetNamespace()+" "+name]
	if w == nil {
		w = &Workload{Namespace: pod.GetNamespace(), Name: name, View: of[view.Label], Restarts: restarts}
		found[pod.GetNamespace()+" "+name] = w
	}
	w.Pods++
	if _, ok := labels[EnrolledLabel]; !ok {
		return
	}
	w.Enrolled++
	if created := pod.GetCreationTimestamp().Time; w.Since.IsZero() || created.Before(w.Since) {
		w.Since = created
	}
	w.IPs = append(w.IPs, addressesOf(pod)...)
}

// addressesOf returns the addresses of a pod, of each family.
func addressesOf(pod *unstructured.Unstructured) (all []string) {
	if ip, _, _ := unstructured.NestedString(pod.Object, "status", "podIP"); ip != "" {
		all = append(all, ip)
	}
	ips, _, _ := unstructured.NestedSlice(pod.Object, "status", "podIPs")
	for _, of := range ips {
		of, _ := of.(map[string]any)
		if ip, _, _ := unstructured.NestedString(of, "ip"); ip != "" && !slices.Contains(all, ip) {
			all = append(all, ip)
		}
	}
	return all
}

// neverEnrolled reports whether the policy leaves a pod alone that does not ask.
func neverEnrolled(pod *unstructured.Unstructured) bool {
	network, _, _ := unstructured.NestedBool(pod.Object, "spec", "hostNetwork")
	class, _, _ := unstructured.NestedString(pod.Object, "spec", "priorityClassName")
	return network || strings.HasPrefix(class, "system-") ||
		strings.HasPrefix(pod.GetLabels()["app.kubernetes.io/name"], "watchfan")
}

// workloadOf names the controller of a pod, and reports whether kubectl restarts it. A ReplicaSet's is its
// Deployment. Who creates a pod may write any text in the place of its owner: that is none.
func workloadOf(pod *unstructured.Unstructured) (workload string, restarts bool) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || len(validation.IsDNS1123Label(strings.ToLower(owner.Kind)))+len(validation.IsDNS1123Subdomain(owner.Name)) > 0 {
		return "pod/" + request.Shown(pod.GetName()), false
	}
	kind, name := strings.ToLower(owner.Kind), owner.Name
	if hash := pod.GetLabels()["pod-template-hash"]; kind == "replicaset" && hash != "" {
		kind, name = "deployment", strings.TrimSuffix(name, "-"+hash)
	}
	return fmt.Sprintf("%s/%s", kind, name), kinds[kind] != "" && strings.HasPrefix(owner.APIVersion, "apps/")
}
