package enrol

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/watchfan/watchfan/proxy/pass/upstream"
)

// Resources that enrolment reads.
var (
	Namespaces = upstream.NamespacesResource
	ConfigMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	services   = schema.GroupVersionResource{Version: "v1", Resource: "services"}
)

// roundInterval is how soon the keeper sees a new certificate, and tries again what has failed.
const roundInterval = 5 * time.Second

// keeper keeps the bundle in namespaces. Its fields are immutable but for said and wrote, which keep's goroutine owns.
type keeper struct {
	cfg    *rest.Config
	client dynamic.Interface
	tls    TLSFiles
	log    *slog.Logger

	namespaces, bundles, services cache.Store

	changed chan struct{}   // has room for one
	said    string          // why no pod can be enrolled
	wrote   map[string]sent // by namespace
}

// sent is a bundle whose event may not have come yet.
type sent struct {
	at   time.Time
	data map[string]string
}

// keep keeps the bundle of a Service in each namespace with the label, and in those that have a
// bundle, until ctx ends. It has one goroutine for each of three watches.
func keep(ctx context.Context, cfg *rest.Config, service types.NamespacedName, tls TLSFiles, log *slog.Logger) error {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = 50, 50 // a new CA is in 1,000 namespaces within 20 s
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	k := &keeper{cfg: cfg, client: client, tls: tls, log: log, changed: make(chan struct{}, 1), wrote: make(map[string]sent)}
	var synced []cache.InformerSynced
	follow := func(r dynamic.ResourceInterface, labels, name string) cache.Store {
		store, informer := k.informer(r, labels, name)
		synced = append(synced, informer.HasSynced)
		go informer.RunWithContext(ctx)
		return store
	}
	k.namespaces = follow(client.Resource(Namespaces), Label, "")
	k.bundles = follow(client.Resource(ConfigMaps), "", BundleName)
	k.services = follow(client.Resource(services).Namespace(service.Namespace), "", service.Name)
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil // interrupted
	}
	for {
		k.round(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-k.changed:
		case <-time.After(roundInterval):
		}
	}
}

// informer returns a watch of the objects of a label or name. Each event asks for a round.
func (k *keeper) informer(r dynamic.ResourceInterface, labels, name string) (cache.Store, cache.Controller) {
	chosen := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector = labels
		if name != "" {
			o.FieldSelector = "metadata.name=" + name
		}
		return o
	}
	ask := func(any) {
		select {
		case k.changed <- struct{}{}:
		default:
		}
	}
	return cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return r.List(ctx, chosen(o))
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return r.Watch(ctx, chosen(o))
			},
		},
		ObjectType: &unstructured.Unstructured{},
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: ask, DeleteFunc: ask,
			UpdateFunc: func(_, o any) { ask(o) }},
	})
}

// round writes the bundle where it is missing or different. What fails, the next round tries again.
func (k *keeper) round(ctx context.Context) {
	data, err := newBundle(k.cfg, k.tls, k.addresses())
	if why := fmt.Sprint(err); why != k.said {
		if k.said = why; err != nil {
			k.log.Error("No more pods can be enrolled", "err", err)
		} else {
			k.log.Info("Pods of namespaces with the label can be enrolled", "addresses", data[AddressesKey])
		}
	}
	if data == nil {
		return
	}
	have := make(map[string]map[string]string) // by namespace
	for _, o := range k.namespaces.List() {
		if n := o.(*unstructured.Unstructured); n.GetDeletionTimestamp() == nil {
			have[n.GetName()] = nil
		}
	}
	for _, o := range k.bundles.List() {
		o := o.(*unstructured.Unstructured)
		have[o.GetNamespace()], _, _ = unstructured.NestedStringMap(o.Object, "data")
	}
	// A round before the event of what the last one has written would write it again.
	maps.DeleteFunc(k.wrote, func(_ string, s sent) bool { return time.Since(s.at) >= roundInterval })
	for _, namespace := range slices.Sorted(maps.Keys(have)) {
		if has(have[namespace], data) || has(k.wrote[namespace].data, data) {
			continue
		}
		if err := k.write(ctx, namespace, data); err != nil && ctx.Err() == nil {
			k.log.Error("Could not write a bundle", "namespace", namespace, "err", err)
		} else if err == nil {
			k.log.Info("Wrote a bundle", "namespace", namespace)
			k.wrote[namespace] = sent{time.Now(), data}
		}
	}
}

// has reports whether a bundle says the same as data.
func has(bundle, data map[string]string) bool {
	return bundle[caKey] == data[caKey] && bundle[AddressesKey] == data[AddressesKey]
}

// addresses returns those of the Service, none if it does not exist.
func (k *keeper) addresses() (all []string) {
	for _, o := range k.services.List() {
		all, _, _ = unstructured.NestedStringSlice(o.(*unstructured.Unstructured).Object, "spec", "clusterIPs")
	}
	return slices.DeleteFunc(all, func(ip string) bool { return ip == "None" || ip == "" })
}

// write applies the ConfigMap, and takes its data from whoever else has written it.
func (k *keeper) write(ctx context.Context, namespace string, data map[string]string) error {
	annotations := map[string]string{"kubernetes.io/description": description}
	content, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": data,
		"metadata": map[string]any{"name": BundleName, "annotations": annotations}})
	if err != nil {
		return err
	}
	_, err = k.client.Resource(ConfigMaps).Namespace(namespace).Patch(ctx, BundleName, types.ApplyPatchType, content,
		metav1.PatchOptions{FieldManager: "watchfan-keeper", Force: new(true)})
	return err
}

const description = "Whom pods with the label " + EnrolledLabel + " trust, and where they reach watchfan. " +
	"They mount it: delete it when none is left."
