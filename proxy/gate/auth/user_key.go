package auth

import (
	"context"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// UserKey is one user, as limits count users. All identities with the same user name have the same
// key. The zero UserKey is the proxy itself: all clients of the insecure port that bring no token
// are one user.
type UserKey struct {
	Name  string
	token Question // in place of the name where kube-apiserver does not say it: each token is a user then
}

// NamedKey returns the user that a request of id counts for. It reports false for a token, whose owner
// has to be asked for.
func NamedKey(id Identity) (key UserKey, ok bool) {
	switch {
	case id.Kind == KindToken:
		return UserKey{}, false
	case id.User != nil:
		return UserKey{Name: id.User.Name}, true
	case id.Kind == KindAnonymous:
		return UserKey{Name: AnonymousUser}, true
	}
	return UserKey{}, true
}

// UserKey is NamedKey that asks kube-apiserver for the owner of a token. ok is false for a token that
// kube-apiserver does not accept. If kube-apiserver does not name the owner before ctx ends, each token
// counts as a user. The next call may return another key for the same token, so a caller that gives
// back a place must keep the key.
func (a *Authorizer) UserKey(ctx context.Context, id Identity) (key UserKey, ok bool) {
	if key, ok = NamedKey(id); ok {
		return key, true
	}
	w := a.owners.Of(id)
	exchange.Waits(ctx)
	select {
	case <-w.donec:
	case <-ctx.Done():
		return UserKey{token: tokenQuestion(id)}, true
	}
	switch {
	case w.nobody:
		return UserKey{}, false
	case w.user == nil:
		return UserKey{token: tokenQuestion(id)}, true
	}
	return UserKey{Name: w.user.Name}, true
}
