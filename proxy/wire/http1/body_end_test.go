package http1

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// A body in chunks is whole when its last chunk and the empty line behind it have come. One that ends
// before is not sent on as a whole one.
func TestBodyEnd(t *testing.T) {
	eachPort(t, func(t *testing.T, secure bool) {
		dial := startServer(t, proxytest.Guard(), respond, secure)
		for body, want := range map[string]int{
			"2\r\n{}\r\n0\r\n\r\n":         http.StatusOK,
			"2\r\n{}\r\n0\r\nA: b\r\n\r\n": http.StatusOK,
			"2\r\n{}\r\n0\r\n":             http.StatusBadRequest,
			"2\r\n{}\r\n":                  http.StatusBadRequest,
			"2\r\n{}":                      http.StatusBadRequest,
			"":                             http.StatusBadRequest,
		} {
			c := dial()
			send(t, c, "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"+body)
			if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || resp.StatusCode != want {
				t.Errorf("%q: got %v, %v, want %d", body, resp, err, want)
			}
		}
	})
}

// A body of known length is whole when that many bytes have come.
func TestBodyEndOfKnownLength(t *testing.T) {
	for _, length := range []int{4, 5, 6} {
		c, other := net.Pipe()
		t.Cleanup(func() { c.Close(); other.Close() })
		b := &requestBody{conn: c, length: length, stream: bytes.NewReader([]byte("12345"))}
		_, err := io.ReadAll(b)
		if whole := err == nil; whole != (length == 5) {
			t.Errorf("5 bytes of %d: %v", length, err)
		}
	}
}

// A body with an empty line is no head, also if its head has come with the request before.
func TestBodyOfPipelinedRequest(t *testing.T) {
	server := newServer(t, respond, account.New(account.Limits{}), 0)
	client, served := net.Pipe() // each write is one read
	done := make(chan struct{})
	go func() { defer close(done); _ = server.ServeConn(served, nil) }()
	defer func() { client.Close(); <-done }()
	go func() {
		for _, part := range []string{"GET /one HTTP/1.1\r\nHost: h\r\n\r\nPOST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n",
			"abc\n\n", "defg"} {
			_, _ = io.WriteString(client, part)
		}
	}()
	in := bufio.NewReader(client)
	for _, want := range []string{"body", "abc\n\ndefg"} {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(resp.Body); string(got) != want || err != nil {
			t.Errorf("got %s, %q, %v, want %q", resp.Status, got, err, want)
		}
	}
}

// A response that comes early ends a read of the body that waits for the client.
func TestReleaseDuringRead(t *testing.T) {
	ended := make(chan error, 1)
	dial := startServer(t, proxytest.Guard(), func(x *exchange.Exchange) {
		if x.Body == nil {
			return
		}
		body := x.Body.(*requestBody)
		go func() {
			_, err := io.Copy(io.Discard, body)
			ended <- err
		}()
		steady.UntilTrue(t, "read", func() bool {
			if body.mu.TryLock() {
				defer body.mu.Unlock()
				return false
			}
			return true
		})
	}, false)
	c := dial()
	get(t, c, "/")
	in := bufio.NewReader(c)
	if _, err := http.ReadResponse(in, nil); err != nil {
		t.Fatal(err)
	}
	send(t, c, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"+strings.Repeat("x", 20_000))
	if answer, err := io.ReadAll(in); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200") {
		t.Errorf("%v: %.100s", err, answer)
	}
	if err := steady.Receive(t, "end of the read", ended); !errors.Is(err, exchange.ErrBodyReleased) {
		t.Errorf("the read ends with %v", err)
	}
}
