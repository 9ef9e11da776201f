package proxy_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// hundredMiB is a memory limit of 100 MiB, of which so many percent are in use.
func hundredMiB(percent *atomic.Int64) func(*proxy.Options) {
	return func(o *proxy.Options) {
		o.Admission.MemoryLimit = 100 << 20
		proxy.MemoryUsed(func() int64 { return percent.Load() << 20 })(o)
	}
}

// memoryOf is a proxy with that limit. The test sets the percentage in use.
func memoryOf(t *testing.T, change ...func(*proxy.Options)) (f *fan, percent *atomic.Int64) {
	percent = new(atomic.Int64)
	return startFan(t, proxytest.NewServer(t), append(change, hundredMiB(percent))...), percent
}

// A list is abandoned if memory becomes full while it is read. A lane that was never filled stops.
// So does a lane that lists again, and its clients' streams end properly.
func TestMemoryFullWhileFilling(t *testing.T) {
	begin := func(t *testing.T) (*bubble.Proxy, *atomic.Int64) {
		percent := new(atomic.Int64)
		p := bubble.Start(t, proxytest.NewBubbleServer(t), hundredMiB(percent))
		for i := range 4 {
			p.CMs.Put("ns", fmt.Sprint("a", i), strings.Repeat("x", 1<<20))
		}
		return p, percent
	}
	for fills, watchList := range map[proxytest.Kind]bool{proxytest.WatchList: true, proxytest.List: false} {
		bubble.Run(t, string(fills), func(t *testing.T) {
			p, percent := begin(t)
			p.Up.SetWatchList(watchList)
			p.Up.On(fills, 1, func(c *proxytest.Call) {
				percent.Store(92) // before the first look at the memory in use
				c.Serve()
			})
			p.Watch(bubble.AnyState).Await(4)
			p.Passed(1)
			p.AwaitLog("Stopped lane", "memory is full", "retryIn=1m0s")
			if len(p.Log.With("msg=Listed")) > 0 {
				t.Error("a lane was filled")
			}
		})
	}
	bubble.Run(t, "relist", func(t *testing.T) {
		p, percent := begin(t)
		w := p.Watch(bubble.AnyState)
		w.Await(5)
		p.Passed(0)
		percent.Store(92)
		p.Up.Reflector().Send("garbage\n")
		p.AwaitLog("Stopped lane", "memory is full")
		w.WantEnd()
		if got := p.Up.Count(proxytest.WatchList); got != 2 {
			t.Errorf("%d lists, want 2", got)
		}
	})
}
