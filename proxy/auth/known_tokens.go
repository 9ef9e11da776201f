package auth

import (
	"net/http"
	"time"
)

const (
	// knownFor is how long a token is known after kube-apiserver has accepted it. A token that is
	// no longer valid is forgotten at its first 401, so the time only bounds what the memory is
	// about.
	knownFor = 10 * time.Minute
	// maxKnown bounds how many tokens are known: more than the pods of a cluster of 5,000 nodes
	// usually have in use at a time, in about 8 MB. The token of which nothing was heard for
	// longest is forgotten first.
	maxKnown = 32 << 10
)

// KnownTokens remembers the tokens that kube-apiserver has accepted lately. Their owners are known
// clients; all others who bring a token, or nothing, are strangers, and whatever strangers do must
// not be felt by known clients. Only hashes are kept. Its methods may be called from any goroutine.
type KnownTokens struct{ accepted TTLCache[struct{}] }

func NewKnownTokens() *KnownTokens { return &KnownTokens{TTLCache[struct{}]{most: maxKnown}} }

// Has reports whether id brings a known token.
func (k *KnownTokens) Has(id Identity) bool {
	if id.Kind != KindToken || id.Token == "" {
		return false
	}
	_, ok := k.accepted.Get(tokenQuestion(id))
	return ok
}

// Heard notes how kube-apiserver has answered a request of id. Its handlers for OPTIONS, bad
// timeouts and shutdown answer before anybody looks at the token; nothing before that answers other
// methods with 2xx or 403.
func (k *KnownTokens) Heard(id Identity, method string, code int) {
	if id.Kind != KindToken || id.Token == "" {
		return
	}
	var ttl time.Duration
	switch {
	case code == http.StatusUnauthorized:
	case method != http.MethodOptions && (code >= 200 && code < 300 || code == http.StatusForbidden):
		ttl = knownFor
	default:
		return
	}
	k.accepted.Put(tokenQuestion(id), struct{}{}, time.Now(), ttl)
}
