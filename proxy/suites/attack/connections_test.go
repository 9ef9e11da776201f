package attack_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

const http1 = "http/1.1" // the protocol of a connection over TLS

var connectionKinds = []kind{
	{name: "bodies that break off", run: brokenBodies},
	{name: "slow readers of large lists", run: held(5, sip(crawler, allConfigMaps+"resourceVersion=0", 1024, 100*time.Millisecond))},
	{name: "watchers that do not read", run: held(20, sip(crawler, allConfigMaps+"watch=1&resourceVersion=0", 0, longestRound))},
	{name: "WebSockets that ping and do not read", run: held(20, deafPings)},
	{name: "WebSocket messages without an end", run: held(20, endlessMessages)},
	{name: "heads byte by byte", run: held(20, drip("", head("GET", allConfigMaps, "slow", strings.Repeat("A: b\r\n", 1000)), 100*time.Millisecond))},
	{name: "half handshakes", run: func(ctx context.Context, a *attacker) {
		a.hold(ctx, 50, a.Secure, "", drip("\x16\x03\x01\x02\x00", "", longestRound))
	}},
	{name: "connection churn", run: func(ctx context.Context, a *attacker) {
		a.every(ctx, 20, func() { a.exchange(ctx, a.Secure, http1, "") })
	}},
	{name: "huge heads", run: hugeHeads},
	{name: "malformed requests, TLS", run: func(ctx context.Context, a *attacker) { malformed(ctx, a, a.Secure, http1) }},
	{name: "malformed requests, insecure port", insecure: true, run: func(ctx context.Context, a *attacker) { malformed(ctx, a, a.Insecure, "") }},
	{name: "cross-site requests", run: crossSite, insecure: true},
}

// connected is what an attacker does with a connection. If it returns nil, the connection stays until
// the attack ends.
type connected func(ctx context.Context, a *attacker, conn net.Conn) error

// hold keeps n connections. A connection that the server or use ends is opened again.
func (a *attacker) hold(ctx context.Context, n int, address, protocol string, use connected) {
	crowd(n, func(int) {
		for ctx.Err() == nil {
			conn, err := a.dial(ctx, address, protocol)
			if err == nil {
				a.note("open")
				stop := context.AfterFunc(ctx, func() { conn.Close() })
				if err = use(ctx, a, conn); err == nil {
					<-ctx.Done()
				}
				stop()
				conn.Close()
			}
			if err != nil && ctx.Err() == nil {
				a.note(ending(err))
				proxytest.Sleep(ctx, 100*time.Millisecond)
			}
		}
	})
}

// held keeps n connections over TLS.
func held(n int, use connected) assault {
	return func(ctx context.Context, a *attacker) { a.hold(ctx, n, a.Secure, http1, use) }
}

// head is the head of a request, without the empty line behind it.
func head(method, uri, token, lines string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n%s", method, uri, token, lines)
}

// sip asks for uri and takes so many bytes of the answer now and then.
func sip(of who, uri string, size int, pause time.Duration) connected {
	return func(ctx context.Context, a *attacker, conn net.Conn) error {
		return errors.Join(send(conn, head("GET", uri, of(a), "\r\n")), take(ctx, conn, size, pause))
	}
}

// take takes so many bytes now and then until the server ends the connection.
func take(ctx context.Context, conn net.Conn, size int, pause time.Duration) error {
	for proxytest.Sleep(ctx, pause) {
		_ = conn.SetReadDeadline(time.Now().Add(pause))
		var network net.Error
		if _, err := conn.Read(make([]byte, size)); err != nil && !(errors.As(err, &network) && network.Timeout()) {
			return err
		}
	}
	return nil
}

// drip sends what is first, and then the rest byte by byte until the server ends the connection.
func drip(first, rest string, pause time.Duration) connected {
	return func(ctx context.Context, _ *attacker, conn net.Conn) error {
		err := send(conn, first)
		for i := 0; i < len(rest) && err == nil && proxytest.Sleep(ctx, pause); i++ {
			err = send(conn, rest[i:i+1])
		}
		return err
	}
}

// send sends text unless the server does not read.
func send(conn net.Conn, text string) error {
	_ = conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
	_, err := io.WriteString(conn, text)
	return err
}

// deafPings open watches over WebSockets, send pings, and read no answer.
func deafPings(ctx context.Context, a *attacker, conn net.Conn) error {
	pings := bytes.Repeat(proxytest.ClientFrame(proxytest.PingFrame, strings.Repeat("p", 100)), 100)
	_, err := proxytest.OpenWebSocket(conn, allConfigMaps+"watch=1&fieldSelector=metadata.name=none", nil, "Authorization: Bearer "+a.Hostile.Crawler)
	for err == nil && proxytest.Sleep(ctx, 100*time.Millisecond) {
		_, err = conn.Write(pings)
	}
	return err
}

// endlessMessages open watches over WebSockets, and send one message each of empty and of long fragments, with
// pings in between, and read no answer.
func endlessMessages(ctx context.Context, a *attacker, conn net.Conn) error {
	part := bytes.Repeat(proxytest.ClientFrame(0x00, ""), 500)
	part = append(part, proxytest.ClientFrame(0x00, strings.Repeat("f", 60_000))...)
	part = append(part, proxytest.ClientFrame(proxytest.PingFrame, "between fragments")...)
	_, err := proxytest.OpenWebSocket(conn, allConfigMaps+"watch=1&fieldSelector=metadata.name=none", proxytest.ClientFrame(0x01, "begins"),
		"Authorization: Bearer "+a.Hostile.Crawler)
	for err == nil && proxytest.Sleep(ctx, 100*time.Millisecond) {
		_, err = conn.Write(part)
	}
	return err
}

// hugeHeads are longer than any head may be, in bytes or in lines.
func hugeHeads(ctx context.Context, a *attacker) {
	heads := []string{strings.Repeat("A: b\r\n", 9000), "A: " + strings.Repeat("b", 70_000) + "\r\n",
		strings.Repeat("Cookie: a=b\r\n", 4000)}
	a.every(ctx, 5, func() {
		a.exchange(ctx, a.Secure, http1, head("GET", "/version", "huge", heads[a.rng.IntN(len(heads))]+"\r\n"))
	})
}

// brokenBodies announce a megabyte and end before.
func brokenBodies(ctx context.Context, a *attacker) {
	a.every(ctx, 5, func() {
		conn, err := a.dial(ctx, a.Secure, http1)
		if err == nil {
			length := []string{"Content-Length: 1000000\r\n", "Transfer-Encoding: chunked\r\n"}[a.rng.IntN(2)]
			err = send(conn, head("POST", a.own(), mallory(a), "Content-Type: application/json\r\n"+length+"\r\nf4240\r\n"+strings.Repeat(" ", 100_000)))
			conn.Close()
		}
		if err != nil {
			a.note(ending(err))
			return
		}
		a.note("broken off")
	})
}

// malformed sends the requests of the table of attacks, with a garbage token.
func malformed(ctx context.Context, a *attacker, address, protocol string) {
	all := proxytest.Attacks("/api/v1/namespaces/t0/configmaps?resourceVersion=0", "Authorization: Bearer malformed\r\n")
	a.every(ctx, 10, func() { a.exchange(ctx, address, protocol, all[a.rng.IntN(len(all))].Send) })
}

// exchange sends bytes on a connection of their own, reads the first answer and returns its code,
// or 0. Without bytes it leaves at once.
func (a *attacker) exchange(ctx context.Context, address, protocol, wire string) (code int) {
	conn, err := a.dial(ctx, address, protocol)
	if err != nil {
		a.note(ending(err))
		return 0
	}
	var writing sync.WaitGroup
	defer writing.Wait()
	defer conn.Close()
	if wire == "" {
		a.note("open")
		return 0
	}
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	writing.Go(func() { _, _ = io.WriteString(conn, wire) })
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodGet})
	if err != nil {
		a.note(ending(err))
		return 0
	}
	defer resp.Body.Close()
	a.note(strconv.Itoa(resp.StatusCode))
	return resp.StatusCode
}

// crossSite sends what a browser sends that shows a page of another site. The insecure port acts
// with watchfan's own rights and must not answer.
func crossSite(ctx context.Context, a *attacker) {
	lines := []string{
		"Host: localhost\r\nOrigin: https://evil.example\r\n", "Host: localhost\r\nOrigin: http://localhost:3000\r\n",
		"Host: localhost\r\nOrigin: null\r\n",
		"Host: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n",
		"Host: localhost\r\nSec-Fetch-Site: same-site\r\nSec-Fetch-Mode: no-cors\r\n",
		"Host: rebound.evil.example\r\n",
	}
	a.every(ctx, 10, func() {
		header := lines[a.rng.IntN(len(lines))]
		if code := a.exchange(ctx, a.Insecure, "", "GET /api/v1/secrets?resourceVersion=0 HTTP/1.1\r\n"+header+"\r\n"); code == http.StatusOK {
			a.breach("the insecure port answers %q", header)
		}
	})
}
