package lane_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// startHerd has n clients come to a proxy that has just started, whose list of 100 objects takes the
// given time. Each has a token and a selector of its own. Every other one asks for the current state.
func startHerd(t *testing.T, n int, takes time.Duration) (*bubble.Proxy, []*bubble.Client) {
	p := bubble.Start(t, proxytest.NewBubbleServer(t))
	for i := range 100 {
		p.CMs.Put("ns", fmt.Sprintf("o%d", i), "1", "node", fmt.Sprintf("n%d", i))
	}
	p.Up.SetDelay(func(k proxytest.Kind) time.Duration {
		if k == proxytest.WatchList {
			return takes / 101
		}
		return 0
	})
	var all []*bubble.Client
	for i := range n {
		from := []string{bubble.AnyState, bubble.Fresh}[i%2]
		all = append(all, p.Begin(bubble.Request{Target: fmt.Sprintf("%s&labelSelector=node%%3Dn%d", from, i),
			Token: fmt.Sprintf("token-%d", i), HTTP2: i%4 < 2}))
	}
	return p, all
}

// A herd waits for one list, however long that takes. Only a few pass through, after a while. Each
// client is reviewed once.
func TestHerd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, takes = 300, 25250 * time.Millisecond
		began := time.Now()
		p, herd := startHerd(t, clients, takes)
		time.Sleep(lane.Wait + time.Second)
		p.Passed(lane.MostThrough)
		for _, c := range herd {
			c.Watch().AwaitVersion(200)
		}
		if took := time.Since(began); took > takes+time.Second {
			t.Errorf("the last is live after %s, the list has taken %s", took, takes)
		}
		p.Passed(lane.MostThrough)
		p.Up.WantCount(proxytest.WatchList, 1)
		if n := p.Up.Count(proxytest.Review); n != clients {
			t.Errorf("%d reviews, want %d", n, clients)
		}
	})
}

// Clients that give up wait no longer, and reach kube-apiserver no more.
func TestHerdGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, herd := startHerd(t, 300, 15*time.Second)
		time.Sleep(time.Second)
		for _, waiting := range []int{300, 0} {
			want := fmt.Sprintf(`watchfan_lane_waiting_requests{group="",version="v1",resource="configmaps",encoding="json"} %d`+"\n", waiting)
			if _, page := p.Admin("/metrics"); !strings.Contains(page, want) {
				t.Errorf("no %s %s", want, page)
			}
			for _, c := range herd {
				c.Leave()
			}
			time.Sleep(2 * time.Second)
		}
		time.Sleep(time.Minute)
		p.Passed(0)
	})
}

// A watch's timeout includes its wait.
func TestTimeoutIncludesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waits = 3030 * time.Millisecond
		p, _ := startHerd(t, 0, waits) // a watch of 15 s passes through after 6.75 s
		began := time.Now()
		w := p.Watch(bubble.AnyState + "&timeoutSeconds=15")
		if waited := time.Since(began); waited != waits {
			t.Errorf("waited %s", waited)
		}
		w.WantEnd()
		if took := time.Since(began); took != 15*time.Second {
			t.Errorf("ended after %s", took)
		}
		p.Passed(0)
	})
}
