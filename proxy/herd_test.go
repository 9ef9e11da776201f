package proxy_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// A watch that waits for its lane takes little memory: of the heap, and of stacks.
func TestHerdMemory(t *testing.T) {
	const clients, most = 1000, 20 << 10
	f := startFan(t, proxytest.NewServer(t))
	for i := range 100 {
		f.cms.Put("ns", fmt.Sprint("o", i), "1")
	}
	listed := make(chan struct{})
	f.up.On(proxytest.WatchList, 1, func(c *proxytest.Call) {
		<-listed
		c.Serve()
	})
	defer close(listed)
	join := func() {
		f.dial(f.insecure).send("GET %s HTTP/1.1\nHost: localhost\nUser-Agent: %s\n\n", bubble.AnyState, proxytest.ClientAgent)
	}
	join()
	f.up.AwaitCount(proxytest.WatchList, 1)
	before := proxytest.Heap() + stacks()
	for range clients {
		join()
	}
	f.until("waiting herd", func() bool { // a handful pass through
		stacks := make([]byte, 64<<20)
		return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "lane.(*filling).wait(") > clients-10
	})
	each := (proxytest.Heap() + stacks() - before) / clients
	t.Logf("%d bytes for each, both ends of the connection included", each)
	if each > most {
		t.Errorf("a watch that waits takes %d bytes, want at most %d", each, most)
	}
}
