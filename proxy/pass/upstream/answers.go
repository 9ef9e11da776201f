package upstream

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/watchfan/watchfan/proxy/gate/remember"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Answers remembers what kube-apiserver has answered to questions of one kind. A question is asked once
// for all who want its answer at the same time. Its methods may be called from any goroutine.
type Answers[K comparable, V any] struct {
	calls remember.Coalescer[K, V]

	mu    sync.Mutex
	known map[K]answer[V]
}

type answer[V any] struct {
	value   V
	expires time.Time
}

// maxAnswers bounds the answers that are remembered. A cluster has a few hundred resources, each in a
// few representations.
const maxAnswers = 4096

// NewAnswers returns no answers yet. The caller calls End.
func NewAnswers[K comparable, V any](guard *exchange.Guard) *Answers[K, V] {
	return &Answers[K, V]{calls: remember.Coalescer[K, V]{Guard: guard}, known: make(map[K]answer[V])}
}

// Get returns the answer to a question. If it is not known, ask asks within timeout, and says for how
// long the answer is believed. Get reports false if there is none before ctx ends.
func (a *Answers[K, V]) Get(
	ctx context.Context, question K, timeout time.Duration, ask func(context.Context) (V, time.Duration),
) (value V, ok bool) {
	a.mu.Lock()
	k, ok := a.known[question]
	a.mu.Unlock()
	if ok && time.Now().Before(k.expires) {
		return k.value, true
	}
	return a.calls.Do(ctx, question, timeout, func(ctx context.Context) V {
		value, believed := ask(ctx)
		if believed > 0 {
			a.remember(question, value, time.Now(), believed)
		}
		return value
	})
}

func (a *Answers[K, V]) remember(question K, value V, now time.Time, believed time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.known) >= maxAnswers {
		maps.DeleteFunc(a.known, func(_ K, k answer[V]) bool { return !now.Before(k.expires) })
	}
	if len(a.known) >= maxAnswers {
		clear(a.known) // they will be asked for again
	}
	a.known[question] = answer[V]{value, now.Add(believed)}
}

// End ends the questions under way and waits for them.
func (a *Answers[K, V]) End() { a.calls.End() }
