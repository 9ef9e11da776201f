package proxy_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// A watch that begins while others are drained ends as they do: behind its initial events and a bookmark. The
// proxy does not wait for it.
func TestWatchInDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := bubble.Start(t, proxytest.NewBubbleServer(t), func(o *proxy.Options) { o.ShutdownTimeout = time.Minute })
		p.CMs.Put("ns", "a", "1")
		for range 50 { // one ends every 20 ms
			p.Watch(bubble.AnyState).Await(2)
		}
		began, stopped := time.Now(), make(chan struct{})
		go func() { p.Stop(); close(stopped) }()
		time.Sleep(500 * time.Millisecond)
		late := p.Watch(bubble.AnyState)
		late.WantEnd()
		if events := late.Events(); len(events) != 3 || events[2].Type != "BOOKMARK" {
			t.Errorf("got %v, want an object, the end of the initial events and a bookmark", events)
		}
		<-stopped
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the proxy took %v to stop", took)
		}
	})
}
