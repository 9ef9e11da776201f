package assess

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/watchfan/watchfan/proxy/base/option"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const usage = `watchfan assess estimates what watchfan would change for a cluster. It reads kube-apiserver's metrics
twice, and changes nothing.

It needs the right to get /metrics:
` + rights

const rights = `  kubectl create clusterrole metrics-reader --verb=get --non-resource-url=/metrics
  kubectl create clusterrolebinding metrics-reader --clusterrole=metrics-reader --user=NAME
`

// command is a command line.
type command struct {
	upstream upstream.Options
	pause    time.Duration
	replicas int
	output   string
	given    map[string]string // --what-if
	agents   *Agents           // nil for none
}

// Command returns the command watchfan assess. It ends early when its context ends.
func Command() *cobra.Command {
	var c command
	assess := &cobra.Command{
		Use:   "assess",
		Short: "Estimate what watchfan would change for a cluster",
		Long:  usage,
		Args:  cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) (err error) {
			if len(c.given) > 0 {
				c.agents, err = parseAgents(c.given)
			}
			return errors.Join(err, c.check())
		},
		RunE: func(assess *cobra.Command, _ []string) error {
			return c.run(assess.Context(), assess.OutOrStdout(), assess.ErrOrStderr())
		},
	}
	var server option.Table
	c.upstream.AddTo(&server)
	flags := assess.Flags()
	flags.AddFlagSet(server.Flags())
	flags.DurationVar(&c.pause, "for", 30*time.Second, "`DURATION` between the two readings, 1s to 1h: a longer one averages more")
	flags.IntVar(&c.replicas, "replicas", 3, "`NUMBER` of replicas of watchfan to reckon with, 1 to 100")
	flags.StringToStringVar(&c.given, "what-if", nil, whatIfUsage)
	flags.StringVarP(&c.output, "output", "o", "text", "`FORMAT`: text or json")
	return assess
}

// check says what is wrong with the flags.
func (c *command) check() error {
	switch {
	case c.pause < time.Second || c.pause > time.Hour:
		return fmt.Errorf("--for=%s: give 1s to 1h", c.pause)
	case c.replicas < 1 || c.replicas > 100:
		return fmt.Errorf("--replicas=%d: give 1 to 100", c.replicas)
	case c.output != "text" && c.output != "json":
		return fmt.Errorf("--output=%s is unknown: give text or json", c.output)
	}
	return nil
}

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
	if !exchange.Sleep(ctx, c.pause) {
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
	if c.agents != nil {
		if a.WhatIf, err = c.agents.estimate(before, after, c.replicas); err != nil {
			return err
		}
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
	at := time.Now()
	resp, err := upstream.GetOwn(ctx, server, "/metrics", "", "text/plain;version=0.0.4")
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
