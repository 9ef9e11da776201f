package plugin

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/watchfan/watchfan/proxy/gate/view"
	"github.com/watchfan/watchfan/proxy/operate/enrol"
)

const enrolUsage = `kubectl watchfan enrol lets pods use watchfan in place of kube-apiserver.

  kubectl watchfan enrol NAMESPACE              all pods of a namespace, from when they next start
  kubectl watchfan enrol TYPE/NAME -n NAMESPACE a Deployment, StatefulSet or DaemonSet, which is rolled out

It sets the label ` + enrol.Label + `, and with --view the label ` + view.Label + ` of a namespace: its clients then read in
that view, if a rule of watchfan's configuration says so (viewOf: namespace). In a cluster without the chart's policy it writes what the policy would
change into the workload's template. --dry-run=server -o yaml prints the result for a repository.
kubectl watchfan leave takes it back.`

// change is a command line of enrol or leave.
type change struct {
	*command
	namespace, dryRun, output string
	view                      string
	template                  bool
}

// newChange returns the command enrol, or leave.
func (c *command) newChange(leave bool) *cobra.Command {
	f := change{command: c}
	changing := &cobra.Command{
		Use: "enrol NAMESPACE|TYPE/NAME", Short: "Let the pods of a namespace or workload use watchfan", Long: enrolUsage,
		Args:    cobra.ExactArgs(1),
		PreRunE: func(*cobra.Command, []string) error { return f.check() },
		RunE:    func(c *cobra.Command, args []string) error { return f.run(c, args[0], leave) },
	}
	flags := changing.Flags()
	flags.StringVarP(&f.namespace, "namespace", "n", "", "`NAMESPACE` of the workload")
	flags.StringVar(&f.dryRun, "dry-run", "none", "`WHERE`: server asks for the result and changes nothing; none")
	flags.StringVarP(&f.output, "output", "o", "name", "`FORMAT`: name, or yaml for the whole object")
	if leave {
		changing.Use, changing.Short = "leave NAMESPACE|TYPE/NAME", "Let them use kube-apiserver again"
		changing.Long = "kubectl watchfan leave takes back what enrol does. Pods change when they next start."
	} else {
		flags.StringVar(&f.view, "view", "", "`NAME` of the view in which clients of the namespace read (default as before)")
		flags.BoolVar(&f.template, "template", false, "write all fields into the workload's template, without the policy")
	}
	return changing
}

func (f *change) check() error {
	switch {
	case f.dryRun != "none" && f.dryRun != "server":
		return fmt.Errorf("--dry-run=%s is unknown: give server or none", f.dryRun)
	case f.output != "name" && f.output != "yaml":
		return fmt.Errorf("--output=%s is unknown: give name or yaml", f.output)
	case f.view != "" && view.Name(f.view).Wrong() != "":
		return fmt.Errorf("--view=%s %s", f.view, view.Name(f.view).Wrong())
	}
	return nil
}

func (f *change) run(c *cobra.Command, argument string, leave bool) error {
	target, err := enrol.ParseTarget(argument, f.namespace)
	if err != nil {
		return err
	}
	if f.view != "" && target.Namespace != "" {
		return fmt.Errorf("%s: a namespace names a view: give --view with NAMESPACE", argument)
	}
	_, client, err := f.connect()
	if err != nil {
		return err
	}
	e := enrol.Enroller{Client: client, DryRun: f.dryRun == "server", Template: f.template, View: f.view}
	work, done := e.Enrol, "enrolled"
	if leave {
		work, done = e.Leave, "left"
	}
	o, err := work(c.Context(), target)
	if err != nil {
		return fmt.Errorf("%s %s: %w", c.Name(), target, err)
	}
	if f.output == "yaml" {
		return writeObject(c.OutOrStdout(), o)
	}
	fmt.Fprintf(c.OutOrStdout(), "%s %s%s\n", target, done, map[bool]string{true: " (server dry run)"}[e.DryRun])
	if target.Namespace != "" || e.DryRun {
		return nil
	}
	if leave {
		fmt.Fprintln(c.OutOrStdout(), "Its pods change when they are restarted.")
		return nil
	}
	return sayRestart(c, client, target.Name)
}

// sayRestart says which workloads of a namespace have pods from before. kubectl does not restart all kinds, as a Job.
func sayRestart(c *cobra.Command, client dynamic.Interface, namespace string) error {
	workloads, err := enrol.List(c.Context(), client, namespace)
	var restart, others []string
	for _, w := range workloads {
		switch {
		case w.Enrolled == w.Pods:
		case w.Restarts:
			restart = append(restart, w.Name)
		default:
			others = append(others, w.Name)
		}
	}
	if len(restart) > 0 {
		fmt.Fprintf(c.OutOrStdout(), "These use watchfan once they are restarted:\n  kubectl -n %s rollout restart %s\n",
			namespace, strings.Join(restart, " "))
	}
	if len(others) > 0 {
		fmt.Fprintf(c.OutOrStdout(), "These use watchfan once their pods are created again:\n  %s\n", strings.Join(others, " "))
	}
	return err
}

// writeObject writes an object as one would keep it in a repository.
func writeObject(w io.Writer, o *unstructured.Unstructured) error {
	for _, field := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	delete(o.Object, "status")
	content, err := yaml.Marshal(o.Object)
	if err == nil {
		_, err = w.Write(content)
	}
	return err
}
