// Program informers runs client-go's informers, as any controller does, until each has seen an
// object of a given name. Then it prints what they hold and how they came to it.
//
// One source is compiled with three releases of client-go. go.mod requires the newest; v0.34.mod
// and v0.31.mod replace it with go build -modfile. Three modules would need three copies of the
// source, or a fourth module to share it. The program is not in watchfan's module, which requires
// one client-go.
//
// client-go reads from the environment, before main begins, whether informers stream their initial
// state (WatchList, KEP-3157) and compare it with a list: KUBE_FEATURE_WatchListClient,
// KUBE_WATCHLIST_INCONSISTENCY_DETECTOR and KUBE_LIST_FROM_CACHE_INCONSISTENCY_DETECTOR.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// options are the flags.
type options struct {
	kubeconfig, server, tokenFile, caFile string

	client         string // typed, dynamic or metadata
	representation string // json or protobuf
	userAgent      string
	resources      string // RESOURCE or RESOURCE.GROUP, separated by commas; the version is v1
	until          string // name of the object that each informer waits for
	timeout        time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file")
	flag.StringVar(&o.server, "server", "", "URL of the server, instead of the kubeconfig's")
	flag.StringVar(&o.tokenFile, "token-file", "", "file with the bearer token")
	flag.StringVar(&o.caFile, "ca-file", "", "file with the certificates that the server's is checked with")
	flag.StringVar(&o.client, "client", "typed", "typed, dynamic or metadata")
	flag.StringVar(&o.representation, "representation", "json", "json or protobuf; the dynamic client has only json")
	flag.StringVar(&o.userAgent, "user-agent", "informers", "User-Agent of every request")
	flag.StringVar(&o.resources, "resources",
		"configmaps,pods,secrets,nodes,namespaces,services,deployments.apps,leases.coordination.k8s.io",
		"RESOURCE or RESOURCE.GROUP of version v1, separated by commas")
	flag.StringVar(&o.until, "until", "", "stop once every informer has an object of this name")
	flag.DurationVar(&o.timeout, "timeout", time.Minute, "stop at the latest after this time")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run prints two lines: "synced", once all informers have synced, and the report.
func run(o options) error {
	config, err := o.config()
	if err != nil {
		return err
	}
	r := newReport(o.resources)
	config.Wrap(r.observe)
	if o.client == "metadata" && o.representation == "json" {
		config.Wrap(withoutProtobuf)
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.timeout)
	defer cancel()
	informerOf, start, err := factory(o.client, config)
	if err != nil {
		return err
	}
	for _, res := range r.Resources {
		informer, err := informerOf(res.gvr)
		if err != nil {
			return err
		}
		if err := r.follow(res, informer.Informer(), o.until); err != nil {
			return err
		}
	}
	start(ctx.Done())
	if r.waitSynced(ctx) {
		fmt.Println("synced")
	}
	r.waitFound(ctx)
	line, err := r.finish()
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	return nil
}

// config returns what every client is made from.
func (o options) config() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags(o.server, o.kubeconfig)
	if err != nil {
		return nil, err
	}
	if o.tokenFile != "" {
		config.BearerTokenFile = o.tokenFile
	}
	if o.caFile != "" {
		config.CAFile = o.caFile
	}
	config.UserAgent = o.userAgent
	config.QPS = -1 // no limit: the time to sync is the server's
	switch o.representation {
	case "json":
		config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	case "protobuf":
		config.ContentType = "application/vnd.kubernetes.protobuf"
		config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	default:
		return nil, fmt.Errorf("--representation %q is neither json nor protobuf", o.representation)
	}
	return config, nil
}

// factory returns a client's informers, and the func that starts them.
func factory(client string,
	config *rest.Config) (informerOf func(schema.GroupVersionResource) (informers.GenericInformer, error),
	start func(<-chan struct{}), err error) {
	always := func(f func(schema.GroupVersionResource) informers.GenericInformer) func(schema.GroupVersionResource) (informers.GenericInformer, error) {
		return func(gvr schema.GroupVersionResource) (informers.GenericInformer, error) { return f(gvr), nil }
	}
	switch client {
	case "typed":
		c, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, nil, err
		}
		f := informers.NewSharedInformerFactory(c, 0)
		return f.ForResource, f.Start, nil
	case "dynamic":
		c, err := dynamic.NewForConfig(config)
		if err != nil {
			return nil, nil, err
		}
		f := dynamicinformer.NewDynamicSharedInformerFactory(c, 0)
		return always(f.ForResource), f.Start, nil
	case "metadata":
		c, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, nil, err
		}
		f := metadatainformer.NewSharedInformerFactory(c, 0)
		return always(f.ForResource), f.Start, nil
	}
	return nil, nil, fmt.Errorf("--client %q is none of typed, dynamic and metadata", client)
}
