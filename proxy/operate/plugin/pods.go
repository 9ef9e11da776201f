package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/pass/upstream"
)

// everyPod selects the pods of the chart and the static pods, and those of the DaemonSet.
const everyPod = "app.kubernetes.io/name in (watchfan,watchfan-node)"

// adminPort is watchfan's own default. The chart and the DaemonSet name the port "admin".
const adminPort = 8002

// mostPods is how many pods are asked one after another.
const mostPods = 50

const (
	lookupTimeout = 10 * time.Second
	maxPodsBytes  = 64 << 20 // of an answer
)

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
	path, where := "/api/v1/pods", "any namespace"
	if namespace != "" {
		path, where = "/api/v1/namespaces/"+url.PathEscape(namespace)+"/pods", "namespace "+namespace
	}
	query := url.Values{"labelSelector": {selector}}
	if name != "" {
		query.Set("fieldSelector", "metadata.name="+name)
		where += " with the name " + name
	}
	var list corev1.PodList
	if err := get(ctx, cfg, path, query, &list); err != nil {
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

// get decodes an answer of kube-apiserver. An error has kube-apiserver's own words.
func get(ctx context.Context, cfg *rest.Config, path string, query url.Values, v any) error {
	server, err := upstream.NewUpstream(cfg)
	if err != nil {
		return err
	}
	defer server.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	resp, err := upstream.GetOwn(ctx, server, path, query.Encode(), "application/json")
	if err != nil {
		return fmt.Errorf("%s does not answer: %w", server.Address(), err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPodsBytes))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		var status metav1.Status
		if json.Unmarshal(body, &status) == nil && status.Message != "" {
			return errors.New(status.Message)
		}
		return fmt.Errorf("%s answers %s", server.Address(), resp.Status)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%s is no kube-apiserver: %w", server.Address(), err)
	}
	return nil
}
