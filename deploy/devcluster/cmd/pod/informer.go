package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// informer is what a container runs without a command: it follows the ConfigMaps of its namespace as a
// controller does, with client-go's in-cluster configuration. It writes each request that is answered and,
// once it has all ConfigMaps, each that comes. Requests may come from any goroutine.
type informer struct {
	mu   sync.Mutex
	out  io.Writer
	next http.RoundTripper
}

func (i *informer) say(format string, args ...any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	fmt.Fprintf(i.out, format+"\n", args...)
}

// run follows until ctx ends.
func (i *informer) run(ctx context.Context) error {
	klog.LogToStderr(false) // of breaks: what matters is the next request
	klog.SetOutput(io.Discard)
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		i.next = next
		return i
	})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	namespace, err := os.ReadFile(filepath.Join(accountPath, "namespace"))
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(string(namespace)))
	_, err = factory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, initial bool) {
			if m := o.(*corev1.ConfigMap); !initial {
				i.say("added %s", m.Name)
			}
		},
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}

// RoundTrip implements http.RoundTripper. Answers of kube-apiserver itself name the flow of its priorities.
func (i *informer) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := i.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	query, what, by := r.URL.Query(), "list", "watchfan"
	switch {
	case query.Get("sendInitialEvents") == "true":
		what = "list and watch"
	case query.Get("watch") != "":
		what = "watch on"
	}
	if answer.Header.Get("X-Kubernetes-Pf-Flowschema-Uid") != "" {
		by = "kube-apiserver"
	}
	i.say("%s: %s answers %s", what, by, http.StatusText(answer.StatusCode))
	return answer, nil
}
