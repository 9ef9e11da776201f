package plugin

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/base/option"
	"github.com/watchfan/watchfan/proxy/operate/diagnose"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
)

// Name is the name of the program that kubectl looks for.
const Name = "kubectl-watchfan"

const usage = `kubectl watchfan runs watchfan top, explain, observed and consumers for the pods of watchfan in a cluster.
It also lets namespaces and workloads use watchfan, takes that back, and shows them.

It finds watchfan's pods by their labels, and reaches their admin ports as kubectl port-forward does. Its user
needs the rights to list pods and to create pods/portforward.
On a terminal, top shows one pod until Ctrl-C, and several once. IDs belong to a pod: give explain
an ID with --pod.`

// command has the flags that choose pods.
type command struct {
	upstream  upstream.Options
	pod       string
	namespace string
	selector  string
}

// Command returns the command kubectl watchfan.
func Command() *cobra.Command {
	var c command
	root := &cobra.Command{
		Use:               Name,
		Long:              usage,
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl watchfan"},
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	var cluster option.Table
	c.upstream.AddTo(&cluster)
	root.PersistentFlags().AddFlagSet(cluster.Flags())
	for _, show := range []*cobra.Command{diagnose.Top(), diagnose.Explain(), diagnose.Observed(), diagnose.Consumers()} {
		work := show.RunE
		c.addPodFlags(show.Flags(), "n", "l")
		_ = show.Flags().MarkHidden("admin")
		show.PreRunE = func(show *cobra.Command, _ []string) error {
			if show.Flags().Changed("admin") {
				return errors.New("--admin is for watchfan top: kubectl watchfan finds the admin ports itself")
			}
			return nil
		}
		show.RunE = func(show *cobra.Command, args []string) error { return c.run(show, args, work) }
		root.AddCommand(show)
	}
	root.AddCommand(c.newChange(false), c.newChange(true), c.newEnrolled())
	return root
}

// addPodFlags adds the flags that choose pods, two of which may have short names.
func (c *command) addPodFlags(flags *pflag.FlagSet, namespace, selector string) {
	flags.StringVar(&c.pod, "pod", "", "`NAME` of the only pod to ask")
	flags.StringVarP(&c.namespace, "pod-namespace", namespace, "", "`NAMESPACE` of the pods (default all)")
	flags.StringVarP(&c.selector, "pod-selector", selector, everyPod, "`LABELS` of the pods")
}

// connect returns a client of the cluster, and its configuration.
func (c *command) connect() (*rest.Config, dynamic.Interface, error) {
	cfg, err := c.upstream.Config()
	if err != nil {
		return nil, nil, err
	}
	bounded, err := boundedClient(cfg)
	if err != nil {
		return nil, nil, err
	}
	cfg.QPS = -1 // one request after another, and kube-apiserver knows itself what is too much
	client, err := dynamic.NewForConfigAndClient(cfg, bounded)
	return cfg, client, err
}

// run runs a command of package diagnose for one pod after another.
func (c *command) run(show *cobra.Command, args []string, work func(*cobra.Command, []string) error) error {
	ctx, stdout := show.Context(), show.OutOrStdout()
	cfg, client, err := c.connect()
	if err != nil {
		return err
	}
	pods, err := findPods(ctx, client, c.namespace, c.pod, c.selector)
	if err != nil {
		return err
	}
	if len(pods) > 1 {
		if len(args) > 0 {
			return fmt.Errorf("explain %s: IDs belong to a pod: give --pod with one of %s", args[0], names(pods))
		}
		_ = show.Flags().Set("once", "true") // explain has no such flag
		if out, ok := stdout.(*os.File); ok && show.Name() == "top" && term.IsTerminal(int(out.Fd())) {
			fmt.Fprintf(show.ErrOrStderr(), "%d pods are shown once. --pod NAME shows one of them live.\n", len(pods))
		}
	}
	var errs []error
	for i, p := range pods {
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if len(pods) > 1 {
			fmt.Fprintf(stdout, "%sPOD %s\n", strings.Repeat("\n", min(i, 1)), p)
		}
		errs = append(errs, ask(ctx, cfg, p, func(admin string) error {
			_ = show.Flags().Set("admin", admin)
			return work(show, args)
		}))
	}
	return errors.Join(errs...)
}
