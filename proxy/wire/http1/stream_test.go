package http1

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// newServer returns a server without limits.
func newServer(t testing.TB, handle func(*exchange.Exchange), ledger *account.Ledger, maxAge time.Duration) *Server {
	t.Helper()
	rejected := new(metrics.Counter)
	return New(downstream.Base{Handle: handle, Refuse: apistatus.Refuse, Ledger: ledger, Guard: proxytest.Guard(),
		Conns: downstream.NewConnections(maxAge, account.New(account.Limits{})), Malformed: rejected, Held: rejected})
}

// startServer serves handle until the test ends, over TLS if secure is true. dial connects to it.
func startServer(t *testing.T, guard *exchange.Guard, handle func(*exchange.Exchange), secure bool) (dial func() net.Conn) {
	t.Helper()
	server := newServer(t, handle, account.New(account.Limits{}), 0)
	poller, err := downstream.NewPoller()
	if err != nil {
		t.Fatal(err)
	}
	server.Poller, server.Guard = poller, guard
	polling, endPolling := context.WithCancel(t.Context())
	polled := make(chan struct{})
	go func() { defer close(polled); poller.Run(polling) }()
	t.Cleanup(func() { endPolling(); <-polled })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	ln = downstream.ClientListener{Listener: ln, Arrivals: downstream.NewArrivals(func() int { return 1 }, downstream.NewMetrics(metrics.NewSet())), TLS: secure}
	if secure {
		ln = tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{proxytest.ServerCertificate()}, DynamicRecordSizingDisabled: true})
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		server.Shutdown(ctx)
		<-served
	})
	return func() net.Conn {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(proxytest.Patience))
		if secure {
			c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
		}
		return c
	}
}

// get sends requests for targets, ahead of any answer.
func get(t *testing.T, to io.Writer, targets ...string) {
	t.Helper()
	for _, target := range targets {
		send(t, to, "GET "+target+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
	}
}

func send(t *testing.T, to io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(to, text); err != nil {
		t.Fatal(err)
	}
}

// eachPort runs a test without TLS and with it.
func eachPort(t *testing.T, test func(t *testing.T, secure bool)) {
	for name, secure := range map[string]bool{"plaintext": false, "TLS": true} {
		t.Run(name, func(t *testing.T) { test(t, secure) })
	}
}

// events is a stream whose events the test sends.
type events struct {
	exchange.Stream
	begun chan fanout.Sink
	gone  chan struct{}
	ended chan bool // whether the stream was complete
}

func newEvents() *events {
	return &events{begun: make(chan fanout.Sink, 1), gone: make(chan struct{}, 10), ended: make(chan bool, 10)}
}

func (e *events) Begin(s fanout.Sink)                { e.begun <- s }
func (e *events) Gone()                              { e.gone <- struct{}{} }
func (e *events) Keep(int64) bool                    { return true }
func (e *events) End(_ fanout.Reason, complete bool) { e.ended <- complete }

// The bytes of a stream are its head, what belongs to the head, the events, and the end of the body.
// The connection then carries what the client has sent meanwhile: another stream, and an ordinary
// request.
func TestStream(t *testing.T) {
	eachPort(t, func(t *testing.T, secure bool) {
		source := newEvents()
		dial := startServer(t, proxytest.Guard(), func(x *exchange.Exchange) {
			x.Response.Header.Add("Content-Type", "application/json")
			x.Response.Header.Add("Warning", `299 - "one"`)
			if x.Target == "/watch" {
				x.Response.Stream, x.Response.First = source, "3\r\ngz\n\r\n"
				return
			}
			x.Response.Body = exchange.BodySlices{[]byte("he"), []byte("llo")}
		}, secure)
		c := dial()
		in := bufio.NewReader(c)
		read := func(want string) {
			t.Helper()
			var got strings.Builder
			for !strings.HasSuffix(got.String(), want[len(want)-5:]) {
				if _, err := io.CopyN(&got, in, 1); err != nil {
					t.Fatalf("%v after %q, want %q", err, got.String(), want)
				}
			}
			if got := regexp.MustCompile(`Date: [^\r]+GMT`).ReplaceAllString(got.String(), "Date: DATE"); got != want {
				t.Fatalf("got\n%q, want\n%q", got, want)
			}
		}
		const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: DATE\r\nWarning: 299 - \"one\"\r\n"
		get(t, c, "/watch")
		for i, next := range [][]string{{"/watch", "/version"}, nil} {
			read(head + "Transfer-Encoding: chunked\r\n\r\n3\r\ngz\n\r\n") // before any event
			sink := <-source.begun
			event := fmt.Sprintf("4\r\nab%d\n\r\n", i)
			if blocked, err := sink.Write([][]byte{[]byte(event[:4]), []byte(event[4:])}); blocked || err != nil {
				t.Fatal(blocked, err)
			}
			read(event)
			get(t, c, next...)
			sink.End(fanout.TimedOut, true)
			if !<-source.ended {
				t.Error("the stream is not complete")
			}
			read("0\r\n\r\n")
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "hello" {
			t.Errorf("the next answer is %s %q, %v", resp.Status, body, err)
		}
		if len(source.gone) > 0 {
			t.Error("the client is said to have left")
		}
	})
}

// A client that resets its connection ends its stream: while nothing is sent, and while it does not
// read what is sent.
func TestStreamReset(t *testing.T) {
	eachPort(t, func(t *testing.T, secure bool) {
		for _, blocked := range []bool{false, true} {
			source := newEvents()
			dial := startServer(t, proxytest.Guard(), func(x *exchange.Exchange) { x.Response.Stream = source }, secure)
			c := dial()
			get(t, c, "/")
			sink := <-source.begun
			drained := make(chan error, 1)
			if blocked {
				for blocked := false; !blocked; {
					var err error
					if blocked, err = sink.Write([][]byte{make([]byte, 1<<20)}); err != nil {
						t.Fatal(err)
					}
				}
				sink.Drain(func(err error) { drained <- err })
			}
			if tc, ok := c.(*tls.Conn); ok {
				c = tc.NetConn()
			}
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
			if blocked {
				if err := <-drained; err == nil {
					t.Error("what the client has not read is said to be written")
				}
			} else {
				<-source.gone
			}
			sink.End(fanout.Gone, false)
			if <-source.ended {
				t.Error("the stream is complete")
			}
		}
	})
}
