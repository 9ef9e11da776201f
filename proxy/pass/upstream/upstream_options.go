package upstream

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/watchfan/watchfan/proxy/base/option"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options say where kube-apiserver is.
type Options struct {
	Kubeconfig string // file; "" is $KUBECONFIG, then ~/.kube/config, then the pod's service account
	Context    string // of the kubeconfig; "" is its current one
}

func (o *Options) AddTo(t *option.Table) {
	t.Group("Upstream")
	t.String(&o.Kubeconfig, "kubeconfig", "", "`FILE` that names the cluster "+
		"(default $KUBECONFIG, then ~/.kube/config, then the pod's service account)")
	t.String(&o.Context, "context", "", "`NAME` of the kubeconfig's context to use (default its current one)")
}

// ErrNoCluster says that no kubeconfig is given, that the default one does not exist or is empty, and
// that this is no pod.
var ErrNoCluster = errors.New("no cluster is configured")

// Config finds the cluster by client-go's rules. An error names the flag or variable that led to it,
// and says what to give.
func (o *Options) Config() (*rest.Config, error) {
	rules, loader := o.loader()
	cfg, err := loader.ClientConfig()
	if err != nil {
		return nil, o.explain(rules, err)
	}
	return cfg, nil
}

func (o *Options) loader() (*clientcmd.ClientConfigLoadingRules, clientcmd.ClientConfig) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.Context}
	return rules, clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

// explain says where the rules have looked for a cluster, and why there is none.
func (o *Options) explain(rules *clientcmd.ClientConfigLoadingRules, err error) error {
	files, from := rules.GetLoadingPrecedence(), "~/.kube/config"
	switch {
	case o.Kubeconfig != "":
		files, from = []string{o.Kubeconfig}, "--kubeconfig="+o.Kubeconfig
	case os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "":
		from = "$KUBECONFIG=" + os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	}
	exists := func(name string) bool {
		_, err := os.Stat(name)
		return !errors.Is(err, fs.ErrNotExist)
	}
	const cure = "give a kubeconfig with --kubeconfig or in $KUBECONFIG, or run in a pod with a service account"
	none := ErrNoCluster
	if !strings.HasPrefix(from, "~") {
		none = errors.New(none.Error()) // one is named, so this is a mistake
	}
	switch {
	case !slices.ContainsFunc(files, exists):
		return fmt.Errorf("%w: %s does not exist: %s", none, from, cure)
	case clientcmd.IsEmptyConfig(err):
		return fmt.Errorf("%w: %s is empty or has no current context: %s", none, from, cure)
	case o.Context != "" && strings.Contains(err.Error(), fmt.Sprintf("%q does not exist", o.Context)):
		return fmt.Errorf("--context=%s: %s has no such context: kubectl config get-contexts lists them", o.Context, from)
	}
	return fmt.Errorf("%s cannot be used: %w", from, err)
}
