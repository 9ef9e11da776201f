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
type KnownTokens struct {
	accepted remember.TTLCache[Question, struct{}]
}

func NewKnownTokens() *KnownTokens {
	return &KnownTokens{remember.TTLCache[Question, struct{}]{Most: maxKnown}}
}

// Known reports whether id brings a token that is known.
func (k *KnownTokens) Known(id Identity) bool {
	if id.Token == "" {
		return false
	}
	_, ok := k.accepted.Get(spellingsQuestion(id))
	return ok
}

// Answered notes kube-apiserver's answer to a request with the token of id. Its handlers for OPTIONS,
// bad timeouts and shutdown answer before the token is authenticated. Apart from these, only a request
// whose token was accepted gets 2xx or 403.
func (k *KnownTokens) Answered(id Identity, method string, code int) {
	var ttl time.Duration
	switch {
	case id.Token == "":
		return
	case code == http.StatusUnauthorized:
	case method != http.MethodOptions && (code >= 200 && code < 300 || code == http.StatusForbidden):
		ttl = knownFor
	default:
		return
	}
	k.accepted.Put(spellingsQuestion(id), struct{}{}, time.Now(), ttl)
}

// tokenQuestion is the hash of id's token. The proxy's own identity has the zero Question.
func tokenQuestion(id Identity) Question {
	if id.Kind == KindOwn {
		return Question{}
	}
	return sha256.Sum256([]byte(id.Token))
}

// spellingsQuestion is tokenQuestion, the same for all spellings of the token. What kube-apiserver is asked is
// remembered of each, because a webhook may take one and not the other.
func spellingsQuestion(id Identity) Question {
	id.Token = spelt(id.Token)
	return tokenQuestion(id)
}
