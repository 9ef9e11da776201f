package downstream

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// gatherConn is the connection under TLS. While it holds, it gathers the records that TLS seals. A
// sink then writes them without waiting: a client that does not read blocks no other client, and
// the records of one batch leave in one write.
type gatherConn struct {
	arrivingConn
	ready   atomic.Bool // Read reads what is ready, and does not wait
	sealing atomic.Bool // seal runs
	ending  atomic.Bool // the connection is being closed: Write does not wait

	mu      sync.Mutex // TLS answers some of the client's messages from its reading side
	holding bool
	sealed  *[]byte   // records, in one of buffers; nil if all have been written
	written int       // bytes of sealed
	answers int       // bytes of such answers since sealed was nil
	one     [1][]byte // memory for a writev of sealed
}

// maxAnswers is the limit of bytes of TLS's own answers that wait. A client may ask for new keys
// again and again (RFC 8446, section 4.6.3) and read no answer. Each has 27 bytes.
const maxAnswers = 16 << 10

var errAnswers = errors.New("the client does not read answers of TLS")

// Read implements net.Conn for TLS. A read that does not wait fails with an error after which TLS
// can read on.
func (g *gatherConn) Read(p []byte) (int, error) {
	if !g.ready.Load() {
		return g.arrivingConn.Read(p)
	}
	raw, err := g.TCPConn.SyscallConn()
	if err != nil {
		return 0, err
	}
	return readSocket(raw, p, false)
}

// Write implements net.Conn for TLS. After an error, TLS fails all later writes.
func (g *gatherConn) Write(p []byte) (int, error) {
	switch held, err := g.gather(p); {
	case err != nil:
		return 0, err
	case held:
		return len(p), nil
	case g.ending.Load():
		return g.writeReady(p)
	}
	return g.TCPConn.Write(p)
}

// writeReady writes what the socket takes at once. A rest is an error.
func (g *gatherConn) writeReady(p []byte) (n int, err error) {
	raw, err := g.TCPConn.SyscallConn()
	if err != nil {
		return 0, err
	}
	err = control(raw, func(fd uintptr) error {
		rest, err := writev(fd, [][]byte{p})
		n = len(p) - exchange.BodySlices(rest).Size()
		return err
	})
	if err == nil && n < len(p) {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

// secured returns the TLS of a connection as the listener accepted it, and the connection below; nil in
// plaintext.
func secured(c net.Conn) (*tls.Conn, *gatherConn) {
	t, ok := c.(*tls.Conn)
	if !ok {
		return nil, nil
	}
	g, _ := t.NetConn().(*gatherConn)
	return t, g
}

// closeNow closes c and does not wait for the client. TLS tells the client that the connection ends, if
// the socket has room for that. TLS would wait for room, and for a write in progress, such as the
// answer to a client that asks for a new key.
func closeNow(c net.Conn) {
	if _, g := secured(c); g != nil {
		g.ending.Store(true)
		_ = g.TCPConn.SetWriteDeadline(time.Now()) // ends a write in progress
	}
	_ = c.Close()
}

// gather takes p if g holds.
func (g *gatherConn) gather(p []byte) (held bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.holding {
		return false, nil
	}
	if !g.sealing.Load() {
		if g.answers += len(p); g.answers > maxAnswers {
			return true, errAnswers
		}
	}
	if g.sealed == nil {
		g.sealed = buffers.Get().(*[]byte)
	}
	*g.sealed = append(grown(*g.sealed, len(p)), p...)
	return true, nil
}

// grown returns buf with room for n more bytes. It at least doubles a buffer that is too small:
// append adds a quarter to a long one, and would copy a batch several times.
func grown(buf []byte, n int) []byte {
	if n <= cap(buf)-len(buf) {
		return buf
	}
	return slices.Grow(buf, max(n, len(buf)))
}

// seal seals p for t, whose connection g is, while g holds.
func (g *gatherConn) seal(t *tls.Conn, p []byte) error {
	g.sealing.Store(true)
	defer g.sealing.Store(false)
	_, err := t.Write(p)
	return err
}

func (g *gatherConn) hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holding = true
}

// release drops the remaining records. goesOn says whether the connection goes on; otherwise the
// gatherConn keeps holding. TLS writes a close_notify when the connection is closed, and that write
// must not wait for a client that does not read.
func (g *gatherConn) release(goesOn bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holding, g.sealed, g.written, g.answers = !goesOn, nil, 0, 0
}

// sealedBytes ends holding. It returns the records that have been sealed meanwhile, in one of
// buffers; nil for none.
func (g *gatherConn) sealedBytes() *[]byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	sealed := g.sealed
	g.holding, g.sealed, g.answers = false, nil, 0
	return sealed
}

// writeTo writes as much as the socket takes.
func (g *gatherConn) writeTo(fd uintptr) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sealed == nil {
		return nil
	}
	g.one[0] = (*g.sealed)[g.written:]
	rest, err := writev(fd, g.one[:])
	if len(rest) > 0 {
		g.written = len(*g.sealed) - len(rest[0]) // the buffer stays whole, for the next batch
	} else {
		giveBack(g.sealed)
		g.sealed, g.written, g.answers = nil, 0, 0
	}
	g.one[0] = nil // an idle client keeps no buffer
	return err
}

func (g *gatherConn) hasRest() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sealed != nil
}

// buffers holds empty buffers. One buffer may collect a batch before it is sealed. Another holds the
// sealed records until they are written. An idle client has none.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

const maxPooled = 512 << 10

func giveBack(buf *[]byte) {
	if *buf = (*buf)[:0]; cap(*buf) <= maxPooled {
		buffers.Put(buf)
	}
}
