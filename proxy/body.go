package proxy

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

const (
	// gzipThreshold is the body size above which kube-apiserver compresses for clients that accept it
	// (k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/writers.go).
	gzipThreshold = 128 << 10
	// gzipLevel is not kube-apiserver's, which is 1: for a little more work, done once for many, 2 makes a third less of a list of
	// pods.
	gzipLevel = 2
)

// bodySlices is a response body of shared slices.
type bodySlices [][]byte

func (b bodySlices) size() int {
	n := 0
	for _, s := range b {
		n += len(s)
	}
	return n
}

// writeBody makes b the response.
func writeBody(ctx *fasthttp.RequestCtx, r *cachedRead, b bodySlices) {
	commonHeaders(ctx)
	ctx.Response.Header.SetContentType(r.lane.contentType(false))
	r.lane.writeWarnings(ctx)
	size := b.size()
	if size <= copiedBody {
		ctx.SetBody(slices.Concat(b...))
		return
	}
	ctx.Response.SetBodyStream(&bodyStream{conn: ctx.Conn(), slices: b, seat: r.seat, log: r.lane.log}, size)
}

// writeCompressed makes what parts stand for the response.
func writeCompressed(ctx *fasthttp.RequestCtx, r *cachedRead, parts ...framing.Deflated) {
	ctx.Response.Header.Set("Content-Encoding", "gzip")
	ctx.Response.Header.Set("Vary", "Accept-Encoding")
	writeBody(ctx, r, framing.GzipMember(parts...))
}

// copiedBody is the size up to which a body is copied, to leave in one write with its head.
const copiedBody = 16 << 10

// bodyStream is how fasthttp takes a body of shared slices: it writes itself (fasthttp.BodyWriterTo), past fasthttp's buffer, and is
// never read.
type bodyStream struct {
	conn   net.Conn
	slices bodySlices
	seat   *seat // not held
	log    *slog.Logger
}

func (s *bodyStream) SupportsBodyWriteTo() bool { return true }

func (s *bodyStream) WriteTo(w io.Writer) (n int64, err error) {
	defer caught(s.log, "response body", func() { err = errPanicked }) // fasthttp closes the connection
	if b, ok := w.(*bufio.Writer); ok {
		if err := b.Flush(); err != nil {
			return 0, err
		}
		w = accepted(s.conn)
	}
	t, ok := w.(*tls.Conn)
	if !ok {
		vector := net.Buffers(s.slices) // which is ours, and used up
		return vector.WriteTo(w)
	}
	gather, ok := t.NetConn().(*gatherConn)
	if !ok || s.slices.size() <= sealedAtOnce {
		return writeJoined(t, s.slices)
	}
	return writeJoined(&sealer{t, gather, s.seat}, s.slices)
}

func (s *bodyStream) Read([]byte) (int, error) {
	return 0, errors.New("a body of slices is written, not read")
}

// writeJoined writes slices through a buffer of the size of several TLS records.
func writeJoined(w io.Writer, slices bodySlices) (n int64, err error) {
	buf := bodyBuffers.Get().(*bufio.Writer)
	defer bodyBuffers.Put(buf)
	buf.Reset(w)
	for _, s := range slices {
		m, err := buf.Write(s)
		n += int64(m)
		if err != nil {
			return n, err
		}
	}
	return n, buf.Flush()
}

// sealedAtOnce is how much is sealed at a time, which takes some 0.2 ms. A body that is not longer takes no seat for it.
const sealedAtOnce = 256 << 10

var bodyBuffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, sealedAtOnce) }}

// sealer seals what is written in a seat, and writes that to the client without one, for as long as that takes.
type sealer struct {
	tls    *tls.Conn
	gather *gatherConn
	seat   *seat
}

func (s *sealer) Write(p []byte) (int, error) {
	sealed, err := s.seal(p)
	if err != nil {
		return 0, err
	}
	defer giveBack(sealed)
	if _, err := s.gather.TCPConn.Write(*sealed); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (s *sealer) seal(p []byte) (*[]byte, error) {
	if err := s.seat.resume(); err != nil {
		return nil, err
	}
	defer s.seat.give()
	s.gather.hold()
	_, err := s.tls.Write(p)
	sealed := s.gather.sealedBytes()
	if err == nil && sealed == nil {
		err = errors.New("TLS has sealed nothing")
	}
	return sealed, err
}

// compressedLists are the compressed items of lists that have been asked for lately: who asks for the same state again, whatever
// resourceVersion it has by then, is sent the same bytes. Its methods may be called from any goroutine.
type compressedLists struct {
	mu    sync.Mutex
	lists map[listKey]*compressedList
	bytes int
}

const (
	// maxCompressed bounds what compressedLists keeps, in bytes, and compressedFor how long a list is kept that is not asked for
	// while others are.
	maxCompressed = 64 << 20
	compressedFor = time.Minute
)

// listKey tells which items of a lane a list holds.
type listKey struct {
	lane   laneKey
	filter string
	after  string
	limit  int64
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

// get returns the compressed items of a list if they are of this state. To wait for the read that compresses them, s is given up.
func (c *compressedLists) get(s *seat, key listKey, state fanout.Identity) (extent, framing.Deflated, bool) {
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

// await waits until the list is compressed, and reports false if that came to nothing.
func (l *compressedList) await(s *seat) bool {
	select {
	case <-l.donec:
	default:
		s.give()
		<-l.donec
	}
	return !l.failed
}

// add compresses the items of a list, in seat s, unless somebody else just has.
func (c *compressedLists) add(s *seat, key listKey, state fanout.Identity, x extent, items bodySlices) framing.Deflated {
	c.mu.Lock()
	if l := c.lists[key]; l != nil && l.state == state {
		c.mu.Unlock()
		if l.await(s) {
			return l.items
		}
		return framing.Deflate(gzipLevel, s.pieces(slices.Values(items)))
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

	l.failed = true // should this panic, the others compress for themselves
	defer c.keep(key, l)
	l.items = framing.Deflate(gzipLevel, s.pieces(slices.Values(items)))
	l.failed = false
	return l.items
}

// keep has l be found from now on, unless it has failed, and ends the wait for it.
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

// shrinkLocked forgets the lists that have not been asked for longest until the others fit.
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

// sweepLocked forgets the lists that nobody has asked for since.
func (c *compressedLists) sweepLocked(since time.Time) {
	for key, l := range c.lists {
		if l.used.Before(since) {
			c.removeLocked(key)
		}
	}
}
