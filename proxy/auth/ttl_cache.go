package auth

import (
	"cmp"
	"container/list"
	"crypto/sha256"
	"sync"
	"time"
)

// maxCached bounds a TTLCache that has no bound of its own. As many decisions take 2 MB.
const maxCached = 8192

// Question is the SHA-256 of a token, or of an identity and what it wants to do. Maps hold it in
// place of the token.
type Question [sha256.Size]byte

// TTLCache remembers answers to questions, each for a time. When it is full, it forgets the least
// recently used answer. The zero value is empty. Its methods may be called from any goroutine.
type TTLCache[V any] struct {
	most int // answers at a time; 0 is maxCached; immutable

	mu         sync.Mutex
	byQuestion map[Question]*list.Element // of *answer[V]
	recent     list.List                  // the answers, the last used one first
}

type answer[V any] struct {
	question Question
	value    V
	asked    time.Time
	expires  time.Time
	used     bool // Get has returned it
}

// Get returns an answer that has not expired.
func (c *TTLCache[V]) Get(q Question) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byQuestion[q]
	if e == nil || !time.Now().Before(e.Value.(*answer[V]).expires) {
		return value, false
	}
	c.recent.MoveToFront(e)
	known := e.Value.(*answer[V])
	known.used = true
	return known.value, true
}

// Peek is Get without counting as a use.
func (c *TTLCache[V]) Peek(q Question) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byQuestion[q]; e != nil && time.Now().Before(e.Value.(*answer[V]).expires) {
		return e.Value.(*answer[V]).value, true
	}
	return value, false
}

// Used reports whether Get has returned the answer since it was put.
func (c *TTLCache[V]) Used(q Question) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byQuestion[q]
	return e != nil && e.Value.(*answer[V]).used
}

// Put remembers the answer to a question that was asked at the time asked. The answer expires ttl
// after that time. It replaces the earlier answer, unless that one was asked for later: a late
// answer must not undo a newer one. A ttl of 0 forgets the earlier answer and keeps none.
func (c *TTLCache[V]) Put(q Question, value V, asked time.Time, ttl time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byQuestion[q]; e != nil {
		if e.Value.(*answer[V]).asked.After(asked) {
			return
		}
		c.forgetLocked(e)
	}
	if ttl <= 0 {
		return
	}
	if c.byQuestion == nil {
		c.byQuestion = make(map[Question]*list.Element)
	}
	c.byQuestion[q] = c.recent.PushFront(&answer[V]{question: q, value: value, asked: asked, expires: asked.Add(ttl)})
	if c.recent.Len() > cmp.Or(c.most, maxCached) {
		c.forgetLocked(c.recent.Back())
	}
}

func (c *TTLCache[V]) forgetLocked(e *list.Element) {
	delete(c.byQuestion, c.recent.Remove(e).(*answer[V]).question)
}

// Len returns the number of answers, expired ones included.
func (c *TTLCache[V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.recent.Len()
}
