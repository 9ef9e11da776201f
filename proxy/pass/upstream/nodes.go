package upstream

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// nodeNaming remembers how kube-apiserver wants to be told that a request is a node's: by its name
// alone, or with its groups. See package auth, Impersonation at kube-apiserver.
type nodeNaming struct {
	doubted atomic.Bool // a node's request has been refused since the last question

	mu     sync.Mutex
	asked  time.Time
	byName bool
}

const (
	// nodeNamingKept is how long an answer counts, as other decisions about rights do.
	nodeNamingKept = 10 * time.Second
	// nodeNamingDoubted is how long it counts after a node's request is refused: the rules may have
	// changed.
	nodeNamingDoubted = time.Second
	// nodeNamingTimeout is how long a node's request waits for the answer, and those behind it.
	nodeNamingTimeout = 2 * time.Second
)

// mayNameNodes asks whether the proxy may name the group of nodes by the verb impersonate.
const mayNameNodes = `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1",` +
	`"spec":{"resourceAttributes":{"verb":"impersonate","version":"v1","resource":"groups","name":"system:nodes"}}}`

// nodesByName reports whether a node is named by its name alone. That is so if the proxy may not name
// nodes' group. The question is asked once in 10 s while nodes send requests, or in a second while they
// are refused. Without an answer the last one counts, and at first a node's groups are named. A wrong
// one lets kube-apiserver refuse the request, and never gives it more rights.
func (u *Upstream) nodesByName(ctx context.Context) bool {
	n := &u.nodes
	n.mu.Lock()
	defer n.mu.Unlock()
	kept := nodeNamingKept
	if n.doubted.Load() {
		kept = nodeNamingDoubted
	}
	if time.Since(n.asked) < kept {
		return n.byName
	}
	n.doubted.Store(false)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), nodeNamingTimeout)
	defer cancel()
	var review struct{ Status struct{ Allowed bool } }
	const path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	if u.ask(ctx, http.MethodPost, path, mayNameNodes, &review) == nil {
		n.byName = !review.Status.Allowed
	}
	n.asked = time.Now()
	return n.byName
}
