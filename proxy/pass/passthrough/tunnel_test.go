package passthrough_test

import (
	"io"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

const exec = "/api/v1/namespaces/ns/pods/web/exec?command=sh"

// upgrade is an upstream that changes the protocol of each request that asks for it, and then calls do.
func upgrade(t *testing.T, to string, do func(conn io.Writer, rw io.Reader)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != to {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", to)
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		do(conn, rw)
	}
}

// exec, attach, port-forward and WebSocket watches change the protocol and then own the connection. Each
// direction ends for itself.
func TestUpgrade(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.Up.OnClients(upgrade(t, "SPDY/3.1", func(conn io.Writer, rw io.Reader) {
			io.Copy(conn, rw) // until the client's side ends
			io.WriteString(conn, "bye")
		}))
		c := p.Begin(bubble.Request{Method: "POST", Target: exec, Header: []string{"Connection", "Upgrade", "Upgrade", "SPDY/3.1"}})
		io.WriteString(c, "early")
		if resp := c.Response(); resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "SPDY/3.1" || resp.Header.Get("Connection") != "Upgrade" {
			t.Fatalf("got %d %v", resp.StatusCode, resp.Header)
		}
		io.WriteString(c, "late")
		c.CloseWrite()
		if _, got := c.Read(); got != "earlylatebye" {
			t.Errorf("got %q", got)
		}
		resp, got := p.Get("/x", "Connection", "Upgrade", "Upgrade", "refused")
		if resp.StatusCode != http.StatusForbidden || got != "no\n" {
			t.Errorf("refused: got %d %q", resp.StatusCode, got)
		}
	})
}

// When one direction has ended, the other one may go on for half a minute.
func TestHalfClosed(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		var ended time.Duration
		p.Up.OnClients(upgrade(t, "SPDY/3.1", func(conn io.Writer, rw io.Reader) {
			_, _ = io.Copy(io.Discard, rw)
			for began := time.Now(); ; time.Sleep(7 * time.Second) {
				if _, err := io.WriteString(conn, "x"); err != nil {
					ended = time.Since(began)
					return
				}
			}
		}))
		c := p.Begin(bubble.Request{Method: "POST", Target: exec, Header: []string{"Connection", "Upgrade", "Upgrade", "SPDY/3.1"}})
		c.CloseWrite()
		_, got := c.Read()
		time.Sleep(7 * time.Second)
		synctest.Wait()
		if len(got) != 5 || ended != 35*time.Second {
			t.Errorf("the other direction ended after %s, with %d bytes", ended, len(got))
		}
	})
}

// A WebSocket that is passed through gets CLOSE when the proxy stops, behind the last whole frame.
func TestWebSocketStops(t *testing.T) {
	for name, c := range map[string]struct{ sent, want string }{
		"between frames":    {"\x81\x02hi", "\x81\x02hi" + proxytest.CloseNormal},
		"within a frame":    {"\x81\x03hi", "\x81\x03hi"},
		"behind the CLOSE":  {proxytest.CloseNormal, proxytest.CloseNormal},
		"before all frames": {"", proxytest.CloseNormal},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			p, client := lastingSocket(t, exec, c.sent)
			synctest.Wait()
			p.Stop()
			if _, got := client.Read(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// lastingSocket opens a WebSocket to an upstream that sends so much and does not end it.
func lastingSocket(t *testing.T, target, sent string) (*bubble.Proxy, *bubble.Client) {
	up := proxytest.NewBubbleServer(t)
	p := bubble.Start(t, up)
	up.OnClients(upgrade(t, "websocket", func(conn io.Writer, rw io.Reader) {
		_, _ = io.WriteString(conn, sent)
		_, _ = io.Copy(io.Discard, rw) // until the proxy ends it
	}))
	c := p.Send(bubble.Request{Target: target, Header: []string{"Accept", "application/yaml", "Connection", "Upgrade", "Upgrade", "websocket"}})
	if code := c.Response().StatusCode; code != http.StatusSwitchingProtocols {
		t.Fatalf("got %d", code)
	}
	return p, c
}

// A watch whose kube-apiserver has forgotten it does not outlast its timeout by much.
func TestWebSocketOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, c := lastingSocket(t, "/api/v1/pods?watch=1&timeoutSeconds=1&timeoutSeconds=600", "\x81\x02hi")
		if _, got := c.Read(); got != "\x81\x02hi" || time.Since(began) != 11*time.Second {
			t.Errorf("got %q after %s", got, time.Since(began))
		}
	})
}

// A handshake that is passed through brings the token among its subprotocols in Authorization alone.
func TestWebSocketTokenPassesOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		var got http.Header
		p.Up.OnClients(func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
		p.Get(exec, "Connection", "Upgrade", "Upgrade", "websocket",
			"Sec-WebSocket-Protocol", "v5, "+proxytest.BearerProtocol(bubble.ClientToken)+", v4")
		if !slices.Equal(got["Authorization"], []string{"Bearer " + bubble.ClientToken}) || !slices.Equal(got["Sec-Websocket-Protocol"], []string{"v5,v4"}) {
			t.Errorf("upstream got %q", got)
		}
	})
}

// A WebSocket's watch at a fall-back ends behind a message from which its client resumes, with a CLOSE
// frame, when its connection is dismissed. Other WebSockets go on.
func TestWebSocketDismissed(t *testing.T) {
	message := func(text string) string { return "\x81" + string(rune(len(text))) + text }
	bookmark, change, deletion := message(`{"type":"BOOKMARK"}`), message(`{"type":"ADDED"}`), message(`{"type":"DELETED"}`)
	const since, initial = "/api/v1/pods?watch=1&resourceVersion=7", "/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersion=7"
	for name, c := range map[string]struct {
		target        string
		before, after []string
		want          string
	}{
		"nothing has come":      {since, nil, nil, proxytest.CloseNormal},
		"behind a change":       {since, []string{deletion, change}, nil, deletion + change + proxytest.CloseNormal},
		"behind a deletion":     {since, []string{deletion}, []string{change, deletion}, deletion + change + proxytest.CloseNormal},
		"within initial events": {initial, []string{change}, []string{change, bookmark, change}, change + change + bookmark + proxytest.CloseNormal},
		"within a message":      {since, []string{change[:5]}, []string{change[5:], change}, change + proxytest.CloseNormal},
		"another WebSocket":     {exec, []string{"\x81\x01a"}, []string{"\x81\x01b"}, "\x81\x01a\x81\x01b"},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			up := proxytest.NewBubbleServer(t)
			p := bubble.Start(t, up, bubble.Fallback)
			dismissed := make(chan struct{})
			up.OnClients(upgrade(t, "websocket", func(conn io.Writer, rw io.Reader) {
				for _, m := range c.before {
					_, _ = io.WriteString(conn, m)
				}
				close(dismissed)
				time.Sleep(time.Minute)
				for _, m := range c.after {
					_, _ = io.WriteString(conn, m)
					time.Sleep(time.Second)
				}
			}))
			client := p.Send(bubble.Request{Target: c.target, Token: bubble.ClientToken, Dismissed: dismissed,
				Header: []string{"Connection", "Upgrade", "Upgrade", "websocket"}})
			if _, got := client.Read(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			time.Sleep(2 * time.Minute) // upstream ends as well
		})
	}
}
