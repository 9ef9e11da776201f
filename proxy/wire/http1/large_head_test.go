package http1

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// echo answers with the sizes of what it gets. The connection is served until the test ends.
func echo(t *testing.T, ledger *account.Ledger) (ask func(requests string) []string) {
	server := newServer(t, func(x *exchange.Exchange) {
		body := 0
		if x.Body != nil {
			all, err := io.ReadAll(x.Body)
			if err != nil {
				t.Error(err)
			}
			body = len(all)
		}
		x.Response.Body = exchange.BodySlices{fmt.Appendf(nil, "target %d lines %d body %d held %d", len(x.Target), len(x.Header), body,
			ledger.Totals().Held[account.Heads])}
	}, ledger, 0)
	return func(requests string) (answers []string) {
		client, served := proxytest.TCPPair(t)
		done := make(chan struct{})
		go func() { defer close(done); _ = server.ServeConn(served, nil) }()
		defer func() { client.Close(); <-done }()
		_ = client.SetDeadline(time.Now().Add(time.Minute))
		go func() { _, _ = io.WriteString(client, requests) }()
		for r := bufio.NewReader(client); ; {
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				return answers
			}
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != http.StatusOK {
				body = nil
			}
			answers = append(answers, fmt.Sprintf("%d %s", resp.StatusCode, body))
		}
	}
}

// longHead is a request with a line of n bytes.
func longHead(target string, n int) string {
	return "GET " + target + " HTTP/1.1\r\nHost: h\r\nA: " + strings.Repeat("x", n) + "\r\n\r\n"
}

// A head may have a megabyte, as at kube-apiserver. The connection then closes, and nothing counts
// any more.
func TestLargeHeads(t *testing.T) {
	ledger := account.New(account.Limits{})
	ask := echo(t, ledger)
	long := func(n int) string { return strings.Repeat("x", n) }
	const small = "GET /small HTTP/1.1\r\nHost: h\r\n\r\n"
	last := "GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	held, second := fmt.Sprintf(" held %d", heldByHead(1)+heldByHead(2)), fmt.Sprintf(" held %d", heldByHead(1))
	for name, c := range map[string]struct {
		send string
		want []string
	}{
		"usual heads":      {small + last, []string{"200 target 6 lines 1 body 0 held 0", "200 target 5 lines 2 body 0 held 0"}},
		"a longer line":    {longHead("/a", 20_000) + small + last, []string{"200 target 2 lines 2 body 0" + second, "200 target 6 lines 1 body 0" + second, "200 target 5 lines 2 body 0" + second}},
		"one long line":    {longHead("/a", 70_000), []string{"200 target 2 lines 2 body 0" + held}},
		"a megabyte":       {longHead("/a", exchange.MaxHeaderBytes), []string{"200 target 2 lines 2 body 0" + held}},
		"a long target":    {"GET /" + long(160_000) + " HTTP/1.1\r\nHost: h\r\n\r\n", []string{"200 target 160001 lines 1 body 0" + held}},
		"many lines":       {"GET /a HTTP/1.1\r\nHost: h\r\n" + strings.Repeat("A: b\r\n", 16_000) + "\r\n", []string{"200 target 2 lines 16001 body 0" + held}},
		"with a body":      {"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\nA: " + long(70_000) + "\r\n\r\n" + long(100_000), []string{"200 target 2 lines 3 body 100000" + held}},
		"too long":         {longHead("/a", exchange.MaxHeaderBytes+8<<10), []string{"431 "}},
		"too many lines":   {"GET /a HTTP/1.1\r\nHost: h\r\n" + strings.Repeat("A: b\r\n", exchange.MaxHeaderLines) + "\r\n", []string{"431 "}},
		"bare line feeds":  {"GET /a HTTP/1.1\nHost: h\n\n", []string{"400 "}},
		"one bare, at end": {"GET /a HTTP/1.1\r\nHost: h\n\r\n", []string{"400 "}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ask(c.send); fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if got := ledger.Totals(); got.Open != 0 {
		t.Errorf("%+v is left", got)
	}
}

// A long head for which its address has no room is refused.
func TestLargeHeadsBounded(t *testing.T) {
	for length, room := range map[int]int64{20_000: heldByHead(1), 70_000: heldByHead(1) + heldByHead(2)} {
		ask := echo(t, account.New(account.Limits{Strangers: room - 1}))
		if got := ask(longHead("/a", length)); fmt.Sprint(got) != "[431 ]" {
			t.Errorf("got %q", got)
		}
	}
}

// deadlines notes the latest deadlines of reads, before bytes have come and after that.
type deadlines struct {
	net.Conn
	begun         bool
	before, after time.Time
}

func (d *deadlines) Read(p []byte) (int, error) {
	n, err := d.Conn.Read(p)
	d.begun = d.begun || n > 0
	return n, err
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	if d.begun {
		d.after = t
	} else {
		d.before = t
	}
	return d.Conn.SetReadDeadline(t)
}

// A head has no more time because several servers read it.
func TestLargeHeadTime(t *testing.T) {
	server := newServer(t, func(*exchange.Exchange) {}, account.New(account.Limits{}), 0)
	client, served := proxytest.TCPPair(t)
	d := &deadlines{Conn: served}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.ServeConn(d, nil) }()
	send(t, client, longHead("/a", 70_000))
	if answer, err := io.ReadAll(client); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200") {
		t.Errorf("%v: %.100s", err, answer)
	}
	<-done
	if d.before.IsZero() || d.after != d.before {
		t.Errorf("the deadline is %s when bytes come, and then %s", d.before, d.after)
	}
}

// The buffers of a connection with long heads count for its client once that is known.
func TestHeadsOfKnown(t *testing.T) {
	ledger := account.New(account.Limits{})
	server := newServer(t, func(x *exchange.Exchange) {
		x.Conn.(*downstream.Conn).KnownAs(account.Source{Name: "ann"})
	}, ledger, 0)
	var serving sync.WaitGroup
	defer serving.Wait()
	begin := func(bytes string) net.Conn {
		client, served := proxytest.TCPPair(t)
		serving.Go(func() { _ = server.ServeConn(served, nil) })
		send(t, client, bytes)
		return client
	}
	held := func() int64 {
		largest := ledger.Largest(1)
		if len(largest) == 0 {
			return 0
		}
		if largest[0].Source != (account.Source{Name: "ann"}) {
			return -1
		}
		return largest[0].Held[account.Heads]
	}
	until := func(want int64) {
		t.Helper()
		steady.Until(t, "count", func() error {
			if got := held(); got != want {
				return fmt.Errorf("%d bytes are held, want %d", got, want)
			}
			return nil
		})
	}
	first := begin(longHead("/a", 20_000))
	until(heldByHead(1))
	first.Close()
	until(0)
}
