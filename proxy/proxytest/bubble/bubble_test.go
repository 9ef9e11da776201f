package bubble_test

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/bubble"
)

// A watch, a list and a request that passes through are answered as over a connection, and an idle
// lane stops, in no real time.
func TestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := bubble.Start(t, proxytest.NewBubbleServer(t), func(o *proxy.Options) { o.Lane.IdleTimeout = 10 * time.Minute })
		p.CMs.Put("ns", "a", "1")
		w := p.Watch(bubble.AnyState)
		w.Await(2)
		rv := p.CMs.Put("ns", "b", "2")
		if got := proxytest.Strings(w.AwaitVersion(rv)); !slices.Equal(got, []string{"ADDED ns/a 101", "END 101", "ADDED ns/b 102"}) {
			t.Errorf("got %q", got)
		}
		if resp, body := p.Get(bubble.CMs + "?resourceVersion=0"); resp.StatusCode != http.StatusOK || len(body) < 100 {
			t.Errorf("got %s %s", resp.Status, body)
		}
		p.Passed(0)
		if resp, _ := p.Get("/version"); resp.StatusCode != http.StatusNotFound {
			t.Errorf("got %d", resp.StatusCode)
		}
		p.Passed(1)
		w.Close()
		time.Sleep(9 * time.Minute)
		follows := func() bool { return p.Up.Open(proxytest.WatchList)+p.Up.Open(proxytest.Watch) == 1 }
		if !follows() {
			t.Error("a lane stopped early")
		}
		time.Sleep(2 * time.Minute)
		if follows() {
			t.Error("an idle lane goes on")
		}
	})
}
