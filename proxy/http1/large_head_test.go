package http1

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/account"
	"github.com/watchfan/watchfan/proxy/downstream"
	"github.com/watchfan/watchfan/proxy/exchange"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

// echo answers with the sizes of what it gets. The connection is served until the test ends.
func echo(t *testing.T, ledger *account.Ledger) (ask func(requests string) []string) {
	server, err := New(func(x *exchange.Exchange) {
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
	}, ledger, downstream.NewConnections(0, account.New(account.Limits{})), nil, NewMetrics(metrics.NewSet()), proxytest.Guard())
	if err != nil {
		t.Fatal(err)
	}
	return func(requests string) (answers []string) {
		client, served := tcpPair(t)
		done := make(chan struct{})
		go func() { defer close(done); _ = server.ServeConn(withKept(served, nil)) }()
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

// A head may have a megabyte, as at kube-apiserver. The connection then closes, and nothing counts
// any more.
func TestLargeHeads(t *testing.T) {
	ledger := account.New(account.Limits{})
	ask := echo(t, ledger)
	long := func(n int) string { return strings.Repeat("x", n) }
	const small = "GET /small HTTP/1.1\r\nHost: h\r\n\r\n"
	last := "GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	held := fmt.Sprintf(" held %d", largeHead)
	for name, c := range map[string]struct {
		send string
		want []string
	}{
		"usual heads":      {small + last, []string{"200 target 6 lines 1 body 0 held 0", "200 target 5 lines 2 body 0 held 0"}},
		"a longer line":    {"GET /a HTTP/1.1\r\nHost: h\r\nA: " + long(20_000) + "\r\n\r\n" + small + last, []string{"200 target 2 lines 2 body 0 held 0", "200 target 6 lines 1 body 0 held 0", "200 target 5 lines 2 body 0 held 0"}},
		"one long line":    {"GET /a HTTP/1.1\r\nHost: h\r\nA: " + long(70_000) + "\r\n\r\n", []string{"200 target 2 lines 2 body 0" + held}},
		"a megabyte":       {"GET /a HTTP/1.1\r\nHost: h\r\nA: " + long(exchange.MaxHeaderBytes) + "\r\n\r\n", []string{"200 target 2 lines 2 body 0" + held}},
		"a long target":    {"GET /" + long(160_000) + " HTTP/1.1\r\nHost: h\r\n\r\n", []string{"200 target 160001 lines 1 body 0" + held}},
		"many lines":       {"GET /a HTTP/1.1\r\nHost: h\r\n" + strings.Repeat("A: b\r\n", 16_000) + "\r\n", []string{"200 target 2 lines 16001 body 0" + held}},
		"with a body":      {"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\nA: " + long(70_000) + "\r\n\r\n" + long(100_000), []string{"200 target 2 lines 3 body 100000" + held}},
		"too long":         {"GET /a HTTP/1.1\r\nHost: h\r\nA: " + long(exchange.MaxHeaderBytes+8<<10) + "\r\n\r\n", []string{"431 "}},
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
	ask := echo(t, account.New(account.Limits{Strangers: largeHead - 1}))
	if got := ask("GET /a HTTP/1.1\r\nHost: h\r\nA: " + strings.Repeat("x", 70_000) + "\r\n\r\n"); fmt.Sprint(got) != "[431 ]" {
		t.Errorf("got %q", got)
	}
}
