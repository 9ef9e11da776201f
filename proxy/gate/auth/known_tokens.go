package auth

import (
	"crypto/sha256"
	"net/http"
	"time"

	"github.com/watchfan/watchfan/proxy/gate/remember"
)

const (
	// knownFor is how long a token is known after kube-apiserver has accepted it. A token that is
	// no longer valid is forgotten at its first 401, so the time only bounds the memory.
	knownFor = 10 * time.Minute
	// maxKnown bounds the known tokens. It is more than the pods of a cluster of 5,000 nodes
	// usually use at a time, and takes about 8 MB. The least recently used token is forgotten
	// first.
	maxKnown = 32 << 10
)

// KnownTokens remembers the tokens that kube-apiserver has accepted lately. Their owners are known
// clients. All others that bring a token, or nothing, are strangers. Known clients must not feel
// what strangers do. Only hashes are kept. Its methods may be called from any goroutine.
type KnownTokens struct{ accepted remember.TTLCache[struct{}] }

func NewKnownTokens() *KnownTokens { return &KnownTokens{remember.TTLCache[struct{}]{Most: maxKnown}} }

// KnownToken is the token of one identity, hashed once for both of its methods.
type KnownToken struct {
	tokens *KnownTokens // nil if there is no token
	hash   Question
}

// Of returns the token that id brings.
func (k *KnownTokens) Of(id Identity) KnownToken {
	if id.Kind != KindToken || id.Token == "" {
		return KnownToken{}
	}
	return KnownToken{k, tokenQuestion(id)}
}

// Known reports whether the token is known.
func (t KnownToken) Known() bool {
	if t.tokens == nil {
		return false
	}
	_, ok := t.tokens.accepted.Get(t.hash)
	return ok
}

// Answered notes kube-apiserver's answer to a request with the token. Its handlers for OPTIONS, bad
// timeouts and shutdown answer before the token is authenticated. Apart from these, only a request
// whose token was accepted gets 2xx or 403.
func (t KnownToken) Answered(method string, code int) {
	if t.tokens == nil {
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
	t.tokens.accepted.Put(t.hash, struct{}{}, time.Now(), ttl)
}

// tokenQuestion is the hash of id's token. The proxy's own identity has the zero Question.
func tokenQuestion(id Identity) Question {
	if id.Kind == KindOwn {
		return Question{}
	}
	return sha256.Sum256([]byte(id.Token))
}
