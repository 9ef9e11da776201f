package reflector_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// hangTimeout is how long a watch that has brought bookmarks may bring nothing.
const hangTimeout = 150 * time.Second

// An upstream watch that hangs on a live connection is broken and resumed. Clients' streams stay
// open.
func TestSilentWatchIsBroken(t *testing.T) {
	for name, server := range map[string]func(testing.TB) *proxytest.Server{
		"http1": proxytest.NewBubbleServer, "http2": proxytest.NewBubbleTLSServer} {
		bubble.Run(t, name, func(t *testing.T) {
			p := bubble.Start(t, server(t))
			p.CMs.Put("ns", "a", "1")
			w := p.Watch(bubble.CMs + "?watch=1&resourceVersion=0")
			w.Await(1)
			p.Up.Bump(5)
			p.CMs.SendBookmark(proxytest.WatchList)
			time.Sleep(hangTimeout - time.Second)
			p.Up.WantCount(proxytest.Watch, 0)
			time.Sleep(2 * time.Second)
			p.Up.AwaitCount(proxytest.Watch, 1)
			if rv := p.Up.Requests(proxytest.Watch)[0].Query.Get("resourceVersion"); rv != "106" {
				t.Errorf("resumed from %s, want 106", rv)
			}
			p.AwaitLog("upstream has gone silent", "relist=false")
			p.CMs.Put("ns", "b", "1")
			w.Want("ADDED ns/a 101", "ADDED ns/b 107")
			// The second watch has had no bookmark, so its silence proves nothing.
			time.Sleep(hangTimeout + time.Minute)
			p.Up.WantCount(proxytest.Watch, 1)
			if !w.Open() {
				t.Error("the client's stream ended")
			}
			p.Passed(0)
		})
	}
}

// Initial events may take longer than a watch may be silent. The time of silence begins after them.
func TestInitialEventsTakeLong(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		w := p.Watch(bubble.AnyState)
		w.Await(1)
		const objects, each = 319, 500 * time.Millisecond
		for i := range objects {
			p.CMs.Put("ns", fmt.Sprint("o", i), "1")
		}
		p.CMs.SendBookmark(proxytest.WatchList)
		synctest.Wait()
		p.Up.SetDelay(func(proxytest.Kind) time.Duration { return each })
		p.Up.Reflector().Send("garbage\n")
		p.Up.AwaitCount(proxytest.WatchList, 2)
		time.Sleep((objects+1)*each + hangTimeout - 20*time.Second)
		if n := p.Up.Count(proxytest.WatchList) + p.Up.Count(proxytest.Watch); n != 2 {
			t.Error("the watch was broken early")
		}
		if !w.Open() {
			t.Error("the client's stream ended")
		}
	})
}

// A list that brings nothing for a minute is broken off and repeated.
func TestSilentListIsRepeated(t *testing.T) {
	for name, answer := range map[string]func(*proxytest.Call){
		"no head": (*proxytest.Call).Hang,
		"no end":  func(c *proxytest.Call) { c.Write(proxytest.ConfigMaps.Event("ADDED", "ns", "a", 101)); c.Hang() },
	} {
		bubble.Row(t, name, func(t *testing.T, p *bubble.Proxy) {
			p.CMs.Put("ns", "a", "1")
			p.Up.On(proxytest.WatchList, 1, answer)
			p.Begin(bubble.Request{Target: bubble.AnyState})
			time.Sleep(time.Minute - time.Second)
			p.Up.WantCount(proxytest.WatchList, 1)
			time.Sleep(2 * time.Second)
			p.Up.WantCount(proxytest.WatchList, 2)
		})
	}
}

// There may be several kube-apiservers behind one address, and only one of them hangs. So the next
// attempt uses another connection.
func TestHungUpstreamIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := bubble.Start(t, proxytest.NewBubbleTLSServer(t))
		w := p.Watch(bubble.AnyState)
		w.Await(1)
		var addresses []string
		p.Up.On(proxytest.Watch, 1, func(c *proxytest.Call) {
			addresses = append(addresses, c.R.RemoteAddr)
			c.Fail(http.StatusGatewayTimeout, "Timeout", "Too large resource version", 1)
		})
		p.Up.On(proxytest.Watch, 1, func(c *proxytest.Call) {
			addresses = append(addresses, c.R.RemoteAddr)
			c.Serve()
		})
		p.Up.Reflector().End()
		p.Up.AwaitCount(proxytest.Watch, 2)
		w.AwaitVersion(p.CMs.Put("ns", "a", "1"))
		if len(addresses) != 2 || addresses[0] == addresses[1] {
			t.Errorf("tried over the connections %s", addresses)
		}
		p.Up.WantCount(proxytest.WatchList, 1)
	})
}

// A list that replaces the cache's content takes as long as it takes. The reads that are not proved
// meanwhile do not make it begin again.
func TestReadsDoNotBreakList(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")
		w := p.Watch(bubble.AnyState)
		w.Await(2)
		p.Up.On(proxytest.WatchList, 1, func(c *proxytest.Call) {
			time.Sleep(50 * time.Second)
			c.Serve()
		})
		st := p.Up.Reflector()
		st.Hold()
		rv := p.CMs.Put("ns", "b", "1")
		st.Send("garbage\n")
		for began := time.Now(); time.Since(began) < 49*time.Second; time.Sleep(time.Second) {
			p.Get(bubble.CMs)
		}
		w.AwaitVersion(rv)
		p.Up.WantCount(proxytest.WatchList, 2)
	}, bubble.NoneAlone, bubble.Impatient)
}
