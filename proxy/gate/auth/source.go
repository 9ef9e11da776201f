package auth

import (
	"context"
	"encoding/base64"
	"fmt"
	"hash/maphash"
	"net"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/gate/fairness"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
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
		return account.Source{Name: fmt.Sprintf("(token %08x)", uint32(maphash.String(sourceSeed, spelt(id.Token))))}
	}
	return account.StrangerAt(id.From)
}

// spelt returns a token as its issuer spells it. Of a JWT kube-apiserver ignores white space, but for the payload's,
// and the bits behind the last byte of each part (go-jose). A client with one token could otherwise be any number of
// users, or take the places of all known tokens.
func spelt(token string) string {
	header, rest, _ := strings.Cut(token, ".")
	payload, signature, ok := strings.Cut(rest, ".")
	if !ok || strings.Contains(signature, ".") || plain(header) && plain(payload) && plain(signature) {
		return token
	}
	parts := []string{withoutSpace(header), payload, withoutSpace(signature)}
	for i, part := range parts {
		b, err := base64.RawURLEncoding.DecodeString(part)
		if err != nil {
			return token
		}
		parts[i] = base64.RawURLEncoding.EncodeToString(b)
	}
	return strings.Join(parts, ".")
}

var strictly = base64.RawURLEncoding.Strict()

// plain reports whether a part of a JWT is as its issuer spells it. Each read from a cache asks.
func plain(part string) bool {
	for i := range len(part) {
		if part[i] <= ' ' || part[i] >= utf8.RuneSelf {
			return false
		}
	}
	var last [2]byte
	_, err := strictly.Decode(last[:], []byte(part[len(part)-len(part)%4:]))
	return err == nil
}

func withoutSpace(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsSpace(c) {
			return -1
		}
		return c
	}, s)
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
	switch w := a.Owners.Of(id); {
	case !w.awaited(ctx), w.user == nil && !w.nobody:
		return UserKey{token: spellingsQuestion(id)}, true
	case w.nobody:
		return UserKey{}, false
	default:
		return UserKey{Name: w.user.Name}, true
	}
}

// FlowOf tells users apart whose requests share processors, or kube-apiserver's patience. Each token is
// a user: kube-apiserver is not asked for its owner, and the many pods of a DaemonSet, which share an
// account, reconnect together. All spellings of a token are one. On the insecure port, where all clients
// are the proxy itself, each connection is a user. Of anonymous clients, each address is a user.
func FlowOf(id Identity, from net.Addr) fairness.Flow {
	switch {
	case id.User != nil:
		return fairness.User(id.User.Name)
	case id.Kind == KindAnonymous:
		return fairness.Address(id.From)
	case id.Kind == KindToken:
		return fairness.Token(spelt(id.Token))
	}
	return fairness.Connection(from)
}

// SourceOf returns a client's address, as the source of a stranger's reviews.
func SourceOf(x *exchange.Exchange) netip.Prefix { return account.AddressOf(x.Conn.RemoteAddr()) }

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
	return w.awaited(ctx) && w.user != nil && share(w.user.Groups, groups)
}
