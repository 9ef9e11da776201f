package http1

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/account"
	"github.com/watchfan/watchfan/proxy/downstream"
	"github.com/watchfan/watchfan/proxy/exchange"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

// BenchmarkServe is what a request of client-go's costs here, with a client that allocates nothing
// and with the system calls of both: a body that is copied, and a long one of shared slices.
func BenchmarkServe(b *testing.B) {
	for _, c := range []struct{ slices, size int }{{1, 1 << 10}, {1000, 1 << 10}} {
		b.Run(fmt.Sprintf("slices=%d/size=%d", c.slices, c.size), func(b *testing.B) {
			shared := make([]byte, c.size)
			body := make(exchange.BodySlices, c.slices)
			server, err := New(func(x *exchange.Exchange) {
				for i := range body {
					body[i] = shared // which is used up
				}
				x.Response.Header.Add("Audit-Id", "a9e6d0c1-5a25-4c43-a3ed-2a0d4c4b2a33")
				x.Response.Header.Add("Cache-Control", "no-cache, private")
				x.Response.Header.Add("Content-Type", "application/json")
				x.Response.Body = body
			}, account.New(account.Limits{}), downstream.NewConnections(0, account.New(account.Limits{})), nil, NewMetrics(metrics.NewSet()), proxytest.Guard())
			if err != nil {
				b.Fatal(err)
			}
			client, served := tcpPair(b)
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = server.ServeConn(served)
			}()
			head := []byte(goodHead)
			r := bufio.NewReaderSize(client, 64<<10)
			b.ReportAllocs()
			b.SetBytes(int64(c.slices * c.size))
			for b.Loop() {
				if _, err := client.Write(head); err != nil {
					b.Fatal(err)
				}
				for line := []byte(nil); string(line) != "\r\n"; {
					if line, err = r.ReadSlice('\n'); err != nil {
						b.Fatal(err)
					}
				}
				if _, err := io.CopyN(io.Discard, r, int64(c.slices*c.size)); err != nil {
					b.Fatal(err)
				}
			}
			client.Close()
			<-done
		})
	}
}

// tcpPair returns the two ends of a connection.
func tcpPair(t testing.TB) (client, served net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if client, err = net.DialTimeout("tcp", ln.Addr().String(), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if served, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); served.Close() })
	return client, served
}
