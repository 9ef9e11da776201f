package auth

import (
	"context"
	"slices"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// HasGroup reports whether a user is known to be in one of some groups: by its certificate, or by what its
// service account implies, if kube-apiserver has accepted the token. Nobody is asked.
func (a *Authorizer) HasGroup(id Identity, groups []string) bool {
	var of []string
	if id.User != nil {
		of = id.User.Groups
	} else if namespace, _, ok := serviceAccount(id.ShownName()); ok && a.queue.tokens.Known(id) {
		of = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}
	}
	return share(of, groups)
}

// share reports whether two lists of groups have one in common.
func share(a, b []string) bool {
	return slices.ContainsFunc(a, func(group string) bool { return slices.Contains(b, group) })
}

// InGroups is HasGroup that asks kube-apiserver for the owner of a token, until ctx ends.
func (a *Authorizer) InGroups(ctx context.Context, id Identity, groups []string) bool {
	if a.HasGroup(id, groups) {
		return true
	}
	if id.Kind != KindToken {
		return false
	}
	w := a.Owners.Of(id)
	exchange.Waits(ctx)
	select {
	case <-w.donec:
		return w.user != nil && share(w.user.Groups, groups)
	case <-ctx.Done():
		return false
	}
}
