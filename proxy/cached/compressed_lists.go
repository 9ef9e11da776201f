package cached

import (
	"slices"
	"sync"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/exchange"
	"github.com/watchfan/watchfan/proxy/fairness"
	"github.com/watchfan/watchfan/proxy/lane"
)

// compressedLists keeps the compressed items of recent lists. A list of the same state gets the
// same bytes, even if the resourceVersion has advanced. Its methods may be called from any
// goroutine.
type compressedLists struct {
	mu    sync.Mutex
	lists map[listKey]*compressedList
	bytes int
}

const (
	// maxCompressed bounds the size of all kept lists, in bytes. compressedFor is how long an unused
	// list is kept. It is checked when another list is added.
	maxCompressed = 64 << 20
	compressedFor = time.Minute
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
	state  fanout.Identity
	extent extent
	donec  chan struct{} // closed when the rest is set; never sent on
	items  framing.Deflated
	failed bool

	// Guarded by compressedLists.mu.
	size int // 0 until compressed
	used time.Time
}

// get returns the compressed items of a list if they are of this state. It gives up s before it
// waits for the read that compresses them.
func (c *compressedLists) get(s *fairness.Seat, key listKey, state fanout.Identity) (extent, framing.Deflated, bool) {
	c.mu.Lock()
	l := c.lists[key]
	if l == nil || l.state != state {
		c.mu.Unlock()
		return extent{}, framing.Deflated{}, false
	}
	l.used = time.Now()
	c.mu.Unlock()
	if !l.await(s) {
		return extent{}, framing.Deflated{}, false
	}
	return l.extent, l.items, true
}

// await waits until the list is compressed. It reports false if the compression failed.
func (l *compressedList) await(s *fairness.Seat) bool {
	select {
	case <-l.donec:
	default:
		s.Give()
		<-l.donec
	}
	return !l.failed
}

// add compresses the items of a list in seat s. If another read compresses the same state, add
// waits for its result.
func (c *compressedLists) add(s *fairness.Seat, key listKey, state fanout.Identity, x extent, items exchange.BodySlices) framing.Deflated {
	c.mu.Lock()
	if l := c.lists[key]; l != nil && l.state == state {
		c.mu.Unlock()
		if l.await(s) {
			return l.items
		}
		return framing.Deflate(gzipLevel, s.Pieces(slices.Values(items)))
	}
	now := time.Now()
	c.removeLocked(key)
	c.sweepLocked(now.Add(-compressedFor))
	if c.lists == nil {
		c.lists = make(map[listKey]*compressedList)
	}
	l := &compressedList{state: state, extent: x, donec: make(chan struct{}), used: now}
	c.lists[key] = l
	c.mu.Unlock()

	l.failed = true // in case of a panic: the other reads then compress for themselves
	defer c.keep(key, l)
	l.items = framing.Deflate(gzipLevel, s.Pieces(slices.Values(items)))
	l.failed = false
	return l.items
}

// keep ends the wait of other reads for l. If l has failed, keep forgets it.
func (c *compressedLists) keep(key listKey, l *compressedList) {
	close(l.donec)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.lists[key] != l:
	case l.failed:
		c.removeLocked(key)
	default:
		l.size = l.items.Len()
		c.bytes += l.size
		c.shrinkLocked()
	}
}

// shrinkLocked forgets the least recently used lists until the others fit.
func (c *compressedLists) shrinkLocked() {
	for c.bytes > maxCompressed {
		var oldest listKey
		var used time.Time
		for key, l := range c.lists {
			if l.size > 0 && (used.IsZero() || l.used.Before(used)) {
				oldest, used = key, l.used
			}
		}
		c.removeLocked(oldest)
	}
}

// forget forgets all lists.
func (c *compressedLists) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.lists)
	c.bytes = 0
}

func (c *compressedLists) removeLocked(key listKey) {
	if l := c.lists[key]; l != nil {
		c.bytes -= l.size
		delete(c.lists, key)
	}
}

// sweepLocked forgets the lists that were last used before since.
func (c *compressedLists) sweepLocked(since time.Time) {
	for key, l := range c.lists {
		if l.used.Before(since) {
			c.removeLocked(key)
		}
	}
}
