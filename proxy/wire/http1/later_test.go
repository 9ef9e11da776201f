package http1

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// ends counts how often a slot is released and an Until closed.
type ends struct{ slots, untils atomic.Int32 }

func (e *ends) Release() { e.slots.Add(1) }

func (e *ends) Close() error {
	e.untils.Add(1)
	return nil
}

// A handler's work that goes on later fills every kind of response. The connection then carries the
// next request. A panic ends the connection alone.
func TestLater(t *testing.T) {
	count := &ends{}
	fill := func(x *exchange.Exchange) {
		x.Until = count
		switch r := &x.Response; x.Target {
		case "/body":
			r.Body = exchange.BodySlices{[]byte("he"), []byte("llo")}
		case "/reader":
			r.Reader, r.Length = io.NopCloser(strings.NewReader("hello")), 5
		case "/unknown":
			r.Reader, r.Length = io.NopCloser(strings.NewReader("hello")), -1
		case "/detached":
			r.Detached = func(to exchange.Responder) {
				to.Respond(&exchange.Response{Length: -1, Reader: io.NopCloser(strings.NewReader("hello"))})
			}
		case "/refused":
			r.Status, r.Body = http.StatusTooManyRequests, exchange.BodySlices{[]byte("hello")}
		case "/panic":
			panic("later")
		}
	}
	guard := proxytest.Guard()
	dial := startServer(t, guard, func(x *exchange.Exchange) {
		x.Slot = count
		agent := x.Header.Get("User-Agent")
		x.Response.Later = func(later *exchange.Exchange) {
			if later == x || later.Header.Get("User-Agent") != agent || later.Response.Later != nil {
				t.Error("the request is not a copy, or not the same")
			}
			fill(later)
		}
	}, false)
	c := dial()
	in := bufio.NewReader(c)
	send := func(path string) {
		io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\nUser-Agent: test\r\n\r\n")
	}
	for i, path := range []string{"/body", "/reader", "/unknown", "/detached", "/refused", "/body"} {
		send(path)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		body, err := io.ReadAll(resp.Body)
		if string(body) != "hello" || err != nil || resp.StatusCode == http.StatusTooManyRequests != (path == "/refused") {
			t.Errorf("%s: %s, %q, %v", path, resp.Status, body, err)
		}
		if i > 0 && int(count.slots.Load()) < i || int(count.untils.Load()) < i {
			t.Errorf("%s: %d slots released and %d Untils closed", path, count.slots.Load(), count.untils.Load())
		}
	}
	send("/panic")
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("after a panic: %v", err)
	}
	steady.Until(t, "seventh slot released", func() error { // it may be after the connection has ended
		if n := count.slots.Load(); n < 7 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	if guard.Panics.Get() != 1 || count.untils.Load() != 7 {
		t.Errorf("after a panic %d slots were released and %d Untils closed", count.slots.Load(), count.untils.Load())
	}
}

// The connection ends behind a body that is shorter or longer than its head says: what follows would be taken
// for a part of the body, or for the next response.
func TestWrongLength(t *testing.T) {
	dial := startServer(t, proxytest.Guard(), func(x *exchange.Exchange) {
		target := x.Target
		x.Response.Detached = func(to exchange.Responder) {
			to.Respond(&exchange.Response{Length: 10, Reader: io.NopCloser(strings.NewReader(target))})
		}
	}, false)
	for target, want := range map[string]string{"/short": "/short", "/tenbytes.": "/tenbytes.HTTP", "/much.longer": ""} {
		c := dial()
		for range 2 {
			io.WriteString(c, "GET "+target+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
		}
		in := bufio.NewReader(c)
		if _, err := http.ReadResponse(in, nil); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(io.LimitReader(in, 14))
		if string(rest) != want || err != nil && want == "/tenbytes.HTTP" {
			t.Errorf("%s: the body and what follows is %q, %v, want %q", target, rest, err, want)
		}
	}
}
