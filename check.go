package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
)

// The exit codes of check without an answer, which deploy/run.sh knows too.
const (
	clusterSilent   exitCode = 1 // it does not answer, or not as kube-apiserver does
	clusterWrong    exitCode = 2 // the flags are wrong, or the kubeconfig cannot be used
	clusterNotNamed exitCode = 3 // no cluster is configured
)

const checkUsage = `watchfan check says which cluster watchfan would serve, and with whose rights. It asks kube-apiserver
for its version, for the user of the kubeconfig (SelfSubjectReview) and for the rights of that user to
impersonate others (SelfSubjectRulesReview), and changes nothing. It says which of these rights are
wider than needed: see deploy/ACCOUNT.md.

--kubeconfig and --context matter.
The exit code is 0 if the cluster answers, 1 if it does not, 2 if the flags or the kubeconfig are wrong,
and 3 if no cluster is configured.`

func newCheck(flags *proxy.Flags) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Say which cluster would be served, and with whose rights",
		Long:  checkUsage,
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return check(c.Context(), &flags.Options, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
}

// check says which cluster watchfan would serve with these options, and with whose rights.
func check(ctx context.Context, opts *proxy.Options, stdout, stderr io.Writer) error {
	c, err := opts.Upstream.Cluster(ctx)
	if c.Server != "" {
		fmt.Fprintf(stdout, "context: %s\nserver:  %s\n", cmp.Or(c.Context, "none, the pod's service account"), c.Server)
	}
	if err == nil {
		fmt.Fprintf(stdout, "version: %s\nuser:    %s\n", request.Shown(c.Version), cmp.Or(request.Shown(c.User), "kube-apiserver does not say"))
		fmt.Fprintf(stdout, "acts as: %s\n", cmp.Or(request.ShownLines(strings.Join(c.ActsAs, "\n         ")), "itself alone"))
		return nil
	}
	fmt.Fprintln(stderr, request.ShownError(err))
	switch {
	case errors.Is(err, upstream.ErrNoCluster):
		return clusterNotNamed
	case c.Server == "":
		return clusterWrong
	}
	return clusterSilent
}
