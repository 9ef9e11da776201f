package attack_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// hold opens n connections, lets f use each, and keeps them until ctx ends.
func (a *attacker) hold(ctx context.Context, n int, address string, secure bool,
	f func(ctx context.Context, conn net.Conn)) {
	a.crowd(n, func(int) {
		conn, err := a.dial(ctx, address, secure)
		if err != nil {
			a.note(ending(err))
			return
		}
		defer conn.Close()
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		defer stop()
		a.note("open")
		f(ctx, conn)
		<-ctx.Done()
	})
}

// head is the head of a request, without the empty line behind it.
func head(method, uri, token, lines string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n%s", method, uri, token, lines)
}

// slowReaders read 1 KB ten times a second of a list of megabytes.
func slowReaders(ctx context.Context, a *attacker) {
	a.hold(ctx, 5, a.Secure, true, func(ctx context.Context, conn net.Conn) {
		_, _ = io.WriteString(conn, head("GET", allConfigMaps+"resourceVersion=0", a.Hostile.Crawler, "\r\n"))
		buffer := make([]byte, 1024)
		for proxytest.Sleep(ctx, 100*time.Millisecond) {
			if _, err := conn.Read(buffer); err != nil {
				a.note(ending(err))
				return
			}
		}
	})
}

// deafWatchers ask for all initial events and read none.
func deafWatchers(ctx context.Context, a *attacker) {
	a.hold(ctx, 20, a.Secure, true, func(ctx context.Context, conn net.Conn) {
		_, _ = io.WriteString(conn, head("GET", allConfigMaps+"watch=1&resourceVersion=0", a.Hostile.Crawler, "\r\n"))
	})
}

// deafPings open watches over WebSockets, send pings, and read no answer.
func deafPings(ctx context.Context, a *attacker) {
	pings := bytes.Repeat(proxytest.ClientFrame(proxytest.PingFrame, strings.Repeat("p", 100)), 100)
	a.hold(ctx, 20, a.Secure, true, func(ctx context.Context, conn net.Conn) {
		_, err := proxytest.OpenWebSocket(conn, allConfigMaps+"watch=1&fieldSelector=metadata.name=none", nil, "Authorization: Bearer "+a.Hostile.Crawler)
		for err == nil && proxytest.Sleep(ctx, 100*time.Millisecond) {
			_, err = conn.Write(pings)
		}
		if err != nil {
			a.note(ending(err))
		}
	})
}

// slowHeads send the head of a request byte by byte.
func slowHeads(ctx context.Context, a *attacker) {
	a.hold(ctx, 20, a.Secure, true, func(ctx context.Context, conn net.Conn) {
		for _, b := range []byte(head("GET", allConfigMaps, "slow", strings.Repeat("A: b\r\n", 1000))) {
			if _, err := conn.Write([]byte{b}); err != nil {
				a.note(ending(err))
				return
			}
			if !proxytest.Sleep(ctx, 100*time.Millisecond) {
				return
			}
		}
	})
}

// halfHandshakes send the beginning of a TLS handshake, or nothing.
func halfHandshakes(ctx context.Context, a *attacker) {
	hello := "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
	a.hold(ctx, 50, a.Secure, false, func(_ context.Context, conn net.Conn) { _, _ = io.WriteString(conn, hello[:len(hello)/2]) })
}

// connectionChurn makes handshakes and leaves.
func connectionChurn(ctx context.Context, a *attacker) {
	a.every(ctx, 20, func() {
		conn, err := a.dial(ctx, a.Secure, true)
		if err != nil {
			a.note(ending(err))
			return
		}
		a.note("open")
		conn.Close()
	})
}

// hugeHeads are longer than any head may be, in bytes or in lines.
func hugeHeads(ctx context.Context, a *attacker) {
	heads := []string{strings.Repeat("A: b\r\n", 9000), "A: " + strings.Repeat("b", 70_000) + "\r\n",
		strings.Repeat("Cookie: a=b\r\n", 4000)}
	a.every(ctx, 5, func() {
		a.exchange(ctx, a.Secure, true, head("GET", "/version", "huge", heads[a.rng.IntN(len(heads))]+"\r\n"))
	})
}

// brokenBodies announce a megabyte and end before.
func brokenBodies(ctx context.Context, a *attacker) {
	uri := "/api/v1/namespaces/" + a.namespace() + "/configmaps"
	a.every(ctx, 5, func() {
		conn, err := a.dial(ctx, a.Secure, true)
		if err != nil {
			a.note(ending(err))
			return
		}
		defer conn.Close()
		length := []string{"Content-Length: 1000000\r\n", "Transfer-Encoding: chunked\r\n"}[a.rng.IntN(2)]
		_ = conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.WriteString(conn, head("POST", uri, a.Hostile.Tenants[a.tenant], "Content-Type: application/json\r\n"+length+"\r\nf4240\r\n"+strings.Repeat(" ", 100_000))); err != nil {
			a.note(ending(err))
			return
		}
		a.note("broken off")
	})
}

// malformedSecure and malformedInsecure send the requests of the table of attacks, with a garbage
// token.
func malformedSecure(ctx context.Context, a *attacker)   { malformed(ctx, a, a.Secure, true) }
func malformedInsecure(ctx context.Context, a *attacker) { malformed(ctx, a, a.Insecure, false) }

func malformed(ctx context.Context, a *attacker, address string, secure bool) {
	all := proxytest.Attacks("/api/v1/namespaces/t0/configmaps?resourceVersion=0",
		"Authorization: Bearer malformed\r\n")
	a.every(ctx, 10, func() { a.exchange(ctx, address, secure, all[a.rng.IntN(len(all))].Send) })
}

// exchange sends bytes on a connection of their own, reads the first answer and returns its code,
// or 0.
func (a *attacker) exchange(ctx context.Context, address string, secure bool, wire string) (code int) {
	conn, err := a.dial(ctx, address, secure)
	if err != nil {
		a.note(ending(err))
		return 0
	}
	var writing sync.WaitGroup
	defer writing.Wait()
	defer conn.Close()
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
		if code := a.exchange(ctx, a.Insecure, false, "GET /api/v1/secrets?resourceVersion=0 HTTP/1.1\r\n"+header+"\r\n"); code == http.StatusOK {
			a.breach("the insecure port answers %q", header)
		}
	})
}
