// Command consistency is a controller that does not reconcile before its cache has its own writes, with the
// store for that of kube-controller-manager (KEP-5647): consistency KUBECONFIG NAMESPACE N. It writes N times.
// It fails if it is still blocked when its informer brings what it has written.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
)

func main() {
	err := fmt.Errorf("usage: consistency KUBECONFIG NAMESPACE N")
	if len(os.Args) == 4 {
		err = run(context.Background(), os.Args[1], os.Args[2], os.Args[3])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, namespace, number string) error {
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.ContentType = runtime.ContentTypeProtobuf // as kube-controller-manager has it
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	informer := factory.Core().V1().ConfigMaps().Informer()
	c := &controller{
		client: client.CoreV1().ConfigMaps(namespace),
		written: consistency.NewConsistencyStore(map[schema.GroupResource]consistency.LastSyncRVGetter{
			corev1.Resource("configmaps"): informer.GetStore(),
		}),
		brought: make(chan *corev1.ConfigMap, n),
	}
	if _, err := informer.AddEventHandler(c); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return c.write(ctx, n)
}

// controller writes to one ConfigMap, and is reconciled whenever its informer brings that.
type controller struct {
	client  typed.ConfigMapInterface
	written consistency.ConsistencyStore
	brought chan *corev1.ConfigMap // by the informer
}

func (c *controller) OnAdd(obj any, _ bool) { c.brought <- obj.(*corev1.ConfigMap) }
func (c *controller) OnUpdate(_, obj any)   { c.brought <- obj.(*corev1.ConfigMap) }
func (c *controller) OnDelete(any)          {}

func (c *controller) write(ctx context.Context, n int) (err error) {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}
	if m, err = c.client.Create(ctx, m, metav1.CreateOptions{}); err != nil {
		return err
	}
	for i := range n {
		m.Data = map[string]string{"turn": strconv.Itoa(i)}
		if m, err = c.client.Update(ctx, m, metav1.UpdateOptions{}); err != nil {
			return err
		}
		owner := types.NamespacedName{Namespace: m.Namespace, Name: m.Name}
		c.written.WroteAt(owner, m.UID, corev1.Resource("configmaps"), m.ResourceVersion)
		for brought := ""; brought != m.ResourceVersion; {
			brought = (<-c.brought).ResourceVersion
		}
		if err := c.written.EnsureReady(owner); err != nil {
			return fmt.Errorf("the informer has brought the write %s, and: %w", m.ResourceVersion, err)
		}
	}
	return c.client.Delete(ctx, m.Name, metav1.DeleteOptions{})
}
