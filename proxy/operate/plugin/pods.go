package plugin

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
)

const (
	nameLabel = "app.kubernetes.io/name"
	// nodesName is the name of the DaemonSet's pods, whose upstream is the tier.
	nodesName = "watchfan-node"
	// everyPod selects the pods of the chart and the static pods, and those of the DaemonSet.
	everyPod = nameLabel + " in (watchfan," + nodesName + ")"
)

// adminPort is watchfan's own default. The chart and the DaemonSet name the port "admin".
const adminPort = 8002

// mostPods is how many pods are asked one after another.
const mostPods = 50

// A pod of watchfan.
type pod struct {
	namespace, name string
	admin           int      // port
	onNode          bool     // its upstream is the tier
	ips             []string // its addresses
}

func (p pod) String() string { return p.namespace + "/" + p.name }

func names(pods []pod) string {
	var names []string
	for _, p := range pods {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

// findPods returns the running pods of a namespace, "" for all, that a selector matches, and that
// have a name, if it is given. The error says where it has looked.
func findPods(ctx context.Context, client dynamic.Interface, namespace, name, selector string) ([]pod, error) {
	where, chosen := "any namespace", metav1.ListOptions{LabelSelector: selector}
	if namespace != "" {
		where = "namespace " + namespace
	}
	if name != "" {
		chosen.FieldSelector = "metadata.name=" + name
		where += " with the name " + name
	}
	list, err := client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(namespace).List(ctx, chosen)
	if err != nil {
		hint := ""
		if namespace == "" {
			hint = "; --pod-namespace looks in one namespace"
		}
		return nil, fmt.Errorf("list the pods of watchfan: %.500v%s", err, hint)
	}
	var pods []pod
	for _, o := range list.Items {
		var item corev1.Pod
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &item); err != nil {
			return nil, fmt.Errorf("list the pods of watchfan: %w", err)
		}
		if item.Status.Phase != corev1.PodRunning || item.DeletionTimestamp != nil {
			continue
		}
		p := pod{namespace: item.Namespace, name: item.Name, admin: adminPort,
			onNode: item.Labels[nameLabel] == nodesName}
		for _, ip := range item.Status.PodIPs {
			p.ips = append(p.ips, ip.IP)
		}
		if len(validation.IsDNS1123Subdomain(p.name))+len(validation.IsDNS1123Label(p.namespace)) > 0 {
			return nil, fmt.Errorf("list the pods of watchfan: no pod can have the name %q in a namespace %q", p.name, p.namespace)
		}
		for _, c := range item.Spec.Containers {
			for _, port := range c.Ports {
				if port.Name == "admin" {
					p.admin = int(port.ContainerPort)
				}
			}
		}
		pods = append(pods, p)
	}
	if len(pods) > mostPods {
		return nil, fmt.Errorf("%d pods of watchfan run in %s, more than %d: choose some with --pod, --pod-namespace "+
			"or --pod-selector", len(pods), where, mostPods)
	}
	if len(pods) == 0 {
		return nil, fmt.Errorf("no pod of watchfan runs in %s: %d match %q, and none of them is running", where,
			len(list.Items), selector)
	}
	return pods, nil
}
