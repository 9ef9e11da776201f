package plugin

import (
	"bytes"
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
	"k8s.io/apimachinery/pkg/util/validation"
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
	maxAnswer     = 64 << 20 // bytes of an answer
	mostObjects   = 2 << 20  // objects of JSON in it; 5,000 pods have less
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
	var list podList
	if err := get(ctx, cfg, path, query, &list); err != nil {
		if namespace == "" {
			err = fmt.Errorf("%w; -n looks in one namespace", err)
		}
		return nil, fmt.Errorf("list the pods of watchfan: %w", err)
	}
	var pods []pod
	for _, item := range list.Items {
		if item.Status.Phase != corev1.PodRunning || item.Metadata.DeletionTimestamp != nil {
			continue
		}
		p := pod{item.Metadata.Namespace, item.Metadata.Name, adminPort}
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
		return nil, fmt.Errorf("%d pods of watchfan run in %s, more than %d: choose some with --pod, -n or -l",
			len(pods), where, mostPods)
	}
	if len(pods) == 0 {
		return nil, fmt.Errorf("no pod of watchfan runs in %s: %d match %q, and none of them is running", where,
			len(list.Items), selector)
	}
	return pods, nil
}

// podList is what is read of a list of pods: of "{}" no more than it needs.
type podList struct {
	Items []struct {
		Metadata struct {
			Name, Namespace   string
			DeletionTimestamp *string
		}
		Spec struct {
			Containers []struct {
				Ports []struct {
					Name          string
					ContainerPort uint16
				}
			}
		}
		Status struct{ Phase corev1.PodPhase }
	}
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
	body, err := io.ReadAll(&bounded{ReadCloser: resp.Body, left: maxAnswer})
	if err != nil {
		return fmt.Errorf("%s: %w", server.Address(), err)
	}
	if resp.StatusCode != http.StatusOK {
		var status metav1.Status
		if json.Unmarshal(body, &status) == nil && status.Message != "" {
			return errors.New(status.Message)
		}
		return fmt.Errorf("%s answers %s", server.Address(), resp.Status)
	}
	if bytes.Count(body, []byte("{")) > mostObjects {
		return fmt.Errorf("%s: the answer has more than %d objects of JSON", server.Address(), mostObjects)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%s does not answer as kube-apiserver does: %w", server.Address(), err)
	}
	return nil
}
