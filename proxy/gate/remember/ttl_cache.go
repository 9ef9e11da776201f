package remember

import (
	"cmp"
	"container/list"
	"sync"
	"time"

	"github.com/watchfan/watchfan/proxy/base/account"
)

// Most bounds a TTLCache that has no bound of its own. As many decisions about a client's rights take
// 2 MB.
const Most = 8192

// TTLCache remembers answers to questions, each for a time, which passes also while the machine is
// suspended. When it is full, it forgets the least recently used answer. The zero value is empty. Its
// methods may be called from any goroutine.
type TTLCache[K comparable, V any] struct {
	// Immutable.
	Most      int         // answers at a time; 0 is the constant Most
	MostBytes int         // of all answers together; 0 is no bound
	Size      func(V) int // of an answer, in bytes; nil if MostBytes is 0

	mu         sync.Mutex
	byQuestion map[K]*list.Element // of *answer[K, V]
	recent     list.List           // the answers, the last used one first
	bytes      int                 // of the answers
	owned      map[account.Source]owned
}

// owned is what a source has of a cache.
type owned struct{ answers, bytes int }

type answer[K comparable, V any] struct {
	question K
	value    V
	asked    time.Time
	expires  time.Time
	owner    account.Source
	size     int         // in bytes
	used     bool        // Get has returned it
	call     func()      // of CallAt; nil for none
	timer    *time.Timer // calls it; nil for none
}

// Get returns an answer that has not expired.
func (c *TTLCache[K, V]) Get(q K) (value V, ok bool) { return c.get(q, true) }

// Peek is Get without counting as a use.
func (c *TTLCache[K, V]) Peek(q K) (value V, ok bool) { return c.get(q, false) }

func (c *TTLCache[K, V]) get(q K, use bool) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.knownLocked(q)
	if now := time.Now(); known == nil || known.over(now, now.Round(0)) {
		return value, false
	}
	if use {
		c.recent.MoveToFront(c.byQuestion[q])
		known.used = true
	}
	return known.value, true
}

// Last returns an answer that may have expired. It does not count as a use.
func (c *TTLCache[K, V]) Last(q K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.knownLocked(q); known != nil {
		return known.value, true
	}
	return value, false
}

// over reports whether an answer has expired by the monotonic clock, or by the wall clock. The first does not
// go on while the machine is suspended, and the second can be set back.
func (a *answer[K, V]) over(now, wall time.Time) bool {
	return !now.Before(a.expires) || !wall.Before(a.expires.Round(0))
}

// knownLocked returns the answer to a question, expired or not; nil if there is none.
func (c *TTLCache[K, V]) knownLocked(q K) *answer[K, V] {
	if e := c.byQuestion[q]; e != nil {
		return e.Value.(*answer[K, V])
	}
	return nil
}

// Used reports whether Get has returned the answer since it was put.
func (c *TTLCache[K, V]) Used(q K) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.knownLocked(q)
	return known != nil && known.used
}

// CallAt calls f on a goroutine of its own at a time, unless the answer is forgotten or replaced
// before. Each answer has one call. So no more calls are kept than answers.
func (c *TTLCache[K, V]) CallAt(q K, at time.Time, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.knownLocked(q)
	if known == nil {
		return
	}
	known.stop()
	known.call = f
	known.timer = time.AfterFunc(time.Until(at), func() { c.run(known) })
}

// run makes the call of an answer, unless the answer was forgotten at this moment.
func (c *TTLCache[K, V]) run(known *answer[K, V]) {
	c.mu.Lock()
	f := known.call
	known.call = nil
	c.mu.Unlock()
	if f != nil {
		f()
	}
}

// Put remembers the answer to a question that was asked at the time asked. The answer expires ttl
// after that time. It replaces the earlier answer, unless that one was asked for later: a late
// answer must not undo a newer one. A ttl of 0 forgets the earlier answer and keeps none.
func (c *TTLCache[K, V]) Put(q K, value V, asked time.Time, ttl time.Duration) {
	c.PutFor(account.Source{}, q, value, asked, ttl)
}

// PutFor is Put of an answer that one source has caused. A source has at most an eighth of a full
// cache, of its answers and of its bytes: beyond that, its own answers make room.
func (c *TTLCache[K, V]) PutFor(owner account.Source, q K, value V, asked time.Time, ttl time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.knownLocked(q); known != nil {
		if known.asked.After(asked) {
			return
		}
		c.forgetLocked(c.byQuestion[q])
	}
	if ttl <= 0 {
		return
	}
	if c.byQuestion == nil {
		c.byQuestion, c.owned = make(map[K]*list.Element), make(map[account.Source]owned)
	}
	a := &answer[K, V]{question: q, value: value, asked: asked, expires: asked.Add(ttl), owner: owner}
	if c.Size != nil {
		a.size = c.Size(value)
	}
	c.byQuestion[q] = c.recent.PushFront(a)
	c.ownLocked(a, 1)
	for most := cmp.Or(c.Most, Most); c.recent.Len() > most || c.MostBytes > 0 && c.bytes > c.MostBytes && c.recent.Len() > 1; {
		c.forgetLocked(c.oldestLocked(owner, most))
	}
}

// oldestLocked returns the answer that makes room for one of owner.
func (c *TTLCache[K, V]) oldestLocked(owner account.Source, most int) *list.Element {
	if has := c.owned[owner]; owner != (account.Source{}) && (has.answers > most/8 || has.bytes > c.MostBytes/8) {
		for e := c.recent.Back(); e != nil; e = e.Prev() {
			if e.Value.(*answer[K, V]).owner == owner {
				return e
			}
		}
	}
	return c.recent.Back()
}

func (c *TTLCache[K, V]) forgetLocked(e *list.Element) {
	known := c.recent.Remove(e).(*answer[K, V])
	known.stop()
	known.value = *new(V) // its timer may be kept for a while
	delete(c.byQuestion, known.question)
	c.ownLocked(known, -1)
}

// Clear forgets all answers.
func (c *TTLCache[K, V]) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.recent.Front(); e != nil; e = c.recent.Front() {
		c.forgetLocked(e)
	}
}

// ownLocked counts an answer as its owner's, n times.
func (c *TTLCache[K, V]) ownLocked(a *answer[K, V], n int) {
	c.bytes += n * a.size
	has := c.owned[a.owner]
	has.answers += n
	has.bytes += n * a.size
	if c.owned[a.owner] = has; has.answers == 0 {
		delete(c.owned, a.owner)
	}
}

// stop drops the call, if there is one, and what it needs: Go keeps a stopped timer for a while.
func (a *answer[K, V]) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
	a.call = nil
}

// Len returns the number of answers, expired ones included.
func (c *TTLCache[K, V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.recent.Len()
}
