package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/diagnose"
	"github.com/watchfan/watchfan/proxy/upstream"
)

// Name is the name of the program that kubectl looks for.
const Name = "kubectl-watchfan"

const usage = `kubectl watchfan runs watchfan top and watchfan explain for the pods of watchfan in a cluster.

Usage:
  kubectl watchfan top [flags]            show the watches of each pod, the slowest first, and why they are slow
  kubectl watchfan explain [ID] [flags]   say why one watch is slow, and what to do

It finds the pods by their labels, and reaches their admin ports as kubectl port-forward does. Its user
needs the rights to list pods and to create pods/portforward.
On a terminal, top shows one pod until Ctrl-C, and several once. IDs belong to a pod: give explain
an ID with --pod.

Flags:
  --pod NAME          ask this pod only
  -n NAMESPACE        its namespace (default: all namespaces)
  -l SELECTOR         labels of the pods (default ` + everyPod + `)
  --kubeconfig FILE   names the cluster (default $KUBECONFIG, then ~/.kube/config)
  --context NAME      the kubeconfig's context to use (default its current one)

All other flags are those of watchfan top and watchfan explain: see kubectl watchfan top --help.
`

// command is a command line.
type command struct {
	upstream  upstream.Options
	pod       string
	namespace string
	selector  string

	name string   // top or explain
	args []string // for diagnose
}

// Run is the command kubectl watchfan. It returns the exit code.
func Run(ctx context.Context, args []string, stdout *os.File, stderr io.Writer) int {
	if len(args) == 0 || slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		fmt.Fprint(stdout, usage)
		return 0
	}
	c, err := parse(args)
	if err != nil {
		fmt.Fprintf(stderr, "%v\nsee kubectl watchfan --help\n", err)
		return 2
	}
	if c.wantsHelp() {
		return c.diagnose("", stdout, stderr)
	}
	code, err := c.run(ctx, stdout, stderr)
	if err != nil {
		fmt.Fprintln(stderr, err)
	}
	return code
}

// parse takes the flags of the plugin out of a command line and leaves the others to diagnose.
func parse(args []string) (*command, error) {
	c := &command{name: args[0], selector: everyPod}
	if c.name != "top" && c.name != "explain" {
		return nil, fmt.Errorf("%q is no command: give top or explain", c.name)
	}
	values := map[string]*string{"pod": &c.pod, "n": &c.namespace, "l": &c.selector, "kubeconfig": &c.upstream.Kubeconfig,
		"context": &c.upstream.Context}
	for i := 1; i < len(args); i++ {
		name, value, given := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		flag := strings.HasPrefix(args[i], "-")
		if flag && name == "admin" {
			return nil, errors.New("--admin is for watchfan top: kubectl watchfan finds the admin ports itself")
		}
		set := values[name]
		if !flag || set == nil {
			c.args = append(c.args, args[i])
			continue
		}
		if !given {
			if i++; i == len(args) {
				return nil, fmt.Errorf("%s needs a value", args[i-1])
			}
			value = args[i]
		}
		*set = value
	}
	return c, nil
}

func (c *command) wantsHelp() bool {
	return slices.ContainsFunc(c.args, func(s string) bool { return s == "-h" || s == "-help" || s == "--help" })
}

// wantsID reports whether explain has an ID.
func (c *command) wantsID() bool {
	return c.name == "explain" && len(c.args) > 0 && !strings.HasPrefix(c.args[0], "-")
}

// run asks the pods one after another. The code is the first that is not 0.
func (c *command) run(ctx context.Context, stdout *os.File, stderr io.Writer) (code int, err error) {
	cfg, err := c.upstream.Config()
	if err != nil {
		return 1, err
	}
	pods, err := findPods(ctx, cfg, c.namespace, c.pod, c.selector)
	if err != nil {
		return 1, err
	}
	if len(pods) > 1 {
		if c.wantsID() {
			return 2, fmt.Errorf("explain %s: IDs belong to a pod: give --pod with one of %s", c.args[0], names(pods))
		}
		if c.name == "top" && term.IsTerminal(int(stdout.Fd())) {
			fmt.Fprintf(stderr, "%d pods are shown once. --pod NAME shows one of them live.\n", len(pods))
		}
	}
	for i, p := range pods {
		if ctx.Err() != nil {
			return 1, errors.New("interrupted")
		}
		if len(pods) > 1 {
			fmt.Fprintf(stdout, "%sPOD %s\n", strings.Repeat("\n", min(i, 1)), p)
		}
		failed, err := c.ask(ctx, cfg, p, len(pods) > 1, stdout, stderr)
		if err != nil {
			fmt.Fprintln(stderr, err)
			failed = 1
		}
		if code == 0 {
			code = failed
		}
	}
	return code, nil
}

// ask runs the command on one pod's admin port.
func (c *command) ask(ctx context.Context, cfg *rest.Config, p pod, once bool, stdout *os.File,
	stderr io.Writer) (code int, err error) {
	t, err := forward(ctx, cfg, p)
	if err != nil {
		return 1, err
	}
	defer func() {
		http.DefaultClient.CloseIdleConnections() // diagnose's; otherwise the forwarder waits for them
		t.close()
	}()
	ask := *c
	if once && c.name == "top" {
		ask.args = append(slices.Clone(c.args), "--once")
	}
	return ask.diagnose(t.url, stdout, stderr), nil
}

// diagnose runs the command of package diagnose on an admin port.
func (c *command) diagnose(url string, stdout *os.File, stderr io.Writer) int {
	args := slices.Clone(c.args)
	if url != "" {
		args = append(args, "--admin="+url)
	}
	if c.name == "top" {
		return diagnose.Top(args, stdout, stderr)
	}
	return diagnose.Explain(args, stdout, stderr)
}
