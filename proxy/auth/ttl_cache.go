package auth

import (
	"cmp"
	"container/list"
	"crypto/sha256"
	"sync"
	"time"
)

// maxAnswers bounds what answers remembers, unless it says otherwise: so many verdicts are 2 MB.
const maxAnswers = 8192

// Question is the hash of a token or a user and of what is wanted. It is what
// maps hold in place of the token.
type Question [sha256.Size]byte

// TTLCache remembers the answers to the questions that were asked last. The zero value is empty.
// Its methods may be called from any goroutine.
type TTLCache[V any] struct {
	most int // answers at a time; 0 is maxAnswers; immutable

	mu         sync.Mutex
	byQuestion map[Question]*list.Element // of *answer[V]
	recent     list.List                  // the answers, the last used one first
}

type answer[V any] struct {
	question Question
	value    V
	asked    time.Time
	expires  time.Time
}

// Get returns an answer that is still good.
func (a *TTLCache[V]) Get(q Question) (value V, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.byQuestion[q]
	if e == nil || !time.Now().Before(e.Value.(*answer[V]).expires) {
		return value, false
	}
	a.recent.MoveToFront(e)
	return e.Value.(*answer[V]).value, true
}

// Put keeps the answer to what was asked at asked for ttl from then on, in place of the one before,
// unless that was asked later: what comes late must not undo what has changed since. A ttl of 0
// keeps none.
func (a *TTLCache[V]) Put(q Question, value V, asked time.Time, ttl time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.byQuestion[q]; e != nil {
		if e.Value.(*answer[V]).asked.After(asked) {
			return
		}
		a.forgetLocked(e)
	}
	if ttl <= 0 {
		return
	}
	if a.byQuestion == nil {
		a.byQuestion = make(map[Question]*list.Element)
	}
	a.byQuestion[q] = a.recent.PushFront(&answer[V]{question: q, value: value, asked: asked, expires: asked.Add(ttl)})
	if a.recent.Len() > cmp.Or(a.most, maxAnswers) {
		a.forgetLocked(a.recent.Back())
	}
}

func (a *TTLCache[V]) forgetLocked(e *list.Element) {
	delete(a.byQuestion, a.recent.Remove(e).(*answer[V]).question)
}

// Size is how many answers are remembered, good or not.
func (a *TTLCache[V]) Size() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.recent.Len()
}
