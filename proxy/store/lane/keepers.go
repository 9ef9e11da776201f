package lane

import (
	"context"
	"time"

	"github.com/watchfan/watchfan/proxy/base/account"
)

// A lane may cost many times what its client may read: a right in one namespace starts a cache of
// all namespaces. So a lane counts for a source (package account) as long as only that source
// keeps it. It is kept by its watches. Without any it is kept by the source of its last watch, or by
// the one that has started it. A lane that the proxy itself uses, or that two sources keep, counts
// for nobody.
//
// A resource's first lane is what the proxy is for. Any other lane of the resource is a copy, and so
// is a lane of Tables, which keeps events only. Copies of one source are bounded in bytes, and are
// given up before other lanes when memory is short.
const (
	// mostForms bounds the lanes of one resource, without those of Tables. mostFormsOfOne bounds those
	// of them that count for one source: JSON and protobuf, of whole objects and of their metadata.
	mostForms      = 8
	mostFormsOfOne = 4
	// countEvery is the time between two counts of what lanes hold. Idle lanes stop as often.
	countEvery = time.Second
)

// By is who a lane is acquired for. nil is the proxy itself.
type By interface{ Source() account.Source }

// Keeper is a source with watches of a lane. Lanes.mu guards it.
type Keeper struct {
	lane    *Lane
	source  account.Source
	watches int
}

// laneUse says who uses a lane, and for whom it counts. Lanes.mu guards it.
type laneUse struct {
	users     int
	idleSince time.Time          // when the last user left
	stop      context.CancelFunc // ends the reflector

	own     bool // the proxy itself uses the lane
	copied  bool // the lane is a copy
	keepers map[account.Source]*Keeper
	last    account.Source // the last to keep the lane alone; the zero Source if there was none
	entry   *account.Entry // nil while the lane counts for nobody
	counts  account.Source // of entry
	kind    account.Kind   // of entry
}

// keptBy is a lane that a source may not start for a while.
type keptBy struct {
	source account.Source
	key    Key
}

// Keep counts a watch of a source on a lane that its caller has acquired. Leave undoes both.
func (ls *Lanes) Keep(l *Lane, source account.Source) *Keeper {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	k := l.keepers[source]
	if k == nil {
		k = &Keeper{lane: l, source: source}
		l.keepers[source] = k
		ls.attributeLocked(l)
	}
	k.watches++
	return k
}

// Leave undoes one Keep, and the Acquire before it.
func (ls *Lanes) Leave(k *Keeper) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := k.lane
	if k.watches--; k.watches == 0 {
		delete(l.keepers, k.source)
		l.last = k.source
		ls.attributeLocked(l)
	}
	ls.releaseLocked(l, l.selects())
}

// keeper returns the source that alone keeps the lane. ok is false if there is none.
func (l *Lane) keeper() (source account.Source, ok bool) {
	switch {
	case l.own || len(l.keepers) > 1:
		return source, false
	case len(l.keepers) == 1:
		for source := range l.keepers {
			return source, true
		}
	}
	return l.last, l.last != account.Source{}
}

// attributeLocked makes a lane count for the source that alone keeps it.
func (ls *Lanes) attributeLocked(l *Lane) {
	if ls.cfg.Memory.Ledger == nil {
		return
	}
	source, ok := l.keeper()
	ok = ok && ls.byKey[l.Key] == l
	kind := account.Lanes
	if l.copied {
		kind = account.Copies
	}
	if l.entry != nil {
		if ok && l.counts == source && l.kind == kind {
			return
		}
		l.entry.Close()
		l.entry = nil
	}
	if ok {
		l.entry, l.counts, l.kind = ls.cfg.Memory.Ledger.Open(source, kind, l.giveUp), source, kind
		l.entry.Set(l.held.Load()) // if that is too much, the next count gives the lane up
	}
}

// copiesLocked determines which lanes of a resource are copies, when one has started or stopped.
func (ls *Lanes) copiesLocked(key Key) {
	first := true
	for _, l := range ls.ofLocked(key.GVR) {
		l.copied = l.Table != "" || !first
		first = first && l.copied
		ls.attributeLocked(l)
	}
}

// mayKeepLocked reports whether a source may start a lane like key. If there are as many such lanes as
// there may be, the source that alone keeps most of them loses its newest, so that nobody takes all.
func (ls *Lanes) mayKeepLocked(key Key, source account.Source) bool {
	if _, gave := ls.givenUp.Get(keptBy{source, key}); gave {
		return false
	}
	within, mostOfAll, mostOfOne := Key.selects, mostSelections, mostSelectionsOfOne
	if !key.selects() {
		if key.Table != "" {
			return true
		}
		within = func(k Key) bool { return k.GVR == key.GVR && k.Table == "" }
		mostOfAll, mostOfOne = mostForms, mostFormsOfOne
	}
	all, kept, newest := 0, make(map[account.Source]int), make(map[account.Source]*Lane)
	for _, l := range ls.allLocked() {
		if !within(l.Key) {
			continue
		}
		all++
		if l.entry != nil {
			kept[l.counts]++
			newest[l.counts] = l
		}
	}
	most := source
	for other, n := range kept {
		if n > kept[most] {
			most = other
		}
	}
	switch {
	case kept[source] >= mostOfOne:
		return false
	case all < mostOfAll:
		return true
	case kept[most] <= kept[source]+1:
		return false
	}
	newest[most].giveUp()
	ls.surrenderLocked(newest[most])
	ls.stopLocked(newest[most])
	return true
}

// giveUp ends the lane. It takes no lock.
func (l *Lane) giveUp() {
	l.surrendered.Store(true)
	l.stop()
}

// count counts what the lanes hold that one source keeps, and gives up copies beyond its bound. It
// holds the lanes' mutex for one lane at a time.
func (ls *Lanes) count() {
	for _, l := range ls.all() {
		bytes := l.Cache.Bytes()
		l.held.Store(bytes)
		ls.mu.Lock()
		if l.entry != nil && !l.entry.Set(bytes) {
			l.giveUp()
		}
		ls.mu.Unlock()
	}
}

// surrenderLocked notes that a lane was given up: the source that kept it may not start it again for a
// while. It returns the source.
func (ls *Lanes) surrenderLocked(l *Lane) account.Source {
	ls.givenUp.Put(keptBy{l.counts, l.Key}, struct{}{}, time.Now(), memoryQuarantine)
	return l.counts
}

// keptAs says as what the lane counts for one source: "lane" or "copy". It is "" if it counts for none.
func (u *laneUse) keptAs() string {
	switch {
	case u.entry == nil:
		return ""
	case u.kind == account.Copies:
		return "copy"
	}
	return "lane"
}
