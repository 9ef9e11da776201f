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
	ctx.Response.SetBodyStream(&bodyStream{conn: ctx.Conn(), slices: b, log: r.lane.log}, size)
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
	log    *slog.Logger
	slices bodySlices
}

func (s *bodyStream) SupportsBodyWriteTo() bool { return true }

func (s *bodyStream) WriteTo(w io.Writer) (n int64, err error) {
	defer caught(s.log, "response body", func() { err = errPanicked }) // fasthttp closes the connection
	if b, ok := w.(*bufio.Writer); ok {
		if err := b.Flush(); err != nil {
			return 0, err
		}
		w = s.conn
	}
	if _, ok := w.(*tls.Conn); ok {
		return writeJoined(w, s.slices)
	}
	vector := net.Buffers(s.slices) // which is ours, and used up
	return vector.WriteTo(w)
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

var bodyBuffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 256<<10) }}

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
	donec  chan struct{} // closed when items is set; never sent on
	items  framing.Deflated

	// Guarded by compressedLists.mu.
	size int // 0 until compressed
	used time.Time
}

// get returns the compressed items of a list, waiting for who compresses them, if they are of this state.
func (c *compressedLists) get(key listKey, state fanout.Identity) (extent, framing.Deflated, bool) {
	c.mu.Lock()
	l := c.lists[key]
	if l == nil || l.state != state {
		c.mu.Unlock()
		return extent{}, framing.Deflated{}, false
	}
	l.used = time.Now()
	c.mu.Unlock()
	<-l.donec
	return l.extent, l.items, true
}

// add compresses the items of a list, unless somebody else just has.
func (c *compressedLists) add(key listKey, state fanout.Identity, x extent, items bodySlices) framing.Deflated {
	c.mu.Lock()
	if l := c.lists[key]; l != nil && l.state == state {
		c.mu.Unlock()
		<-l.donec
		return l.items
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

	l.items = framing.Deflate(gzipLevel, slices.Values(items))
	close(l.donec)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lists[key] == l {
		l.size = l.items.Len()
		c.bytes += l.size
		c.shrinkLocked()
	}
	return l.items
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
