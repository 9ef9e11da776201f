package main

import (
	"context"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Ready is the content of the file ready: all that a client of the cluster
// needs. Paths are absolute.
type Ready struct {
	Server        string            `json:"server"`
	CAFile        string            `json:"caFile"`
	Kubeconfigs   map[string]string `json:"kubeconfigs"` // paths by admin, user, reader
	TokenFiles    map[string]string `json:"tokenFiles"`  // paths by admin, user, reader
	TokenAuthFile string            `json:"tokenAuthFile"`
	EtcdEndpoint  string            `json:"etcdEndpoint"`
	Ports         map[string]int    `json:"ports"` // by kube-apiserver, etcd, etcd-peer
	Pids          map[string]int    `json:"pids"`  // by devcluster, etcd, kube-apiserver
}

// newReady describes the cluster that runs in d.
func newReady(d Dir, state State, etcdPid, apiserverPid int) Ready {
	r := Ready{
		Server:        state.server(),
		CAFile:        d.file(caCertFile),
		Kubeconfigs:   make(map[string]string),
		TokenFiles:    make(map[string]string),
		TokenAuthFile: d.file(tokenAuthFile),
		EtcdEndpoint:  state.etcdEndpoint(),
		Ports:         map[string]int{apiserverName: state.SecurePort, etcdName: state.EtcdPort, "etcd-peer": state.EtcdPeerPort},
		Pids:          map[string]int{"devcluster": os.Getpid(), etcdName: etcdPid, apiserverName: apiserverPid},
	}
	for _, u := range users {
		r.Kubeconfigs[u.File] = d.file(u.kubeconfigFile())
		r.TokenFiles[u.File] = d.file(u.tokenFile())
	}
	return r
}

// pollInterval is how often a starting server is asked whether it is ready.
const pollInterval = 50 * time.Millisecond

// poll calls ready until it returns nil, and gives up when ctx ends.
func poll(ctx context.Context, ready func(context.Context) error) error {
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		case <-time.After(pollInterval):
		}
	}
}

// newClient returns a client of the kube-apiserver of d that may do everything.
func newClient(d Dir, server string) (*kubernetes.Clientset, error) {
	token, err := Admin.token(d)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(&rest.Config{
		Host:            server,
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAFile: d.file(caCertFile)},
		QPS:             -1, // no limit
	})
}

// apiserverReady asks kube-apiserver whether a test may begin: it is ready,
// RBAC knows its own roles, and there is a namespace to create things in.
// /readyz covers neither fully: it waits for the roles but not for the namespace.
func apiserverReady(ctx context.Context, client kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return fmt.Errorf("get /readyz: %w", err)
	}
	for _, role := range []string{"cluster-admin", "system:discovery"} {
		if _, err := client.RbacV1().ClusterRoleBindings().Get(ctx, role, metav1.GetOptions{}); err != nil {
			return fmt.Errorf("get clusterrolebinding %s: %w", role, err)
		}
	}
	if _, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); err != nil {
		return fmt.Errorf("get namespace default: %w", err)
	}
	return nil
}
