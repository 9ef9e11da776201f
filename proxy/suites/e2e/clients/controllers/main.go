// Program controllers is a controller-runtime manager with a cache of chosen namespaces, as an
// operator has that may read only some. It follows ConfigMaps, Pods and Services in each namespace, and
// writes what its cache holds to a file whenever that changes: controllers --kubeconfig FILE NAMESPACES FILE.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// kinds are the kinds in the cache: an object and a list of each.
var kinds = []func() (client.Object, client.ObjectList){
	func() (client.Object, client.ObjectList) { return new(corev1.ConfigMap), new(corev1.ConfigMapList) },
	func() (client.Object, client.ObjectList) { return new(corev1.Pod), new(corev1.PodList) },
	func() (client.Object, client.ObjectList) { return new(corev1.Service), new(corev1.ServiceList) },
}

func main() {
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, strings.Split(flag.Arg(0), ","), flag.Arg(1)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, namespaces []string, file string) error {
	config, err := ctrl.GetConfig() // of --kubeconfig
	if err != nil {
		return err
	}
	chosen := make(map[string]cache.Config)
	for _, namespace := range namespaces {
		chosen[namespace] = cache.Config{}
	}
	m, err := ctrl.NewManager(config, ctrl.Options{
		Cache:   cache.Options{DefaultNamespaces: chosen},
		Metrics: server.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		object, _ := kind()
		if _, err := m.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return err
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	if !m.GetCache().WaitForCacheSync(ctx) {
		return errors.Join(errors.New("not synced"), <-ended)
	}
	for before := ""; ; {
		now, err := contents(ctx, m.GetClient())
		if err == nil && now != before {
			before, err = now, write(file, now)
		}
		if err != nil {
			return err
		}
		select {
		case err := <-ended:
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// contents returns what the cache holds: a line for each object.
func contents(ctx context.Context, c client.Client) (string, error) {
	var lines []string
	for _, kind := range kinds {
		object, list := kind()
		if err := c.List(ctx, list); err != nil {
			return "", err
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			m, err := meta.Accessor(o)
			if err == nil {
				lines = append(lines, fmt.Sprintf("%T %s/%s %s\n", object, m.GetNamespace(), m.GetName(), m.GetResourceVersion()))
			}
			return err
		})
		if err != nil {
			return "", err
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, ""), nil
}

// write replaces the file at once.
func write(file, text string) error {
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
