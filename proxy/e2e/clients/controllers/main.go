// Program controllers is a controller-runtime manager with a cache of chosen namespaces, as an
// operator has that may read only some. It follows ConfigMaps, Pods and Services in each namespace
// until every cache has an object of a given name, prints the contents, and stays until it is ended.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
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

// followed are the kinds in the cache, by resource.
var followed = map[string]func() (client.Object, client.ObjectList){
	"configmaps": func() (client.Object, client.ObjectList) { return new(corev1.ConfigMap), new(corev1.ConfigMapList) },
	"pods":       func() (client.Object, client.ObjectList) { return new(corev1.Pod), new(corev1.PodList) },
	"services":   func() (client.Object, client.ObjectList) { return new(corev1.Service), new(corev1.ServiceList) },
}

func main() {
	namespaces := flag.String("namespaces", "", "namespaces of the cache, separated by commas")
	until := flag.String("until", "", "name of the object that every namespace gets last, of each kind")
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, strings.Split(*namespaces, ","), *until); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run prints two lines: "synced", once the cache is filled, and its contents as JSON, by resource and
// key to resourceVersion.
func run(ctx context.Context, namespaces []string, until string) error {
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
	for _, kind := range followed {
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
	fmt.Println("synced")
	for {
		held, last, err := contents(ctx, m.GetClient(), until)
		if err != nil {
			return err
		}
		if last == len(followed)*len(namespaces) {
			if err := json.NewEncoder(os.Stdout).Encode(held); err != nil {
				return err
			}
			return <-ended
		}
		select {
		case err := <-ended:
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// contents lists the cache, and counts the objects of the name until.
func contents(
	ctx context.Context, c client.Client, until string,
) (held map[string]map[string]string, last int, err error) {
	held = make(map[string]map[string]string)
	for resource, kind := range followed {
		_, list := kind()
		if err := c.List(ctx, list); err != nil {
			return nil, 0, err
		}
		held[resource] = make(map[string]string)
		err := meta.EachListItem(list, func(o runtime.Object) error {
			m, err := meta.Accessor(o)
			if err != nil {
				return err
			}
			held[resource][m.GetNamespace()+"/"+m.GetName()] = m.GetResourceVersion()
			if m.GetName() == until {
				last++
			}
			return nil
		})
		if err != nil {
			return nil, 0, err
		}
	}
	return held, last, nil
}
