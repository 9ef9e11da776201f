package cached_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// While an upstream that does not answer is asked for a resource, a few clients' requests pass
// through. The others get 429, with different Retry-After headers.
func TestSilentUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients = 200
		p := bubble.Start(t, proxytest.NewBubbleServer(t))
		p.Up.On(proxytest.Form, 1<<20, (*proxytest.Call).Hang)
		p.Up.On(proxytest.Client, 1<<20, (*proxytest.Call).Hang)
		var herd []*bubble.Client
		for range clients {
			herd = append(herd, p.Begin(bubble.Request{Target: bubble.CMs}))
		}
		time.Sleep(20 * time.Second)
		after, refused := make(map[string]int), 0
		for _, c := range herd {
			if c.Answered() {
				resp, body := c.Read()
				if resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(body, `"reason":"TooManyRequests"`) {
					t.Errorf("got %s %s", resp.Status, body)
				}
				after[resp.Header.Get("Retry-After")]++
				refused++
			}
		}
		if refused != clients-lane.MostThrough || len(after) < 3 || after[""] > 0 {
			t.Errorf("%d are refused, and are to come again after %v", refused, after)
		}
		p.Passed(lane.MostThrough)
	})
}

// A client that loses its right while it waits for a lane is not served from the lane.
func TestRevokedWhileWaiting(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")
		p.Up.SetDelay(func(proxytest.Kind) time.Duration { return time.Second })
		c := p.Begin(bubble.Request{Target: bubble.CMs + "?resourceVersion=0", Token: bubble.ClientToken})
		p.Up.AwaitCount(proxytest.WatchList, 1)
		p.Up.SetAllow(func(string, string) bool { return false })
		p.Up.On(proxytest.Client, 1, func(c *proxytest.Call) { c.Fail(http.StatusForbidden, "Forbidden", "no", 0) })
		if resp, _ := c.Read(); resp.StatusCode != http.StatusForbidden {
			t.Errorf("got %s", resp.Status)
		}
	}, func(o *proxy.Options) { o.Auth.AuthorizationWebhookCacheAuthorizedTTL = 0 })
}

// A watch that passes through because its lane is not filled yet ends once the lane is, behind a
// bookmark, and its client resumes at the lane. A watch whose client may not resume goes on, and so
// does one that begins with the state.
func TestRecalled(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		rv := p.CMs.Put("ns", "a", "1")
		fail := func(c *proxytest.Call) { c.Fail(http.StatusInternalServerError, "InternalError", "no", 0) }
		p.Up.On(proxytest.WatchList, 1, fail) // requests then pass through
		p.Up.On(proxytest.WatchList, 1, func(c *proxytest.Call) { time.Sleep(5 * time.Second); c.Serve() })
		resumed := p.Watch(bubble.Since, rv)
		stays := []*proxytest.Watcher{p.Watch(bubble.CMs+"?watch=1&resourceVersion=%d", rv), p.Watch(bubble.AnyState)}
		p.Passed(3)
		rv = p.CMs.Put("ns", "b", "1")
		proxytest.WantStrings(t, "watch that passes through", proxytest.Strings(resumed.Await(1)), fmt.Sprintf("ADDED ns/b %d", rv))
		for range 20 { // no recalled watch goes on for longer
			time.Sleep(time.Second)
			p.CMs.Put("ns", "b", "2")
			p.CMs.SendBookmark(proxytest.Client)
			synctest.Wait()
		}
		if resumed.Open() || resumed.Ended() != nil {
			t.Fatalf("the watch that passed through is open: %t", resumed.Open())
		}
		last := resumed.Events()[len(resumed.Events())-1]
		if last.Type != "BOOKMARK" {
			t.Errorf("the last event is %s", last)
		}
		again := p.Watch(bubble.Since, last.RV)
		rv = p.CMs.Put("ns", "c", "1")
		events := proxytest.Strings(again.AwaitVersion(rv))
		proxytest.WantStrings(t, "watch from the lane", events[len(events)-1:], fmt.Sprintf("ADDED ns/c %d", rv))
		time.Sleep(20 * time.Second)
		p.CMs.SendBookmark(proxytest.Client)
		rv = p.CMs.Put("ns", "d", "1")
		for _, w := range stays {
			w.AwaitVersion(rv)
		}
		p.Passed(3)
	})
}

// Reads that have waited in vain take turns at kube-apiserver, whatever they have waited for.
func TestTurnsInVain(t *testing.T) {
	const clients = 20
	for name, c := range map[string]struct {
		path    string
		prepare func(p *bubble.Proxy)
	}{
		"for a proof": {bubble.CMs, func(p *bubble.Proxy) {
			p.CMs.Put("ns", "a", strings.Repeat("x", 300<<10)) // too large to be listed for a proof
			p.Watch(bubble.AnyState).Await(2)
			p.Up.On(proxytest.Probe, 1<<20, (*proxytest.Call).Hang)
		}},
		"for a lane": {bubble.CMs + "?resourceVersion=0", func(p *bubble.Proxy) {
			p.Up.On(proxytest.WatchList, 1<<20, func(c *proxytest.Call) {
				time.Sleep(2 * time.Second)
				c.Fail(http.StatusForbidden, "Forbidden", "no", 0)
			})
		}},
		"for discovery": {bubble.CMs + "?resourceVersion=0", func(p *bubble.Proxy) {
			p.Up.On(proxytest.Other, 1<<20, (*proxytest.Call).Hang)
		}},
	} {
		bubble.Row(t, name, func(t *testing.T, p *bubble.Proxy) {
			c.prepare(p)
			before := p.Up.Count(proxytest.Client)
			turns := make(chan struct{}, lane.MostThrough)
			p.Up.On(proxytest.Client, 1<<20, func(c *proxytest.Call) {
				select {
				case turns <- struct{}{}:
				default:
					t.Errorf("more than %d requests are passed through at a time", lane.MostThrough)
				}
				time.Sleep(20 * time.Millisecond)
				c.Serve()
				<-turns
			})
			var herd []*bubble.Client
			for range clients {
				herd = append(herd, p.Begin(bubble.Request{Target: c.path}))
			}
			for _, c := range herd {
				if resp, _ := c.Read(); resp.StatusCode != http.StatusOK {
					t.Errorf("got %s", resp.Status)
				}
			}
			p.Passed(before + clients)
		}, bubble.Impatient, bubble.SpareLists, bubble.NoneAlone)
	}
}
