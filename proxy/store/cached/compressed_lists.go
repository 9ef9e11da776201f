package cached

import (
	"slices"
	"sync"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/gate/fairness"
	"github.com/watchfan/watchfan/proxy/gate/remember"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// compressedLists keeps the compressed items of recent lists. A list of the same state gets the
// same bytes, even if the resourceVersion has advanced. Its methods may be called from any
// goroutine.
type compressedLists struct {
	ledger *account.Ledger // immutable

	mu    sync.Mutex                                  // held while a list is looked for and then put
	known remember.TTLCache[listKey, *compressedList] // the latest of each key
}

const (
	// maxCompressed bounds the size of all kept lists, in bytes. If they are as many, those that were made for
	// one source have an eighth of it at most.
	maxCompressed = 64 << 20
	// compressedFor is how long a list is kept.
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
	began  time.Time
	state  fanout.Identity
	extent extent
	donec  chan struct{} // closed when the rest is set; never sent on
	items  framing.Deflated
	held   *account.Shared // items, while answers hold them
	failed bool
}

func newCompressedLists(ledger *account.Ledger) *compressedLists {
	c := &compressedLists{ledger: ledger}
	c.known.MostBytes, c.known.Size = maxCompressed, func(l *compressedList) int { return l.items.Len() }
	return c
}

// forget forgets all lists.
func (c *compressedLists) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known.Clear()
}

// get returns a list if it is of this state; nil for none. It gives up s before it waits for the
// read that compresses the list.
func (c *compressedLists) get(s *fairness.Seat, key listKey, state fanout.Identity) *compressedList {
	l := c.latest(key, state)
	if l == nil || !l.await(s) {
		return nil
	}
	return l
}

// latest returns the list of a key if it is of this state, compressed or not; nil for none.
func (c *compressedLists) latest(key listKey, state fanout.Identity) *compressedList {
	if l, ok := c.known.Get(key); ok && l.state == state {
		return l
	}
	return nil
}

// await waits until a list is compressed. It reports false if the compression failed.
func (l *compressedList) await(s *fairness.Seat) bool {
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
	if l := c.latest(key, state); l != nil {
		c.mu.Unlock()
		if l.await(s) {
			return l
		}
		return compressed(c.ledger, by, s, x, items)
	}
	l := &compressedList{began: time.Now(), state: state, extent: x, donec: make(chan struct{})}
	c.known.PutFor(by, key, l, l.began, compressedFor)
	c.mu.Unlock()

	l.failed = true // in case of a panic: the other reads then compress for themselves
	defer c.keep(by, key, l)
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

// keep ends the wait of other reads for l, and keeps it for a while, unless it has failed, is too long, or was
// forgotten or replaced meanwhile.
func (c *compressedLists) keep(by account.Source, key listKey, l *compressedList) {
	close(l.donec)
	c.mu.Lock()
	defer c.mu.Unlock()
	if latest, ok := c.known.Peek(key); !ok || latest != l {
		return
	}
	if l.failed || l.items.Len() > maxCompressed {
		c.known.Put(key, nil, l.began, 0)
		return
	}
	c.known.PutFor(by, key, l, l.began, compressedFor)
	c.known.CallAt(key, l.began.Add(compressedFor), func() { c.known.Put(key, nil, time.Now(), 0) })
}
