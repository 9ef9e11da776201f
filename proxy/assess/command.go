package assess

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/watchfan/watchfan/proxy/option"
	"github.com/watchfan/watchfan/proxy/upstream"
)

const usage = `watchfan assess estimates what watchfan would change for a cluster. It reads kube-apiserver's metrics
twice, and changes nothing.

Usage: watchfan assess [flags]

It needs the right to get /metrics:
` + rights + `
Flags:
  --kubeconfig FILE   names the cluster (default $KUBECONFIG, then ~/.kube/config, then the pod's service account)
  --context NAME      the kubeconfig's context to use (default its current one)
  --for DURATION      time between the two readings, 1s to 1h (default 30s): a longer time averages more
  --replicas NUMBER   replicas of watchfan to reckon with, 1 to 100 (default 3)
  -o FORMAT           text or json (default text)
`

const rights = `  kubectl create clusterrole metrics-reader --verb=get --non-resource-url=/metrics
  kubectl create clusterrolebinding metrics-reader --clusterrole=metrics-reader --user=NAME
`

// command is a command line.
type command struct {
	upstream upstream.Options
	pause    time.Duration
	replicas int
	output   string
}

// Run is the command watchfan assess. It returns the exit code. It ends early when ctx ends.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, usage)
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "%v\nsee watchfan assess --help\n", err)
		return 2
	}
	err = c.run(ctx, stdout, stderr)
	if ctx.Err() != nil {
		err = errors.New("interrupted: nothing has been assessed")
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func parse(args []string) (*command, error) {
	c := &command{}
	fs := c.flags()
	if err := fs.Parse(args); err != nil {
		return nil, option.Explain(fs, err)
	}
	switch {
	case fs.NArg() > 0:
		return nil, fmt.Errorf("assess takes flags only, not %q", fs.Arg(0))
	case c.replicas < 1 || c.replicas > 100:
		return nil, fmt.Errorf("--replicas=%d: give 1 to 100", c.replicas)
	case c.output != "text" && c.output != "json":
		return nil, fmt.Errorf("-o=%s is unknown: give text or json", c.output)
	}
	return c, nil
}

// flags returns the flags, which set c.
func (c *command) flags() *flag.FlagSet {
	c.pause = 30 * time.Second
	fs := flag.NewFlagSet("watchfan assess", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // the errors come back
	fs.StringVar(&c.upstream.Kubeconfig, "kubeconfig", "", "`FILE` that names the cluster")
	fs.StringVar(&c.upstream.Context, "context", "", "context of the kubeconfig, by `NAME`")
	fs.Func("for", "`DURATION` between the two readings", func(s string) (err error) {
		if c.pause, err = option.ParseDuration(s); err == nil && (c.pause < time.Second || c.pause > time.Hour) {
			err = errors.New("give 1s to 1h")
		}
		return err
	})
	fs.IntVar(&c.replicas, "replicas", 3, "`NUMBER` of replicas of watchfan to reckon with")
	fs.StringVar(&c.output, "o", "text", "`FORMAT`: text or json")
	return fs
}

// Flags returns the flags of the command, for completion.
func Flags() *flag.FlagSet { return new(command).flags() }

// run reads the metrics twice and prints the assessment.
func (c *command) run(ctx context.Context, stdout, stderr io.Writer) error {
	cfg, err := c.upstream.Config()
	if err != nil {
		return err
	}
	server, err := upstream.NewUpstream(cfg)
	if err != nil {
		return err
	}
	defer server.CloseIdleConnections()
	before, err := read(ctx, server)
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "Reading the metrics of %s again in %s.\n", server.Address(), c.pause)
	select {
	case <-time.After(c.pause):
	case <-ctx.Done():
		return ctx.Err()
	}
	after, err := readSame(ctx, server, before)
	if err != nil {
		return err
	}
	a, err := assess(before, after, c.replicas)
	if err != nil {
		return err
	}
	a.Server = server.Address()
	if c.output == "text" {
		a.writeText(stdout)
		return nil
	}
	encoder := json.NewEncoder(stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(a)
}

const (
	// attempts is how often a load balancer may lead to another kube-apiserver.
	attempts    = 5
	readTimeout = time.Minute
)

// readSame reads the metrics of the kube-apiserver of before again.
func readSame(ctx context.Context, server *upstream.Upstream, before *sample) (after *sample, err error) {
	for range attempts {
		if after, err = read(ctx, server); err != nil || after.start == before.start {
			return after, err
		}
		server.CloseIdleConnections() // the next connection may lead to the other one
	}
	return nil, errOtherServer
}

// read reads /metrics once.
func read(ctx context.Context, server *upstream.Upstream) (*sample, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL("/metrics", "").String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4")
	at := time.Now()
	resp, err := server.Do(req)
	if err != nil {
		return nil, fmt.Errorf("get /metrics of %s: %w", server.Address(), err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, fmt.Errorf("%s answers %s to get /metrics: the kubeconfig's user needs this right; "+
			"an administrator gives it:\n%s", server.Address(), resp.Status, rights)
	default:
		return nil, fmt.Errorf("%s answers %s to get /metrics: it is no kube-apiserver, or its provider hides the metrics",
			server.Address(), resp.Status)
	}
	families, err := scrape(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("get /metrics of %s: %w", server.Address(), err)
	}
	s := newSample(families, at)
	if !s.found[longRunning] && !s.found[requests] {
		return nil, fmt.Errorf("/metrics of %s has no metric of kube-apiserver's requests: is it kube-apiserver?",
			server.Address())
	}
	return s, nil
}
