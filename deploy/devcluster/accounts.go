package main

import (
	"context"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// keepAccounts does what a controller manager does for ServiceAccount admission,
// until ctx ends: each namespace gets the account "default" and the ConfigMap
// kube-root-ca.crt. Those that are deleted or changed do not come back.
func (c *Cluster) keepAccounts(ctx context.Context) {
	client, err := newClient(c.dir, c.state.server())
	if err != nil {
		c.say.Line("Accounts: %v", err)
		return
	}
	ca, err := os.ReadFile(c.dir.file(caCertFile))
	if err != nil {
		c.say.Line("Accounts: %v", err)
		return
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	_, err = factory.Core().V1().Namespaces().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			if err := createAccount(ctx, client, o.(*corev1.Namespace).Name, string(ca)); err != nil && ctx.Err() == nil {
				c.say.Line("Accounts: %v", err)
			}
		},
	})
	if err != nil {
		c.say.Line("Accounts: %v", err)
		return
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
}

func createAccount(ctx context.Context, client kubernetes.Interface, namespace, ca string) error {
	_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": ca},
	}, metav1.CreateOptions{})
	if err == nil || apierrors.IsAlreadyExists(err) {
		_, err = client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	}
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
