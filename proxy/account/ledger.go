package account

import (
	"cmp"
	"slices"
	"sync"
)

// Source is the party that memory is held for. It is comparable.
type Source struct {
	// Name is shown to operators: a user's name, what tells a token from others without disclosing
	// it, or an address.
	Name string
	// Stranger says that kube-apiserver has not accepted the client's credential lately, or that it
	// has none. Name is then its address.
	Stranger bool
}

// Kind is what is held.
type Kind uint8

const (
	Heads Kind = iota
	Bodies
	Answers
	Watches
	Lanes
	kinds // their number
)

// String returns the kind as metrics and pages name it.
func (k Kind) String() string {
	return [...]string{"heads", "bodies", "answers", "watches", "lanes"}[k]
}

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{Heads, Bodies, Answers, Watches, Lanes} }

// Limits bound what is held, in bytes. 0 is no limit.
type Limits struct {
	Each      int64 // of one source
	Strangers int64 // of all strangers together
	All       int64 // of all sources together
}

// LimitsOf returns the limits for a process that may use so many bytes of memory.
func LimitsOf(memory int64) Limits {
	return Limits{Each: memory / 8, Strangers: memory / 20, All: memory / 4}
}

// Ledger holds the accounts of all sources.
type Ledger struct {
	limits Limits // immutable

	mu        sync.Mutex
	sources   map[Source]*balance // those with an open entry
	held      [kinds]int64        // by all
	live      int64               // by all, without what has been cut, and is about to be given back
	strangers int64               // the same by all strangers
	cut       [kinds]int64        // bytes that have been cut, in all
	refused   [kinds]int64        // entries that were refused, in all
}

// balance is what one source holds. The ledger's lock guards it.
type balance struct {
	source  Source
	held    [kinds]int64
	total   int64 // without what has been cut, and is about to be given back
	entries map[*Entry]struct{}
}

// New returns an empty ledger.
func New(limits Limits) *Ledger {
	return &Ledger{limits: limits, sources: make(map[Source]*balance)}
}

// Entry is something that one source holds. It is held until Close.
type Entry struct {
	ledger *Ledger
	kind   Kind
	ends   func() // ends what is held; nil if it cannot be ended

	// Guarded by ledger.mu.
	of     *balance
	bytes  int64
	gone   bool // cut
	closed bool
}

// Open returns an entry without bytes. cut ends what the entry stands for, soon, so that it is
// closed; nil if only its own end does. cut is called once at most, and must not wait.
func (l *Ledger) Open(source Source, kind Kind, cut func()) *Entry {
	e := &Entry{ledger: l, kind: kind, ends: cut}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.sources[source]
	if b == nil {
		b = &balance{source: source, entries: make(map[*Entry]struct{})}
		l.sources[source] = b
	}
	b.entries[e] = struct{}{}
	e.of = b
	return e
}

// Set makes bytes what the entry holds. It reports false, and changes nothing, if that is more than
// before and exceeds the bound of the source, or a bound that is shared while the source is the
// largest within it. The caller must then not hold the bytes. It also reports false once the entry
// has been cut.
func (e *Entry) Set(bytes int64) bool {
	l := e.ledger
	l.mu.Lock()
	victim, ok := l.setLocked(e, bytes)
	cuts := l.cutLocked(victim)
	l.mu.Unlock()
	call(cuts)
	return ok
}

// Add is Set with the bytes that are held more than before; less if negative.
func (e *Entry) Add(bytes int64) bool {
	l := e.ledger
	l.mu.Lock()
	victim, ok := l.setLocked(e, e.bytes+bytes)
	cuts := l.cutLocked(victim)
	l.mu.Unlock()
	call(cuts)
	return ok
}

// setLocked is Set. It returns the source that must be cut, nil for none.
func (l *Ledger) setLocked(e *Entry, bytes int64) (victim *balance, ok bool) {
	more := bytes - e.bytes
	if e.gone || e.closed {
		if more < 0 && !e.closed {
			l.moveLocked(e, more)
		}
		return nil, false
	}
	if more > 0 {
		if victim, ok = l.roomLocked(e.of, more); !ok {
			l.refused[e.kind]++
			return nil, false
		}
	}
	l.moveLocked(e, more)
	return victim, true
}

// roomLocked looks whether b may hold more bytes, and which source must be cut for that.
func (l *Ledger) roomLocked(b *balance, more int64) (victim *balance, ok bool) {
	if l.limits.Each > 0 && b.total+more > l.limits.Each {
		return nil, false
	}
	if b.source.Stranger && l.limits.Strangers > 0 && l.strangers+more > l.limits.Strangers {
		victim = l.largestLocked(true)
	} else if l.limits.All > 0 && l.live+more > l.limits.All {
		victim = l.largestLocked(false)
	}
	return victim, victim == nil || victim != b && victim.total >= more
}

// moveLocked adds to what an entry holds.
func (l *Ledger) moveLocked(e *Entry, more int64) {
	e.bytes += more
	e.of.held[e.kind] += more
	l.held[e.kind] += more
	if e.gone {
		return
	}
	e.of.total += more
	l.live += more
	if e.of.source.Stranger {
		l.strangers += more
	}
}

// largestLocked returns the source, or the stranger, that holds most.
func (l *Ledger) largestLocked(strangers bool) (largest *balance) {
	for _, b := range l.sources {
		if strangers && !b.source.Stranger {
			continue
		}
		if largest == nil || b.total > largest.total {
			largest = b
		}
	}
	return largest
}

// cutLocked marks what a source holds as cut, and returns the functions that end it. b may be nil.
func (l *Ledger) cutLocked(b *balance) (cuts []func()) {
	if b == nil {
		return nil
	}
	for e := range b.entries {
		if e.gone || e.ends == nil {
			continue
		}
		b.total -= e.bytes
		l.live -= e.bytes
		if b.source.Stranger {
			l.strangers -= e.bytes
		}
		l.cut[e.kind] += e.bytes
		e.gone = true
		cuts = append(cuts, e.ends)
	}
	return cuts
}

func call(cuts []func()) {
	for _, cut := range cuts {
		cut()
	}
}

// Close says that nothing is held any more. Only the first call has an effect.
func (e *Entry) Close() {
	l := e.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.closed {
		return
	}
	l.moveLocked(e, -e.bytes)
	e.closed = true
	delete(e.of.entries, e)
	if len(e.of.entries) == 0 {
		delete(l.sources, e.of.source)
	}
}

// Relieve cuts the largest source, if it holds at least so many bytes. It returns the source and
// the bytes that it held; 0 if none was cut.
func (l *Ledger) Relieve(least int64) (Source, int64) {
	l.mu.Lock()
	b := l.largestLocked(false)
	if b == nil || b.total < max(1, least) {
		l.mu.Unlock()
		return Source{}, 0
	}
	before := b.total
	cuts := l.cutLocked(b)
	source, freed := b.source, before-b.total
	l.mu.Unlock()
	call(cuts)
	return source, freed
}

// Holder is what one source holds, in bytes by Kind.
type Holder struct {
	Source Source
	Held   [kinds]int64
}

// Total returns the bytes of all kinds.
func (h Holder) Total() (total int64) {
	for _, bytes := range h.Held {
		total += bytes
	}
	return total
}

// Largest returns at most n sources that hold most, the largest first.
func (l *Ledger) Largest(n int) []Holder {
	l.mu.Lock()
	all := make([]Holder, 0, len(l.sources))
	for _, b := range l.sources {
		all = append(all, Holder{b.source, b.held})
	}
	l.mu.Unlock()
	slices.SortFunc(all, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(b.Total(), a.Total()), cmp.Compare(a.Source.Name, b.Source.Name))
	})
	return all[:min(n, len(all))]
}

// Totals is a summary of a ledger. Arrays are by Kind.
type Totals struct {
	Sources   int
	Strangers int64        // bytes that strangers hold, without what has been cut
	Held      [kinds]int64 // bytes
	Cut       [kinds]int64 // bytes, since New
	Refused   [kinds]int64 // times, since New
}

// Totals returns the summary.
func (l *Ledger) Totals() Totals {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Totals{len(l.sources), l.strangers, l.held, l.cut, l.refused}
}
