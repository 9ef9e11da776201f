package auth

import (
	"fmt"
	"hash/maphash"

	"github.com/watchfan/watchfan/proxy/base/account"
)

// sourceSeed makes the sums that tell tokens apart useless to others.
var sourceSeed = maphash.MakeSeed()

// Source returns the party whose account pays for a request of id. It is the user, where the proxy
// knows its name; if it acts as another, it pays itself. A service account's token that
// kube-apiserver has accepted names its owner truly. Other accepted tokens are told apart by a sum.
// All others are strangers, and count by address. All clients of the insecure port that bring no
// token are one source.
func (a *Authorizer) Source(id Identity) account.Source { return sourceOf(a.queue.tokens, id) }

func sourceOf(tokens *KnownTokens, id Identity) account.Source {
	switch {
	case id.By != nil:
		return account.Source{Name: id.By.Name}
	case id.User != nil:
		return account.Source{Name: id.User.Name}
	case id.Kind == KindOwn:
		return account.Source{Name: id.ShownName()}
	case tokens.Known(id):
		if name, ok := TokenSubject(id.Token); ok {
			return account.Source{Name: name}
		}
		return account.Source{Name: fmt.Sprintf("(token %08x)", uint32(maphash.String(sourceSeed, id.Token)))}
	}
	return account.StrangerAt(id.From)
}

// ConnectionSource returns the party that pays for a connection with a request of id, before anybody is
// impersonated. A front proxy's connection is of no single user.
func (a *Authorizer) ConnectionSource(id Identity) account.Source {
	if id.Kind == KindFrontProxy {
		return account.Source{Name: "(" + id.Kind.String() + ")"}
	}
	return a.Source(id)
}

// WatchSource returns the party whose account pays for an open watch.
func (a *Authorizer) WatchSource(w *OpenWatch) account.Source {
	if w.grant == nil {
		return a.Source(Identity{Kind: KindOwn})
	}
	return a.Source(w.grant.id)
}
