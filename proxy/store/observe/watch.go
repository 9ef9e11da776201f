package observe

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"slices"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

const (
	// againAfter is how long after the end of one comparison the next of the same watch begins.
	againAfter = time.Second
	// tickEvery is the time between two ticks, by which waits are counted: while the process stands still the
	// cache can't send anything either, and the halt counts as one tick.
	tickEvery = time.Second
	// lastWait is for how many ticks the cache's last events may come after the end of the client's watch.
	lastWait = 5
	// lateAfter is how many ticks after an event that the cache has passed over the event counts as lost.
	lateAfter = 10
	// mostMissing bounds the events that may still come.
	mostMissing = 256
	// heldByWatch is what an observed watch takes beside its events.
	heldByWatch = 16 << 10
	// mostAhead and mostAheadBytes bound the events of either side that wait for the other's.
	mostAhead      = 4096
	mostAheadBytes = 4 << 20
)

// watching compares one watch. Events of both streams come in the order of their resourceVersions.
// Equal heads of the two queues match; others are read, and say what is wrong.
type watching struct {
	*following
	ctx     context.Context
	scanner framing.Scanner
	side    Side
	rest    []byte // the beginning of an event of kube-apiserver's stream

	initial bool // the watch has not sent all of its initial events
	state   map[string]item
	held    int // bytes of state

	position uint64 // resourceVersion that kube-apiserver's stream has reached, as far as it is known
	from     uint64 // events of kube-apiserver's up to it are not compared
	epoch    uint64 // of the cache when the subscription began
	sub      *fanout.Subscription
	queue    *fanout.Queue // what the cache sends
	again    time.Time     // when the next subscription may begin

	theirs, ours []fanout.Queued // not matched yet, of theirs without bookmarks
	bytes        int             // of theirs
	last         fanout.Queued   // matched last; the cache's
	missing      []missing

	ticks         int           // in all
	matched       int           // since count
	later         time.Duration // sum for those
	over, refused bool          // kube-apiserver's stream has ended; the cache can't be followed
}

// missing is an event that kube-apiserver has sent and the cache has passed over.
type missing struct {
	version
	ticks    int  // before
	promised bool // the cache has sent a bookmark that says that it came before
}

// version is what tells events apart.
type version struct {
	typ framing.EventType
	key string
	rv  uint64
}

// watch compares a watch until it ends.
func (f *following) watch() {
	o := f.observer
	ctx, cancel := context.WithCancel(o.ctx)
	defer cancel()
	defer f.drop()
	if !o.held.take(heldByWatch) {
		f.skip(memory, 1)
		return
	}
	defer o.held.give(heldByWatch)
	wait, stop := context.WithTimeout(ctx, openWait)
	side, why := f.read.Open(wait, f.header.Get("Content-Type")) // what comes meanwhile waits in the tee
	stop()
	if why != "" {
		f.skip(why, 1)
		return
	}
	w := &watching{following: f, ctx: ctx, side: side, initial: f.read.Initial, position: f.read.ResourceVersion}
	defer w.close()
	if w.side.Encoding() == framing.CBOR {
		f.skip(Form, 1)
		return
	}
	w.scanner = framing.NewScanner(w.side.Encoding(), nil)
	defer o.results.watch(w.side.Cache())()
	if err := w.run(); err != nil {
		f.skip(whyNot(err), 1)
	}
}

func (w *watching) close() {
	w.unsubscribe()
	w.side.Close()
	w.observer.held.give(w.held + w.bytes + len(w.rest))
	w.count()
}

// run takes from both streams until kube-apiserver's has ended.
func (w *watching) run() error {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	ended := 0 // ticks before the end
	for {
		w.subscribe()
		next, marks, over, err := w.tee.take()
		if err == nil && next != nil {
			err = w.split(next, marks)
		}
		if err != nil {
			return err
		}
		if next == nil && over && !w.over {
			w.over, ended = true, w.ticks
		}
		w.takeOurs()
		w.flush(false)
		w.count()
		if w.over && (w.sub == nil || len(w.theirs) == 0 || w.ticks-ended > lastWait) {
			w.flush(true)
			w.skip(behind, len(w.theirs))
			return nil
		}
		if over && !w.over {
			continue
		}
		select {
		case <-w.tee.arrived:
		case <-tick.C:
			w.ticks++
		case <-w.ctx.Done():
			return nil
		}
	}
}

// split takes the events out of the next bytes of kube-apiserver's stream.
func (w *watching) split(data []byte, marks []mark) error {
	before, at := len(w.rest), 0
	if before > 0 {
		w.observer.held.give(before)
		data = append(w.rest, data...)
		w.rest = nil
	}
	for {
		n := length(w.side.Encoding(), data)
		if n > framing.MaxEvent {
			return errBroken
		}
		if n == 0 || n > len(data) {
			break
		}
		at += n
		for marks[0].end+before < at { // an event has come with its last byte
			marks = marks[1:]
		}
		if err := w.their(data[:n], marks[0].at); err != nil {
			return err
		}
		data = data[n:]
	}
	switch {
	case len(data) > framing.MaxEvent:
		return errBroken
	case !w.observer.held.take(len(data)):
		return errMemory
	}
	w.rest = bytes.Clone(data)
	return nil
}

// length returns the length of the event that data begins with; 0 if it is not known yet.
func length(e framing.Encoding, data []byte) int {
	if prefix := e.LengthPrefix(); prefix > 0 {
		if len(data) < prefix {
			return 0
		}
		return prefix + int(min(binary.BigEndian.Uint32(data), framing.MaxEvent))
	}
	return bytes.IndexByte(data, '\n') + 1
}

// their takes an event of kube-apiserver's, which is valid until their returns.
func (w *watching) their(whole []byte, now time.Time) error {
	switch {
	case w.initial:
		return w.fold(whole)
	case w.sub == nil || w.position < w.from:
		v, err := w.parse(fanout.Queued{First: whole})
		if err != nil {
			return err
		}
		w.position = max(w.position, v.rv)
		switch {
		case v.typ == framing.Bookmark:
			return nil
		case w.sub != nil && v.rv > w.from:
			return w.keep(whole, now)
		}
		w.skip(before, 1)
		return nil
	case framing.IsBookmark(w.side.Encoding(), whole):
		return nil
	}
	if len(w.theirs) == 0 {
		w.takeOurs()
		if w.match(whole, now) {
			return nil
		}
	}
	return w.keep(whole, now)
}

// match reports whether the cache's next event is the same.
func (w *watching) match(whole []byte, now time.Time) bool {
	if len(w.ours) == 0 || !equal(w.ours[0], whole) {
		return false
	}
	w.last = w.ours[0]
	w.later += w.last.At.Sub(now)
	w.ours = w.ours[1:]
	w.matched++
	return true
}

// equal reports whether an event of the cache is the same bytes.
func equal(ours fanout.Queued, whole []byte) bool {
	n := len(ours.First)
	return ours.Len() == len(whole) && string(ours.First) == string(whole[:n]) && string(ours.Second) == string(whole[n:])
}

// keep queues an event of kube-apiserver's until the cache's comes.
func (w *watching) keep(whole []byte, now time.Time) error {
	if !w.observer.held.take(len(whole)) {
		return errMemory
	}
	w.theirs = append(w.theirs, fanout.Queued{First: bytes.Clone(whole), At: now})
	if w.bytes += len(whole); len(w.theirs) > mostAhead || w.bytes > mostAheadBytes {
		w.restart(behind)
	}
	return nil
}

func (w *watching) dropTheir() {
	n := w.theirs[0].Len()
	w.theirs, w.bytes = w.theirs[1:], w.bytes-n
	w.observer.held.give(n)
}

// parse reads what tells an event apart.
func (w *watching) parse(e fanout.Queued) (v version, err error) {
	whole := append(bytes.Clone(e.First), e.Second...)
	ev, err := w.scanner.Event(whole[w.side.Encoding().LengthPrefix():])
	if err != nil {
		return v, err
	}
	v = version{typ: ev.Type, rv: ev.ResourceVersion}
	if ev.Object != nil {
		v.key = ev.Object.Key
	}
	return v, nil
}

// fold takes an event before the bookmark that ends the initial events.
func (w *watching) fold(whole []byte) error {
	v, err := w.parse(fanout.Queued{First: whole})
	if err != nil {
		return err
	}
	switch {
	case v.typ == framing.Error:
		return errBroken
	case v.typ == framing.Deleted:
		delete(w.state, v.key)
	case v.typ == framing.Bookmark: // none comes among the initial events
		w.initial, w.position = false, v.rv
		w.compareState()
		w.subscribe()
	default:
		if w.state == nil {
			w.state = make(map[string]item)
		}
		if w.held += itemBytes + len(v.key); !w.observer.held.take(itemBytes + len(v.key)) {
			w.held -= itemBytes + len(v.key)
			return errMemory
		}
		w.state[v.key] = item{v.key, v.rv, maphash.Bytes(w.observer.seed, whole), v.typ}
	}
	return nil
}

// compareState compares what the initial events have shown with the cache.
func (w *watching) compareState() {
	var theirs, ours []item
	for _, i := range w.state {
		theirs = append(theirs, i)
	}
	server, began := time.Since(w.arrived), time.Now()
	why := w.side.State(w.position, func(o *framing.Object) {
		typ := framing.Added
		if i, ok := w.state[o.Key]; ok {
			typ = i.event
		}
		sum := maphash.Bytes(w.observer.seed, o.As(typ).Frame(typ).Payload(nil))
		ours = append(ours, item{o.Key, o.ResourceVersion, sum, typ})
	})
	w.state = nil
	w.observer.held.give(w.held)
	w.held = 0
	if why != "" {
		w.skip(why, 1)
		return
	}
	w.observer.results.list(w.read.Resource, server, time.Since(began))
	w.compareItems(theirs, ours)
}

// subscribe follows the cache from the position on, unless it may not yet, or can't.
func (w *watching) subscribe() {
	if w.sub != nil || w.initial || w.over || w.refused || time.Now().Before(w.again) {
		return
	}
	w.again = time.Now().Add(againAfter)
	cache, want := w.side.Cache(), w.side.Wanted()
	w.epoch = cache.Epoch()
	want.Start, want.ResourceVersion, want.Bookmarks, want.Timeout = fanout.FromVersion, w.position, true, forever
	if w.epoch > 1 { // the history before its last list is not all that kube-apiserver has sent
		want.ResourceVersion = max(w.position, cache.Progress())
	}
	sub, err := cache.Subscribe(want)
	if errors.Is(err, fanout.ErrExpired) || errors.Is(err, fanout.ErrPreviousUnknown) { // also in a relist gap
		want.ResourceVersion = cache.Progress()
		sub, err = cache.Subscribe(want)
	}
	if err != nil {
		w.refused = !errors.Is(err, fanout.ErrNotFresh) // it costs too much, or the cache is closed
		w.skip(unserved, 1)
		return
	}
	w.from, w.sub, w.queue = want.ResourceVersion, sub, &fanout.Queue{Wake: w.tee.wake, Most: mostAheadBytes}
	w.side.Start(sub, w.queue)
}

// forever is the timeout of a subscription that is ended by its observer.
const forever = 365 * 24 * time.Hour

func (w *watching) unsubscribe() {
	if w.sub != nil {
		w.sub.End(fanout.Ending{Reason: fanout.Gone})
		w.sub, w.queue = nil, nil
	}
}

// restart gives up the comparison for a reason. A new one begins with kube-apiserver's next events.
func (w *watching) restart(why string) {
	w.skip(why, len(w.theirs)+len(w.missing))
	for _, e := range append(w.theirs, w.last) {
		if e.Len() == 0 { // nothing has matched yet
			continue
		}
		if v, err := w.parse(e); err == nil {
			w.position = max(w.position, v.rv)
		}
	}
	for len(w.theirs) > 0 {
		w.dropTheir()
	}
	w.unsubscribe()
	w.ours, w.missing, w.last = nil, nil, fanout.Queued{}
	w.again = time.Now().Add(againAfter)
}

// takeOurs takes what the cache has sent, and compares it.
func (w *watching) takeOurs() {
	if w.queue == nil {
		return
	}
	var ended fanout.Reason
	w.ours, ended = w.queue.Take(w.ours)
	w.settle()
	switch {
	case w.queue == nil: // given up
	case ended != "":
		w.restart(string(ended))
	case len(w.ours) > mostAhead:
		w.restart(behind)
	}
}

// settle compares the heads of both queues as long as both have one.
func (w *watching) settle() {
	for len(w.theirs) > 0 && len(w.ours) > 0 {
		if w.match(w.theirs[0].First, w.theirs[0].At) {
			w.dropTheir()
			continue
		}
		theirs, err := w.parse(w.theirs[0])
		w.position = max(w.position, theirs.rv) // also if it is dropped below
		ours, wrong := w.parse(w.ours[0])
		switch {
		case err != nil || wrong != nil, ours.typ == framing.Error:
			w.restart(broken)
		case theirs.typ == framing.Error:
			w.dropTheir()
		case theirs.rv <= w.from: // it shares its resourceVersion with one from before
			w.dropTheir()
			w.skip(before, 1)
		case theirs.rv <= ours.rv && (theirs.rv < ours.rv || theirs.key != ours.key):
			w.dropTheir()
			w.passOver(theirs, ours.typ == framing.Bookmark)
		case ours.typ == framing.Bookmark:
			w.ours = w.ours[1:]
			w.promise(ours.rv)
		case theirs.rv == ours.rv:
			w.ours = w.ours[1:]
			w.dropTheir()
			w.verdict(Bytes, ours.key, theirs.rv, ours.rv)
		default:
			w.ours = w.ours[1:]
			w.extra(ours)
		}
	}
}

// passOver notes an event that the cache has passed over, perhaps for a bookmark. Like each verdict, it may give
// up the comparison and drop both queues.
func (w *watching) passOver(v version, promised bool) {
	w.missing = append(w.missing, missing{v, w.ticks, promised})
	if len(w.missing) > mostMissing {
		first := w.missing[0]
		w.missing = w.missing[1:]
		w.lost(first)
	}
}

// promise notes a bookmark of the cache.
func (w *watching) promise(rv uint64) {
	for i := range w.missing {
		w.missing[i].promised = w.missing[i].promised || w.missing[i].rv <= rv
	}
}

// extra notes an event of the cache that kube-apiserver does not send there.
func (w *watching) extra(v version) {
	for i, m := range w.missing {
		if m.version != v {
			continue
		}
		w.missing = slices.Delete(w.missing, i, i+1)
		kind := Reordered
		if m.promised {
			kind = Early
		}
		w.verdict(kind, v.key, m.rv, v.rv)
		return
	}
	w.verdict(Extra, v.key, 0, v.rv)
}

func (w *watching) lost(m missing) { w.verdict(Lost, m.key, m.rv, 0) }

// flush notes the events that are lost: those that have not come for long or, at the end, all.
func (w *watching) flush(all bool) {
	for len(w.missing) > 0 {
		m := w.missing[0]
		if !all && w.ticks-m.ticks <= lateAfter {
			return
		}
		w.missing = w.missing[1:]
		w.lost(m)
	}
}

// verdict notes a difference, unless the cache has been listed again. Then it may lack history, and
// shows what is gone in its own way; package fanout documents how.
func (w *watching) verdict(k Kind, key string, server, cache uint64) {
	if w.side.Cache().Epoch() != w.epoch {
		w.skip(relisted, 1)
		w.restart(relisted)
		return
	}
	w.differ(k, key, server, cache)
}

// count adds what was compared to the results.
func (w *watching) count() {
	w.observer.results.event(w.read.Resource, w.matched, w.later)
	w.matched, w.later = 0, 0
}
