package cached

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/gate/fairness"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// compressedLists keeps the compressed items of recent lists. A list of the same state gets the
// same bytes, even if the resourceVersion has advanced. Its methods may be called from any
// goroutine.
type compressedLists struct {
	ledger *account.Ledger // immutable

	mu    sync.Mutex
	lists map[listKey]*compressedList
}

const (
	// maxCompressed bounds the size of all kept lists, in bytes, and maxCompressedOfOne of those that
	// were made for one source. compressedFor is how long an unused list is kept. It is checked when
	// another list is added.
	maxCompressed      = 64 << 20
	maxCompressedOfOne = maxCompressed / 2
	compressedFor      = time.Minute
)

// listKey identifies the items of a lane that a list holds.
type listKey struct {
	lane   lane.Key
	trim   *framing.Trim // what its objects lack
	filter string
	after  string
	limit  int64
	counts bool // it says how many items remain behind its limit
}

type compressedList struct {
	by     account.Source // it was made for
	state  fanout.Identity
	extent extent
	donec  chan struct{} // closed when the rest is set; never sent on
	items  framing.Deflated
	held   *account.Shared // items, while answers hold them
	failed bool

	// Guarded by compressedLists.mu.
	size int // 0 until compressed
	used time.Time
}

// get returns a list if it is of this state; nil for none. It gives up s before it waits for the
// read that compresses the list.
func (c *compressedLists) get(s *fairness.Seat, key listKey, state fanout.Identity) *compressedList {
	c.mu.Lock()
	l := c.lists[key]
	c.mu.Unlock()
	if l == nil || l.state != state || !c.await(l, s) {
		return nil
	}
	return l
}

// await waits until a list that is used is compressed. It reports false if the compression failed.
func (c *compressedLists) await(l *compressedList, s *fairness.Seat) bool {
	c.mu.Lock()
	l.used = time.Now()
	c.mu.Unlock()
	select {
	case <-l.donec:
	default:
		s.Give()
		<-l.donec
	}
	return !l.failed
}

// add compresses the items of a list for a source, in seat s. If another read compresses the same
// state, add waits for its result. It returns nil if the source holds too much for that.
func (c *compressedLists) add(
	by account.Source, s *fairness.Seat, key listKey, state fanout.Identity, x extent, items exchange.BodySlices,
) *compressedList {
	c.mu.Lock()
	if l := c.lists[key]; l != nil && l.state == state {
		c.mu.Unlock()
		if c.await(l, s) {
			return l
		}
		return compressed(c.ledger, by, s, x, items)
	}
	now := time.Now()
	c.sweepLocked(now.Add(-compressedFor))
	if c.lists == nil {
		c.lists = make(map[listKey]*compressedList)
	}
	l := &compressedList{by: by, state: state, extent: x, donec: make(chan struct{}), used: now}
	c.lists[key] = l
	c.mu.Unlock()

	l.failed = true // in case of a panic: the other reads then compress for themselves
	defer c.keep(key, l)
	if made := compressed(c.ledger, by, s, x, items); made != nil {
		l.items, l.held, l.failed = made.items, made.held, false
		return l
	}
	return nil
}

// heldByDeflate is what a compression keeps, in the middle of which others may have their turns.
const heldByDeflate = 1400 << 10

// compressed compresses the items of a list for a source. It returns nil if the source holds too much
// for that.
func compressed(ledger *account.Ledger, by account.Source, s *fairness.Seat, x extent, items exchange.BodySlices) *compressedList {
	entry := ledger.Open(by, account.Answers, nil)
	defer entry.Close()
	if !entry.Set(heldByDeflate) {
		return nil
	}
	l := &compressedList{extent: x, items: framing.Deflate(gzipLevel, s.Pieces(slices.Values(items)))}
	l.held = ledger.Share(account.Answers, int64(l.items.Len()))
	return l
}

// keep ends the wait of other reads for l. If l has failed, keep forgets it.
func (c *compressedLists) keep(key listKey, l *compressedList) {
	close(l.donec)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.lists[key] != l:
	case l.failed:
		delete(c.lists, key)
	default:
		l.size = l.items.Len()
		c.shrinkLocked(l.by)
	}
}

// shrinkLocked forgets the least recently used lists until the others fit: those of a source that has
// made most of them, when it has made another.
func (c *compressedLists) shrinkLocked(by account.Source) {
	for all, own := c.bytesLocked(by); all > maxCompressed; all, own = c.bytesLocked(by) {
		var oldest listKey
		var used time.Time
		for key, l := range c.lists {
			if l.size > 0 && (own <= maxCompressedOfOne || l.by == by) && (used.IsZero() || l.used.Before(used)) {
				oldest, used = key, l.used
			}
		}
		delete(c.lists, oldest)
	}
}

// bytesLocked returns the size of all lists, and of those that were made for one source.
func (c *compressedLists) bytesLocked(by account.Source) (all, own int) {
	for _, l := range c.lists {
		all += l.size
		if l.by == by {
			own += l.size
		}
	}
	return all, own
}

// sweepLocked forgets the lists that were last used before since.
func (c *compressedLists) sweepLocked(since time.Time) {
	maps.DeleteFunc(c.lists, func(_ listKey, l *compressedList) bool { return l.used.Before(since) })
}

// forget forgets all lists.
func (c *compressedLists) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.lists)
}
