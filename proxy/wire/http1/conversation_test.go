package http1

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// respond answers requests by their targets with every kind of body. "/long" kinds last.
func respond(x *exchange.Exchange) {
	r := &x.Response
	body := func() io.ReadCloser { return io.NopCloser(strings.NewReader("body")) }
	switch target, _, _ := strings.Cut(x.Target, "?"); target {
	case "/none":
		r.Status = http.StatusNoContent
	case "/same":
		r.Status = http.StatusNotModified
	case "/length":
		r.Reader, r.Length = body(), 4
	case "/unknown":
		r.Reader, r.Length = body(), -1
	case "/long":
		r.Detached = func(to exchange.Responder) { to.Respond(&exchange.Response{Reader: body(), Length: -1}) }
	case "/echo":
		got, err := io.ReadAll(x.Body)
		r.Body = exchange.BodySlices{got}
		if err != nil {
			r.Status = http.StatusBadRequest
		}
	case "/refused": // an upgrade
		r.Detached = func(to exchange.Responder) {
			to.Respond(&exchange.Response{Status: http.StatusForbidden, Body: exchange.BodySlices{[]byte("body")}})
		}
	default:
		r.Body = exchange.BodySlices{[]byte("bo"), []byte("dy")}
	}
	if r.Reader != nil && x.Method == http.MethodHead {
		r.Reader = http.NoBody
	}
}

// A connection carries requests of all kinds, one by one and sent ahead. A body that nobody has read is
// no request.
func TestConversation(t *testing.T) {
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
	talk := []struct{ request, body, want string }{
		{"GET /long", "", "body"},
		{"GET /", "", "body"},
		{"GET /unknown", "", "body"},
		{"GET /length", "", "body"},
		{"HEAD /length", "", ""},
		{"HEAD /unknown", "", ""},
		{"HEAD /long", "", ""},
		{"GET /none", "", ""},
		{"GET /same", "", ""},
		{"POST /echo", "hello", "hello"},
		{"GET /", smuggled, "body"},
		{"GET /refused", "", "body"},
		{"GET /long", "", "body"},
		{"POST /length", smuggled, "body"}, // the response begins before its end, which may be anywhere
	}
	eachPort(t, func(t *testing.T, secure bool) {
		dial := startServer(t, proxytest.Guard(), respond, secure)
		for _, ahead := range []bool{false, true} {
			var wires []string
			for _, say := range talk {
				length := ""
				if say.body != "" {
					length = fmt.Sprintf("Content-Length: %d\r\n", len(say.body))
				}
				wires = append(wires, say.request+" HTTP/1.1\r\nHost: localhost\r\n"+length+"\r\n"+say.body)
			}
			c := dial()
			in := bufio.NewReader(c)
			if ahead {
				send(t, c, strings.Join(wires, ""))
			}
			for i, say := range talk {
				if !ahead {
					send(t, c, wires[i])
				}
				method, target, _ := strings.Cut(say.request, " ")
				resp, err := http.ReadResponse(in, &http.Request{Method: method})
				if err != nil {
					t.Fatalf("%s: %v", say.request, err)
				}
				got, err := io.ReadAll(resp.Body)
				if err != nil || string(got) != say.want || target == "/length" && resp.ContentLength != 4 {
					t.Errorf("%s: got %q with Content-Length %d, %v", say.request, got, resp.ContentLength, err)
				}
			}
			if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
				t.Errorf("behind the last response: %q, %v", rest, err)
			}
		}
	})
}

// HTTP/1.0 knows no chunks: the connection's end is that of the body.
func TestHTTP10(t *testing.T) {
	dial := startServer(t, proxytest.Guard(), respond, false)
	for _, target := range []string{"/unknown", "/long"} {
		c := dial()
		send(t, c, "GET "+target+" HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n")
		if raw, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(raw), "\r\n\r\nbody") || strings.Contains(string(raw), "chunked") {
			t.Errorf("%s: got %q, %v", target, raw, err)
		}
	}
}

// A body is asked for when it is expected to be.
func TestContinue(t *testing.T) {
	c := startServer(t, proxytest.Guard(), respond, false)()
	in := bufio.NewReader(c)
	for range 2 {
		send(t, c, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
		if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != http.StatusContinue {
			t.Fatalf("got %v, %v", resp, err)
		}
		send(t, c, "hello")
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); string(body) != "hello" || err != nil {
			t.Errorf("got %q, %v", body, err)
		}
	}
}

// The client has a response that breaks off broken off, however its end is marked.
func TestBrokenOff(t *testing.T) {
	eachPort(t, func(t *testing.T, secure bool) {
		dial := startServer(t, proxytest.Guard(), func(x *exchange.Exchange) {
			resp := &exchange.Response{Reader: io.NopCloser(io.MultiReader(strings.NewReader("part"), iotest.ErrReader(errors.New("broken")))), Length: -1}
			if strings.Contains(x.Target, "length") {
				resp.Length = 100
			}
			if x.Response = *resp; strings.Contains(x.Target, "long") {
				x.Response = exchange.Response{Detached: func(to exchange.Responder) { to.Respond(resp) }}
			}
		}, secure)
		for _, target := range []string{"/chunked", "/length", "/long/chunked", "/long/length"} {
			c := dial()
			get(t, c, target)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatalf("%s: %v", target, err)
			}
			if body, err := io.ReadAll(resp.Body); string(body) != "part" || err != io.ErrUnexpectedEOF {
				t.Errorf("%s: got %q, %v", target, body, err)
			}
		}
	})
}

// A client that leaves while it is sent nothing is noticed, and so is one that sends more than is kept
// for later.
func TestClientLeaves(t *testing.T) {
	closing := func(c net.Conn) { c.Close() }
	for name, c := range map[string]struct {
		body  string
		leave func(net.Conn)
	}{
		"closes":              {"", closing},
		"closes, with a body": {"{}", closing},
		"floods":              {"", func(c net.Conn) { go c.Write(make([]byte, 1<<20)) }},
	} {
		t.Run(name, func(t *testing.T) {
			eachPort(t, func(t *testing.T, secure bool) {
				began, left := make(chan struct{}), make(chan struct{})
				dial := startServer(t, proxytest.Guard(), func(x *exchange.Exchange) {
					if x.ContentLength == 0 {
						x.Response.Detached = func(to exchange.Responder) {
							to.OnGone(func() { close(left) })
							close(began)
							<-left
						}
						return
					}
					_, _ = io.Copy(io.Discard, x.Body)
					close(began)
					steady.UntilTrue(t, "end of the client", x.Conn.Left)
					close(left)
				}, secure)
				conn := dial()
				send(t, conn, fmt.Sprintf("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(c.body), c.body))
				<-began
				c.leave(conn)
				steady.Receive(t, "end of the request", left)
			})
		})
	}
}

// After an upgrade the connection is the handler's. What the client has sent ahead comes first, and each
// direction ends for itself.
func TestUpgrade(t *testing.T) {
	eachPort(t, func(t *testing.T, secure bool) {
		dial := startServer(t, proxytest.Guard(), func(x *exchange.Exchange) {
			x.Response.Detached = func(to exchange.Responder) {
				to.OnGone(func() {})
				conn, err := to.Upgrade(&exchange.Response{Header: exchange.Header{{Name: "Upgrade", Value: "SPDY/3.1"}}})
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				_, _ = io.Copy(conn, conn) // until the client's side ends
				_, _ = io.WriteString(conn, "bye")
				if err := conn.CloseWrite(); err != nil {
					t.Error(err)
				}
			}
		}, secure)
		c := dial()
		send(t, c, "POST /exec HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\nearly")
		const head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\n\r\n"
		got := make([]byte, len(head))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != head {
			t.Fatalf("got %q, %v", got, err)
		}
		send(t, c, "late")
		if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(c); err != nil || string(got) != "earlylatebye" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// Requests that cannot be read are answered in kube-apiserver's form, and end their connection.
func TestMalformed(t *testing.T) {
	dial := startServer(t, proxytest.Guard(), respond, false)
	for name, c := range map[string]struct {
		send string
		want int
	}{
		"garbage":     {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n", 400},
		"no path":     {"GET pods HTTP/1.1\nHost: localhost\n\n", 400},
		"bad escape":  {"GET /%zz HTTP/1.1\nHost: localhost\n\n", 400},
		"two lengths": {"GET / HTTP/1.1\nHost: localhost\nContent-Length: 1\nContent-Length: 2\n\nab", 400},
		"long header": {"GET / HTTP/1.1\nHost: localhost\nX: " + strings.Repeat("x", 2_000_000) + "\n\n", 431},
	} {
		conn := dial()
		go io.WriteString(conn, strings.ReplaceAll(c.send, "\n", "\r\n"))
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != c.want || !strings.HasPrefix(string(body), `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",`) {
			t.Errorf("%s: got %s %s", name, resp.Status, body)
		}
		if h := resp.Header; h.Get("Audit-Id") == "" || h.Get("Cache-Control") != "no-cache, private" || h.Get("Content-Type") != "application/json" {
			t.Errorf("%s: got header %v", name, h)
		}
		if _, err := in.ReadByte(); err == nil {
			t.Errorf("%s: the connection goes on", name)
		}
	}
}

// A client has the same time for the whole head, for a short body and for the TLS handshake, even if it
// sends a byte now and then.
func TestSlowClients(t *testing.T) {
	// The record's header of a ClientHello, and a part of it.
	hello := "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x00", 400)
	for name, c := range map[string]struct {
		secure            bool
		begin, drop, want string
	}{
		"nothing":           {false, "", "", ""},
		"nothing, TLS":      {true, "", "", ""},
		"a cut head":        {false, "GET / HTTP/1.1\r\nHost: loc", "", "HTTP/1.1 408"},
		"a slow head":       {false, "GET / HTTP/1.1\r\nHost: localhost\r\nX: ", "x", "HTTP/1.1 408"},
		"slow headers":      {false, "GET / HTTP/1.1\r\nHost: localhost\r\n", "A: b\r\n", "HTTP/1.1 408"},
		"a slow short body": {false, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000\r\n\r\n", "x", "HTTP/1.1 408"},
		"a cut handshake":   {true, hello[:20], "", ""},
		"a slow handshake":  {true, hello[:20], hello[20:21], ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(t, respond, account.New(account.Limits{}), 0)
				client, served := net.Pipe()
				if c.secure {
					served = tls.Server(served, &tls.Config{Certificates: make([]tls.Certificate, 1)})
				}
				go func() { _ = server.ServeConn(served, nil) }()
				began := time.Now()
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					for _, err := io.WriteString(client, c.begin); err == nil; _, err = io.WriteString(client, c.drop) {
						time.Sleep(time.Second)
					}
				}()
				got, err := io.ReadAll(client)
				if took := time.Since(began); err != nil || !strings.HasPrefix(string(got), c.want) || c.want == "" && len(got) > 0 || took != downstream.HeaderTimeout {
					t.Errorf("got %q, %v after %s, want %s", got, err, took, c.want)
				}
				client.Close()
				<-sent
			})
		})
	}
}

// HTTP/1.1's own fields stand where they sort, as in kube-apiserver's heads.
func TestAppendHead(t *testing.T) {
	sorted := exchange.Header{{Name: "Audit-Id", Value: "i"}, {Name: "Content-Type", Value: "c"}, {Name: "Vary", Value: "v"}, {Name: "Warning", Value: "w"}}
	watch := exchange.Header{sorted[0], sorted[1], sorted[3], sorted[2]}
	dated := exchange.Header{{Name: "Date", Value: "d"}, {Name: "X", Value: "x"}}
	for want, got := range map[string][]byte{
		"200 OK|Audit-Id|Content-Type|Date|Transfer-Encoding|Vary|Warning": appendHead(nil, &exchange.Response{Header: sorted},
			framed{chunked: true, length: -1, keepAlive: true, http11: true}),
		"200 OK|Audit-Id|Connection|Content-Type|Date|Warning|Transfer-Encoding|Vary": appendHead(nil, &exchange.Response{Header: watch},
			framed{chunked: true, length: -1, http11: true, warningsFirst: true}),
		"404 Not Found|Connection|Content-Length|Date|X": appendHead(nil, &exchange.Response{Status: 404, Header: dated},
			framed{length: 3, keepAlive: true}),
		"304 Not Modified|Date|X": appendHead(nil, &exchange.Response{Status: 304, Header: dated},
			framed{length: 0, keepAlive: true, http11: true}),
		"204 No Content|Date": appendHead(nil, &exchange.Response{Status: 204}, framed{length: 0, keepAlive: true, http11: true}),
	} {
		var names []string
		for line := range strings.SplitSeq(strings.TrimSuffix(string(got), "\r\n\r\n"), "\r\n") {
			name, _, _ := strings.Cut(strings.TrimPrefix(line, "HTTP/1.1 "), ":")
			names = append(names, name)
		}
		if strings.Join(names, "|") != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
