package plugin

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// everyPod selects the pods of the chart and the static pods, and those of the DaemonSet.
const everyPod = "app.kubernetes.io/name in (watchfan,watchfan-node)"

// adminPort is watchfan's own default. The chart and the DaemonSet name the port "admin".
const adminPort = 8002

// mostPods is how many pods are asked one after another.
const mostPods = 50

const lookupTimeout = 10 * time.Second

// A pod of watchfan.
type pod struct {
	namespace, name string
	admin           int // port
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
func findPods(ctx context.Context, cfg *rest.Config, namespace, name, selector string) ([]pod, error) {
	where, choice := "any namespace", metav1.ListOptions{LabelSelector: selector}
	if namespace != "" {
		where = "namespace " + namespace
	}
	if name != "" {
		choice.FieldSelector = "metadata.name=" + name
		where += " with the name " + name
	}
	list, err := listPods(ctx, cfg, namespace, choice)
	if err != nil {
		if namespace == "" {
			err = fmt.Errorf("%w; -n looks in one namespace", err)
		}
		return nil, fmt.Errorf("list the pods of watchfan: %w", err)
	}
	var pods []pod
	for _, item := range list.Items {
		if item.Status.Phase != corev1.PodRunning || item.DeletionTimestamp != nil {
			continue
		}
		p := pod{item.Namespace, item.Name, adminPort}
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
		return nil, fmt.Errorf("%d pods of watchfan run in %s, more than %d: choose some with --pod, -n or -l",
			len(pods), where, mostPods)
	}
	if len(pods) == 0 {
		return nil, fmt.Errorf("no pod of watchfan runs in %s: %d match %q, and none of them is running", where,
			len(list.Items), selector)
	}
	return pods, nil
}

func listPods(ctx context.Context, cfg *rest.Config, namespace string, choice metav1.ListOptions) (pods corev1.PodList, err error) {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return pods, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(namespace).List(ctx, choice)
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(found.UnstructuredContent(), &pods)
	}
	return pods, err
}
