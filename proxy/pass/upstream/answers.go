package upstream

import (
	"context"
	"time"

	"github.com/watchfan/watchfan/proxy/gate/remember"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Answers remembers what kube-apiserver has answered to questions of one kind. A question is asked once
// for all who want its answer at the same time. Its methods may be called from any goroutine.
type Answers[K comparable, V any] struct {
	calls remember.Coalescer[K, V]
	known remember.TTLCache[K, V]
}

// maxAnswers bounds the answers that are remembered. A cluster has a few hundred resources, each in a
// few representations.
const maxAnswers = 4096

// NewAnswers returns no answers yet. The caller calls End.
func NewAnswers[K comparable, V any](guard *exchange.Guard) *Answers[K, V] {
	return &Answers[K, V]{
		calls: remember.Coalescer[K, V]{Guard: guard},
		known: remember.TTLCache[K, V]{Most: maxAnswers},
	}
}

// Get returns the answer to a question. If it is not known, ask asks within timeout, and says for how
// long the answer is believed. Get reports false if there is none before ctx ends.
func (a *Answers[K, V]) Get(
	ctx context.Context, question K, timeout time.Duration, ask func(context.Context) (V, time.Duration),
) (value V, ok bool) {
	if value, ok = a.known.Get(question); ok {
		return value, true
	}
	return a.calls.Do(ctx, question, timeout, func(ctx context.Context) V {
		value, believed := ask(ctx)
		a.known.Put(question, value, time.Now(), believed)
		return value
	})
}

// End ends the questions under way and waits for them.
func (a *Answers[K, V]) End() { a.calls.End() }
