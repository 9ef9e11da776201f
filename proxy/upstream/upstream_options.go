package upstream

import (
	"errors"
	"fmt"

	"github.com/watchfan/watchfan/proxy/option"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options say where kube-apiserver is.
type Options struct {
	// Kubeconfig is the file that names the cluster. Empty: $KUBECONFIG, then ~/.kube/config, then
	// the pod's service account.
	Kubeconfig string
	// Context is the kubeconfig's context to use. Empty: its current one.
	Context string
}

func (o *Options) AddTo(t *option.Table) {
	t.Group("Upstream")
	t.String(&o.Kubeconfig, "kubeconfig", "", "`FILE` that names the cluster "+
		"(default $KUBECONFIG, then ~/.kube/config, then the pod's service account)")
	t.String(&o.Context, "context", "", "`NAME` of the kubeconfig's context to use (default its current one)")
}

// Config finds the cluster by client-go's rules.
func (o *Options) Config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.Context}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no cluster is configured: " +
			"give --kubeconfig, set $KUBECONFIG, or run in a pod with a service account")
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return cfg, nil
}
