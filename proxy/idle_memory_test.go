package proxy_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// An idle watch over HTTP/2 takes little memory beside its connection's, which a hundred watches
// share. The client's part of a watch takes none in this test.
func TestIdleMemory(t *testing.T) {
	const conns, streams, most = 20, 100, 512
	f := startFan(t, proxytest.NewServer(t), both, shortDrain)
	f.cms.Put("ns", "a", "1")
	clients := f.idleConnections(conns)
	before := proxytest.Heap()
	for i := 1; i < streams; i++ {
		for _, c := range clients {
			idleWatch(t, c, uint32(2*i+1))
		}
	}
	each := (proxytest.Heap() - before) / (conns * (streams - 1))
	t.Logf("%d bytes for each watch", each)
	if each > most {
		t.Errorf("%d bytes for each watch, want at most %d", each, most)
	}
}

func shortDrain(o *proxy.Options) { o.DrainDuration = time.Second }

// idleConnections opens connections with one watch each.
func (f *fan) idleConnections(n int) (clients []*proxytest.HTTP2Wire) {
	for range n {
		c, err := proxytest.DialHTTP2(f.t.Context(), strings.TrimPrefix(f.secure, "https://"), time.Minute)
		if err != nil {
			f.t.Fatal(err)
		}
		f.t.Cleanup(c.Close)
		clients = append(clients, c)
		idleWatch(f.t, c, 1)
	}
	return clients
}

// idleWatch opens a watch as a stream of c and awaits its initial event.
func idleWatch(t *testing.T, c *proxytest.HTTP2Wire, stream uint32) {
	t.Helper()
	err := c.Ask(stream, true, proxytest.RequestFields("GET", bubble.AnyState+"&allowWatchBookmarks=true",
		"user-agent", "idle/1", "authorization", "Bearer "+bubble.ClientToken)...)
	if err == nil {
		err = c.Flush()
	}
	for err == nil {
		var frame http2.Frame
		if frame, err = c.ReadFrame(); err == nil {
			if data, ok := frame.(*http2.DataFrame); ok && data.StreamID == stream && data.Length > 0 {
				return
			}
		}
	}
	t.Fatal(err)
}

// stacks returns the bytes of stacks. A collection halves a stack of which a quarter is in use.
func stacks() int64 {
	for range 5 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.StackInuse)
}
