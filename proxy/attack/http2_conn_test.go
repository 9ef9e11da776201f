package attack_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2Conn is an attacker's HTTP/2 connection. It sends any frame.
type h2Conn struct {
	*http2.Framer
	attacker *attacker
	token    string
	conn     net.Conn
	out      *bufio.Writer
	encoder  *hpack.Encoder
	block    bytes.Buffer  // what encoder writes
	next     uint32        // stream
	answered chan struct{} // closed when the server has answered anything, or ended the connection
	windows  *windows
}

// windows are what a server takes, of the connection and of each stream.
type windows struct {
	mu      sync.Mutex
	initial int64            // of a stream
	sent    map[uint32]int64 // less what has been given back; 0 is the connection
	changed chan struct{}    // closed and replaced when there is more room
}

const firstWindow = 65_535 // RFC 9113, section 6.9.2

func newWindows() *windows {
	return &windows{initial: firstWindow, sent: make(map[uint32]int64), changed: make(chan struct{})}
}

// note reads what a frame of the server gives back.
func (w *windows) note(f http2.Frame) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if initial, ok := f.Value(http2.SettingInitialWindowSize); ok {
			w.initial = int64(initial)
		}
	case *http2.WindowUpdateFrame:
		w.sent[f.StreamID] -= int64(f.Increment)
	default:
		return
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

// take takes up to n bytes of the windows of a stream and of the connection. If there is no room, it
// returns a channel that is closed when there may be more.
func (w *windows) take(id uint32, n int64) (int64, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n = min(n, w.initial-w.sent[id], firstWindow-w.sent[0])
	if n <= 0 {
		return 0, w.changed
	}
	w.sent[id] += n
	w.sent[0] += n
	return n, nil
}

// errNoHTTP2 means that the server offers HTTP/1.1 alone.
var errNoHTTP2 = errors.New("the server does not offer HTTP/2")

// dialHTTP2 opens a connection with a small receive buffer, and sends the preface and settings.
func (a *attacker) dialHTTP2(ctx context.Context, token string, settings ...http2.Setting) (*h2Conn, error) {
	plain, err := a.dial(ctx, a.Secure, false)
	if err != nil {
		return nil, err
	}
	conn, err := shake(ctx, plain, "h2")
	if err != nil {
		return nil, err
	}
	if conn.ConnectionState().NegotiatedProtocol != "h2" {
		conn.Close()
		return nil, errNoHTTP2
	}
	c := &h2Conn{attacker: a, token: token, conn: conn, out: bufio.NewWriterSize(conn, 64<<10), next: 1,
		answered: make(chan struct{}), windows: newWindows()}
	c.Framer = http2.NewFramer(c.out, bufio.NewReader(conn))
	c.AllowIllegalWrites = true
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.encoder = hpack.NewEncoder(&c.block)
	_, err = c.out.WriteString(http2.ClientPreface)
	if err = errors.Join(err, c.WriteSettings(settings...), c.flush()); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// onHTTP2 opens a connection and lets f attack. Meanwhile it reads what the server sends, unless
// deaf, and notes how it answers and how the connection ends.
func (a *attacker) onHTTP2(ctx context.Context, token string, deaf bool, settings []http2.Setting,
	f func(c *h2Conn) error) {
	c, err := a.dialHTTP2(ctx, token, settings...)
	if err != nil {
		if !errors.Is(err, errNoHTTP2) { // then there is no attack
			a.note(ending(err))
		}
		return
	}
	var reading sync.WaitGroup
	defer reading.Wait()
	defer c.conn.Close()
	stop := context.AfterFunc(ctx, func() { c.conn.Close() })
	defer stop()
	if !deaf {
		reading.Go(c.read)
	}
	if err = errors.Join(f(c), c.flush()); err != nil && ctx.Err() == nil {
		a.note(ending(err))
		return
	}
	a.note("sent")
	if deaf {
		return
	}
	select {
	case <-c.answered:
	case <-ctx.Done():
	case <-time.After(5 * time.Second):
	}
}

// flush sends what has been written. A server that does not read for five seconds is an error.
func (c *h2Conn) flush() error {
	_ = c.conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
	return c.out.Flush()
}

// read notes the server's answers, and looks in them for what the attacker may not see.
func (c *h2Conn) read() {
	answered := sync.OnceFunc(func() { close(c.answered) })
	defer answered()
	kept := make(map[uint32][]byte) // the end of each body so far
	for {
		f, err := c.ReadFrame()
		if err != nil {
			return
		}
		c.windows.note(f)
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			answered()
			c.attacker.note(f.PseudoValue("status"))
		case *http2.RSTStreamFrame:
			answered()
			c.attacker.note("reset " + f.ErrCode.String())
			delete(kept, f.StreamID)
		case *http2.GoAwayFrame:
			answered()
			c.attacker.note("GOAWAY " + f.ErrCode.String())
		case *http2.DataFrame:
			all := append(kept[f.StreamID], f.Data()...)
			if leak := c.attacker.leak(c.token, all); leak != "" {
				c.attacker.breach("stream %d shows an object of %s", f.StreamID, leak)
			}
			kept[f.StreamID] = slices.Clone(all[max(0, len(all)-40):]) // a mark may begin here
		}
	}
}

// encode returns the block of a request's fields: the usual ones, and more name-value pairs behind
// them.
func (c *h2Conn) encode(method, uri string, more ...string) []byte {
	fields := append([]string{":method", method, ":scheme", "https", ":authority", "localhost", ":path", uri,
		"authorization", "Bearer " + c.token}, more...)
	return c.encodeAll(fields...)
}

func (c *h2Conn) encodeAll(fields ...string) []byte {
	c.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		// The block is in memory.
		_ = c.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return c.block.Bytes()
}

// head sends HEADERS. ended means that no body follows, whole that no CONTINUATION does.
func (c *h2Conn) head(id uint32, block []byte, ended, whole bool) error {
	return c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndStream: ended, EndHeaders: whole})
}

// body sends n bytes of a stream's body, as far as the server's windows allow it within a time.
func (c *h2Conn) body(ctx context.Context, id uint32, n int64, most time.Duration) error {
	late := time.NewTimer(most)
	defer late.Stop()
	for n > 0 {
		some, more := c.windows.take(id, min(n, 16<<10))
		if some > 0 {
			n -= some
			if err := c.WriteData(id, false, bytes.Repeat([]byte(" "), int(some))); err != nil {
				return err
			}
			continue
		}
		if err := c.flush(); err != nil {
			return err
		}
		select {
		case <-more:
		case <-late.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// ask opens a stream with a request, and returns the stream. ended means that it has no body.
func (c *h2Conn) ask(method, uri string, ended bool) (uint32, error) {
	id := c.next
	c.next += 2
	return id, c.head(id, c.encode(method, uri), ended, true)
}
