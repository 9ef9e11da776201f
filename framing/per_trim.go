package framing

import "sync/atomic"

// PerTrim holds a value for each Trim that somebody has asked for: a list without locks, to which
// values are added in front. It is as long as there are Trims in use, so it is searched from its
// beginning. The zero value holds none and takes one pointer. Any goroutine may call its methods. It
// must not be copied.
type PerTrim[T any] struct {
	first atomic.Pointer[trimEntry[T]] // the latest
}

// trimEntry is one value. Its trim is immutable once the list has it, and its next skips only entries of
// Trims that are retired.
type trimEntry[T any] struct {
	trim  *Trim
	value T
	next  atomic.Pointer[trimEntry[T]]
}

// find returns the value for t in the list from e on, which may be nil; nil if there is none.
func (e *trimEntry[T]) find(t *Trim) *T {
	for ; e != nil; e = e.next.Load() {
		if e.trim == t {
			return &e.value
		}
	}
	return nil
}

// For returns the value for t, which may be nil. create makes it when it is first asked for. If
// several goroutines have it made at once, all get the one that came first into the list: an entry
// comes only in front of entries that have been searched, so no Trim has two.
func (p *PerTrim[T]) For(t *Trim, create func() T) *T {
	var made *trimEntry[T]
	for {
		first := p.first.Load()
		if v := first.find(t); v != nil {
			return v
		}
		if made == nil {
			made = &trimEntry[T]{trim: t, value: create()}
		}
		made.next.Store(first)
		if p.first.CompareAndSwap(first, made) {
			return &made.value
		}
	}
}

// drop lets go of the values for Trims that are retired, and calls dropped with each. One goroutine at a
// time calls it.
func (p *PerTrim[T]) drop(dropped func(*T)) {
	at := &p.first
	for e := at.Load(); e != nil; e = e.next.Load() {
		switch {
		case !e.trim.isRetired():
			at = &e.next
		case at.CompareAndSwap(e, e.next.Load()): // another may have come in front
			dropped(&e.value)
		default:
			return
		}
	}
}
