package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/watchfan/watchfan/proxy/upstream"
)

// The exit codes of check, which deploy/run.sh knows too.
const (
	clusterAnswers  = 0
	clusterSilent   = 1 // it does not answer, or not as kube-apiserver does
	clusterWrong    = 2 // the flags are wrong, or the kubeconfig cannot be used
	clusterNotNamed = 3 // no cluster is configured
)

const checkUsage = `watchfan check says which cluster watchfan would serve, and with whose rights. It asks kube-apiserver
for its version and for the user of the kubeconfig (SelfSubjectReview), and changes nothing.

Usage: watchfan check [flags]

The flags are those of watchfan; --kubeconfig and --context matter.
The exit code is 0 if the cluster answers, 1 if it does not, 2 if the flags or the kubeconfig are wrong,
and 3 if no cluster is configured.
`

// check says which cluster watchfan would serve with these flags, and with whose rights.
func check(args []string) int {
	opts, code, ok := options(args, checkUsage)
	if !ok {
		return code
	}
	c, err := opts.Upstream.Cluster(context.Background())
	if c.Server != "" {
		fmt.Printf("context: %s\nserver:  %s\n", cmp.Or(c.Context, "none, the pod's service account"), c.Server)
	}
	if err == nil {
		fmt.Printf("version: %s\nuser:    %s\n", c.Version, cmp.Or(c.User, "kube-apiserver does not say"))
		return clusterAnswers
	}
	fmt.Fprintln(os.Stderr, err)
	switch {
	case errors.Is(err, upstream.ErrNoCluster):
		return clusterNotNamed
	case c.Server == "":
		return clusterWrong
	}
	return clusterSilent
}
