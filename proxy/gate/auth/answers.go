package auth

import (
	"time"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/gate/remember"
)

// answers remembers what kube-apiserver says about clients. strangers has what it says about tokens that
// it does not accept: strangers bring any number of them, and must not make it forget the others.
type answers[V any] struct {
	known, strangers remember.TTLCache[Question, V]
}

// get returns an answer that has not expired.
func (a *answers[V]) get(q Question) (value V, ok bool) {
	if value, ok = a.known.Get(q); ok {
		return value, true
	}
	return a.strangers.Get(q)
}

// put remembers an answer that a source has caused, in place of the one from when the source was known,
// or was not.
func (a *answers[V]) put(source account.Source, q Question, value V, asked time.Time, ttl time.Duration) {
	keep, forget := &a.known, &a.strangers
	if source.Stranger {
		keep, forget = forget, keep
	}
	forget.Put(q, value, asked, 0)
	keep.PutFor(source, q, value, asked, ttl)
}
