package http1

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// A client sends two requests and leaves before its connection is taken over. The first answer cannot be
// written. The second response ends nevertheless, and gives back what it holds.
func TestLeftBeforeTakeOver(t *testing.T) {
	ended := make(chan bool, 1)
	detached := func(x *exchange.Exchange) {
		x.Response.Detached = func(to exchange.Responder) {
			left := make(chan struct{})
			to.OnGone(func() { close(left) })
			<-left
			ended <- false
		}
	}
	for name, fill := range map[string]func(*exchange.Exchange){
		"stream": func(x *exchange.Exchange) {
			source := newEvents()
			source.ended, x.Response.Stream = ended, source
		},
		"detached": detached,
		"later":    func(x *exchange.Exchange) { x.Response.Later = detached },
	} {
		t.Run(name, func(t *testing.T) {
			eachPort(t, func(t *testing.T, secure bool) {
				began, count := make(chan struct{}), &ends{}
				dial := startServer(t, proxytest.Guard(), func(x *exchange.Exchange) {
					if x.Target == "/version" {
						x.Response.Body = exchange.BodySlices{[]byte("hello")}
						return
					}
					close(began)
					steady.UntilTrue(t, "end of the client", x.Conn.Left)
					x.Slot, x.Until = count, count
					fill(x)
				}, secure)
				c := dial()
				const rest = " HTTP/1.1\r\nHost: localhost\r\n\r\n"
				send(t, c, "GET /version"+rest+"GET /watch"+rest)
				<-began
				if tc, ok := c.(*tls.Conn); ok {
					c = tc.NetConn()
				}
				_ = c.(*net.TCPConn).SetLinger(0)
				c.Close()
				if steady.Receive(t, "end of the response", ended) {
					t.Error("the response is complete")
				}
				steady.UntilTrue(t, "slot and Until given back", func() bool { return count.slots.Load() > 0 && count.untils.Load() > 0 })
			})
		})
	}
}
