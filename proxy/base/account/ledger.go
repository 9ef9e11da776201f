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
	Connections
	Copies
	Lanes
	kinds // their number
)

// String returns the kind as metrics and pages name it.
func (k Kind) String() string {
	return [...]string{"heads", "bodies", "answers", "watches", "connections", "copies", "lanes"}[k]
}

// Kinds returns all kinds.
func Kinds() (all []Kind) {
	for k := range kinds {
		all = append(all, k)
	}
	return all
}

// Passing returns the kinds that pass: what is held until a client sends on, reads, or leaves.
func Passing() []Kind { return []Kind{Heads, Bodies, Answers, Watches, Connections} }

// bounded are the kinds that have their bounds together, and connections the one with a bound of its own.
var bounded, connections = []Kind{Heads, Bodies, Answers, Watches}, []Kind{Connections}

func (k Kind) bounded() bool { return k <= Watches }

// together returns the kinds that share their bounds with k, and are cut together.
func (k Kind) together() []Kind {
	if k == Connections {
		return connections
	}
	return bounded
}

// cache reports whether what is held is a cache. It serves others as soon as they come.
func (k Kind) cache() bool { return k >= Copies }

// Limits bound what is held, in bytes. 0 is no limit. Each, Strangers and All are about heads, bodies,
// answers and watches. Lanes have no limit but the memory: caches are what it is for.
type Limits struct {
	Each        int64 `json:"eachBytes"`        // of one source
	Strangers   int64 `json:"strangersBytes"`   // of all strangers together
	All         int64 `json:"allBytes"`         // of all sources together
	Connections int64 `json:"connectionsBytes"` // the connections of all strangers together; three quarters for one of them
	Copies      int64 `json:"copiesBytes"`      // the copies of one source
}

// LimitsOf returns the limits for a process that may use so many bytes of memory. What has been cut
// is freed a moment later, and Go's collector leaves about as much garbage. So strangers together
// take a tenth at most, without their connections.
func LimitsOf(memory int64) Limits {
	return Limits{Each: memory / 8, Strangers: memory / 32, All: memory / 4, Connections: memory / 4, Copies: memory / 4}
}

// Ledger holds the accounts of all sources.
type Ledger struct {
	limits Limits // immutable
	// Told is called for each cut, if not nil, on the goroutine that caused it. It must not wait. It is immutable
	// once the ledger is used.
	Told func(Cut)

	mu        sync.Mutex
	sources   map[Source]*balance // those with an open entry
	holding   int                 // how many of them hold something
	open      int                 // entries
	held      [kinds]int64        // by all
	live      int64               // of the bounded kinds, by all, without what has been cut
	strangers int64               // the same by all strangers
	unknown   int64               // of connections, by all strangers, without what has been cut
	cut       [kinds]int64        // bytes that have been cut, in all
	refused   [kinds]int64        // entries that were refused, in all
}

// balance is what one source holds. The ledger's lock guards it.
type balance struct {
	source  Source
	held    [kinds]int64
	total   int64        // of the bounded kinds, without what has been cut, and is about to be given back
	ends    [kinds]int64 // held by entries that can be cut, and have not been
	entries map[*Entry]struct{}
	things  int // entries with bytes
}

// freed returns what a cut of some kinds frees.
func (b *balance) freed(some []Kind) (bytes int64) {
	for _, k := range some {
		bytes += b.ends[k]
	}
	return bytes
}

// New returns an empty ledger.
func New(limits Limits) *Ledger {
	return &Ledger{limits: limits, sources: make(map[Source]*balance)}
}

// Cut is what one source held that has been cut.
type Cut struct {
	Source Source
	Bytes  int64
	// Short says that memory was short. Otherwise a bound that sources share was reached.
	Short bool
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
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.openLocked(source, kind, cut)
}

func (l *Ledger) openLocked(source Source, kind Kind, cut func()) *Entry {
	e := &Entry{ledger: l, kind: kind, ends: cut}
	l.joinLocked(e, source)
	l.open++
	return e
}

// Set makes bytes what the entry holds. It reports false, and changes nothing, if that is more than
// before and exceeds the bound of the source, or a bound that is shared while the source is the
// largest within it. The caller must then not hold the bytes. It also reports false once the entry
// has been cut.
func (e *Entry) Set(bytes int64) bool { return e.set(0, bytes) }

// Add is Set with the bytes that are held more than before; less if negative.
func (e *Entry) Add(bytes int64) bool { return e.set(1, bytes) }

// set is Set with so many bytes more than times the present ones.
func (e *Entry) set(times, more int64) bool {
	l := e.ledger
	l.mu.Lock()
	victim, ok := l.setLocked(e, times*e.bytes+more)
	cuts, done := l.cutLocked(victim, e.kind.together(), false)
	l.mu.Unlock()
	l.call(cuts, done)
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
		if victim, ok = l.roomLocked(e.of, e.kind, more); !ok {
			l.refused[e.kind]++
			return nil, false
		}
	}
	l.moveLocked(e, more)
	return victim, true
}

// roomLocked looks whether b may hold more bytes of a kind, and which source must be cut for that.
func (l *Ledger) roomLocked(b *balance, kind Kind, more int64) (victim *balance, ok bool) {
	if kind.cache() {
		return nil, kind == Lanes || l.limits.Copies <= 0 || b.ends[Copies]+more <= l.limits.Copies
	}
	if kind == Connections {
		return l.roomToConnectLocked(b, more)
	}
	if l.limits.Each > 0 && b.total+more > l.limits.Each {
		return nil, false
	}
	if b.source.Stranger && l.limits.Strangers > 0 && l.strangers+more > l.limits.Strangers {
		victim = l.largestLocked(true, bounded)
	} else if l.limits.All > 0 && l.live+more > l.limits.All {
		victim = l.largestLocked(false, bounded)
	}
	return victim, victim == nil || victim != b && victim.freed(bounded) >= more
}

// roomToConnectLocked is roomLocked for connections. A stranger leaves a quarter to the others.
func (l *Ledger) roomToConnectLocked(b *balance, more int64) (victim *balance, ok bool) {
	most := l.limits.Connections
	switch {
	case most <= 0 || !b.source.Stranger:
		return nil, true
	case b.ends[Connections]+more > most/4*3:
		return nil, false
	case l.unknown+more > most:
		victim = l.largestLocked(true, connections)
		return victim, victim != b && victim.freed(connections) >= more
	}
	return nil, true
}

// moveLocked adds to what an entry holds.
func (l *Ledger) moveLocked(e *Entry, more int64) {
	b, before := e.of, e.bytes
	e.bytes += more
	b.held[e.kind] += more
	l.held[e.kind] += more
	switch {
	case before == 0 && e.bytes != 0:
		if b.things++; b.things == 1 {
			l.holding++
		}
	case before != 0 && e.bytes == 0:
		if b.things--; b.things == 0 {
			l.holding--
		}
	}
	if !e.gone {
		l.liveLocked(e, more)
	}
}

// liveLocked adds to what an entry holds that has not been cut.
func (l *Ledger) liveLocked(e *Entry, more int64) {
	b := e.of
	if e.ends != nil {
		b.ends[e.kind] += more
	}
	if e.kind == Connections && b.source.Stranger {
		l.unknown += more
	}
	if !e.kind.bounded() {
		return
	}
	b.total += more
	l.live += more
	if b.source.Stranger {
		l.strangers += more
	}
}

// largestLocked returns the source, or the stranger, whose cut of some kinds frees most.
func (l *Ledger) largestLocked(strangers bool, some []Kind) (largest *balance) {
	most := int64(-1)
	for _, b := range l.sources {
		if strangers && !b.source.Stranger {
			continue
		}
		if bytes := b.freed(some); bytes > most {
			largest, most = b, bytes
		}
	}
	return largest
}

// cutLocked marks what a source holds of some kinds as cut, and returns the functions that end it. An
// entry that holds nothing now goes on. b may be nil.
func (l *Ledger) cutLocked(b *balance, some []Kind, short bool) (cuts []func(), done Cut) {
	if b == nil {
		return nil, done
	}
	for e := range b.entries {
		if e.gone || e.ends == nil || e.bytes == 0 || !slices.Contains(some, e.kind) {
			continue
		}
		l.liveLocked(e, -e.bytes)
		l.cut[e.kind] += e.bytes
		done.Bytes += e.bytes
		e.gone = true
		cuts = append(cuts, e.ends)
	}
	done.Source, done.Short = b.source, short
	return cuts, done
}

// call ends what has been cut. The lock is not held.
func (l *Ledger) call(cuts []func(), done Cut) {
	for _, cut := range cuts {
		cut()
	}
	if len(cuts) > 0 && l.Told != nil {
		l.Told(done)
	}
}

// Move makes another source pay for what the entry holds, whatever its bounds.
func (e *Entry) Move(to Source) {
	l := e.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.closed || e.gone || e.of.source == to {
		return
	}
	bytes := e.bytes
	l.moveLocked(e, -bytes)
	l.leaveLocked(e)
	l.joinLocked(e, to)
	l.moveLocked(e, bytes)
}

// Close says that nothing is held any more. Only the first call has an effect.
func (e *Entry) Close() {
	l := e.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeLocked(e)
}

func (l *Ledger) closeLocked(e *Entry) {
	if e.closed {
		return
	}
	l.moveLocked(e, -e.bytes)
	e.closed = true
	l.open--
	l.leaveLocked(e)
}

// joinLocked makes an entry one of a source, and leaveLocked undoes that.
func (l *Ledger) joinLocked(e *Entry, source Source) {
	b := l.sources[source]
	if b == nil {
		b = &balance{source: source, entries: make(map[*Entry]struct{})}
		l.sources[source] = b
	}
	b.entries[e] = struct{}{}
	e.of = b
}

func (l *Ledger) leaveLocked(e *Entry) {
	delete(e.of.entries, e)
	if len(e.of.entries) == 0 {
		delete(l.sources, e.of.source)
	}
}

// Relieve cuts the source that holds most of some kinds, if that is at least so many bytes. It cuts
// these kinds only, and returns the bytes; 0 if nothing was cut.
func (l *Ledger) Relieve(least int64, some ...Kind) int64 {
	l.mu.Lock()
	b := l.largestLocked(false, some)
	if b == nil || b.freed(some) < max(1, least) {
		l.mu.Unlock()
		return 0
	}
	cuts, done := l.cutLocked(b, some, true)
	l.mu.Unlock()
	l.call(cuts, done)
	return done.Bytes
}

// Holder is what one source holds, in bytes by Kind.
type Holder struct {
	Source Source
	Held   [kinds]int64
	Things int // that it holds
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
	all := make([]Holder, 0, l.holding)
	for _, b := range l.sources {
		if b.things > 0 {
			all = append(all, Holder{b.source, b.held, b.things})
		}
	}
	l.mu.Unlock()
	slices.SortFunc(all, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(b.Total(), a.Total()), cmp.Compare(a.Source.Name, b.Source.Name))
	})
	return all[:min(n, len(all))]
}

// Totals is a summary of a ledger. Arrays are by Kind.
type Totals struct {
	Open      int          // entries
	Sources   int          // that hold something
	Strangers int64        // bytes that strangers hold, of the bounded kinds, without what has been cut
	Held      [kinds]int64 // bytes
	Cut       [kinds]int64 // bytes, since New
	Refused   [kinds]int64 // times, since New
}

// Passing returns the bytes that are held of the kinds that pass.
func (l *Ledger) Passing() (bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range Passing() {
		bytes += l.held[k]
	}
	return bytes
}

// Limits returns the limits of New.
func (l *Ledger) Limits() Limits { return l.limits }

// Totals returns the summary.
func (l *Ledger) Totals() Totals {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Totals{l.open, l.holding, l.strangers, l.held, l.cut, l.refused}
}
