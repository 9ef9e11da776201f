// Program controllers is a controller-runtime manager with a cache of chosen namespaces, as an
// operator has that may read only some. It follows ConfigMaps, Pods and Services in each namespace, and
// writes what its cache holds to a file whenever that changes: controllers --kubeconfig FILE NAMESPACES FILE.
//
// With --writes it changes ConfigMaps, so many times, and reads each change from its cache at once, which
// waits for it (EnableReadYourWritesConsistency): controllers --kubeconfig FILE --writes N NAMESPACE.
//
// With --pprof it serves profiles at an address, caches Secrets too, and writes the file only when it ends.
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	writes := flag.Int("writes", 0, "how often to write, and to read what was written")
	profiles := flag.String("pprof", "", "address for profiles")
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	follow := func(ctx context.Context, m ctrl.Manager) error { return copyTo(ctx, m, flag.Arg(1)) }
	if *writes > 0 {
		follow = func(ctx context.Context, m ctrl.Manager) error {
			return readWrites(ctx, m.GetClient(), flag.Arg(0), *writes)
		}
	}
	if *profiles != "" {
		kinds = append(kinds, func() (client.Object, client.ObjectList) { return new(corev1.Secret), new(corev1.SecretList) })
		ended := ctx
		ctx = context.Background()
		follow = func(ctx context.Context, m ctrl.Manager) error {
			<-ended.Done()
			text, err := contents(ctx, m.GetClient())
			return errors.Join(err, write(flag.Arg(1), text))
		}
	}
	if err := run(ctx, *profiles, strings.Split(flag.Arg(0), ","), follow); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run calls follow with a manager whose cache is filled.
func run(ctx context.Context, profiles string, namespaces []string, follow func(context.Context, ctrl.Manager) error) error {
	config, err := ctrl.GetConfig() // of --kubeconfig
	if err != nil {
		return err
	}
	chosen := make(map[string]cache.Config)
	for _, namespace := range namespaces {
		chosen[namespace] = cache.Config{}
	}
	yes := true
	m, err := ctrl.NewManager(config, ctrl.Options{
		Client:  client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: &yes}},
		Cache:   cache.Options{DefaultNamespaces: chosen},
		Metrics: server.Options{BindAddress: "0"},

		PprofBindAddress: profiles,
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
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(m.Start(ctx)) }()
	if !m.GetCache().WaitForCacheSync(ctx) {
		return errors.Join(errors.New("not synced"), context.Cause(ctx))
	}
	return follow(ctx, m)
}

// copyTo writes what the cache of m holds to a file, until ctx ends.
func copyTo(ctx context.Context, m ctrl.Manager, file string) error {
	for before := ""; ; {
		now, err := contents(ctx, m.GetClient())
		if err == nil && now != before {
			before, err = now, write(file, now)
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// readWrites creates, changes and deletes ConfigMaps, and fails if a read does not show the write before it.
func readWrites(ctx context.Context, c client.Client, namespace string, n int) error {
	for i := range n {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("own-", i%3)}}
		key := client.ObjectKeyFromObject(m)
		if err := c.Create(ctx, m); err != nil {
			return err
		}
		for turn := range 3 {
			m.Data = map[string]string{"turn": fmt.Sprint(i, turn)}
			if err := c.Update(ctx, m); err != nil {
				return err
			}
			got, all := new(corev1.ConfigMap), new(corev1.ConfigMapList)
			if err := errors.Join(c.Get(ctx, key, got), c.List(ctx, all, client.InNamespace(namespace))); err != nil {
				return err
			}
			at := slices.IndexFunc(all.Items, func(o corev1.ConfigMap) bool { return o.Name == m.Name })
			if at < 0 || got.ResourceVersion != m.ResourceVersion || all.Items[at].ResourceVersion != m.ResourceVersion {
				return fmt.Errorf("after the write %s of %s, a get has %s, and a list %v", m.ResourceVersion, key, got.ResourceVersion, all.Items)
			}
		}
		if err := c.Delete(ctx, m); err != nil {
			return err
		}
		if err := c.Get(ctx, key, new(corev1.ConfigMap)); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s is read after it was deleted: %w", key, err)
		}
	}
	return nil
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
