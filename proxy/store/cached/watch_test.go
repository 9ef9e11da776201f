package cached_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// A watch's parameters say where it begins (contract 3.1; W01 to W16, W24, W41). ns/a is created at
// resourceVersion 101. ns/b is created at 102, changed at 103 and deleted at 104. Once the watches
// are open, another resource is written at 105, and ns/n is created at 106.
func TestWatchStart(t *testing.T) {
	const (
		a, b, c = "ADDED ns/a 101", "ADDED ns/b 102", "DELETED ns/b 104"
		n       = "ADDED ns/n 106"
		all     = bubble.CMs + "?watch=1"
		sie     = all + "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
		noSIE   = all + "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
		bm      = "&allowWatchBookmarks=true"
	)
	tests := []struct {
		target string
		want   []string
	}{
		{all, []string{a, n}},
		{all + bm, []string{a, "END 104", n}},
		{all + "&resourceVersion=0", []string{a, n}},
		{all + "&resourceVersion=0" + bm, []string{a, "END 104", n}},
		{all + "&resourceVersion=0" + bm + "&labelSelector=zz", []string{"END 104"}},
		{sie, []string{a, n}},
		{sie + bm, []string{a, "END 104", n}},
		{sie + bm + "&resourceVersion=0", []string{a, "END 104", n}},
		{sie + bm + "&resourceVersion=101", []string{a, "END 104", n}},
		{all + "&sendInitialEvents=&resourceVersionMatch=NotOlderThan" + bm, []string{a, "END 104", n}},
		{noSIE + bm, []string{n}},
		{noSIE + bm + "&resourceVersion=0", []string{n}},
		{noSIE + "&resourceVersion=102", []string{"MODIFIED ns/b 103", c, n}},
		{all + "&resourceVersion=102", []string{"MODIFIED ns/b 103", c, n}},
		{all + "&resourceVersion=103", []string{c, n}},
		{all + "&resourceVersion=104", []string{n}},
		{all + "&resourceVersion=105", []string{n}},
		{all + "&resourceVersion=106", nil},
		{all + "&resourceVersion=99999999" + bm, nil},
		{all + "&limit=1", []string{a, n}},
		{all + "&labelSelector=app%3Dx&resourceVersion=101", []string{b, "DELETED ns/b 103"}},
		{"/api/v1/watch/namespaces/ns/configmaps?allowWatchBookmarks=true", []string{a, n}},
	}
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		first := p.Watch(bubble.AnyState)
		p.CMs.Put("ns", "a", "1")
		p.CMs.Put("ns", "b", "1", "app", "x")
		p.CMs.Put("ns", "b", "2")
		first.AwaitVersion(p.CMs.Delete("ns", "b"))
		var opening []*bubble.Client
		for _, test := range tests {
			opening = append(opening, p.Begin(bubble.Request{Target: test.target}))
		}
		var watchers []*proxytest.Watcher
		for _, c := range opening {
			watchers = append(watchers, c.Watch())
		}
		p.Up.Bump(1)
		p.CMs.Put("ns", "n", "1")
		synctest.Wait()
		for i, w := range watchers {
			proxytest.WantStrings(t, tests[i].target, w.Strings(), tests[i].want...)
		}
		p.Passed(0)
	})
}

// The first bookmark comes two seconds before the end of a watch, unless the client knows its
// resourceVersion. Others come each --bookmark-interval, news or not (contract 3.3; W21, W22, W24).
func TestWatchBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = 20 * time.Second
		p := bubble.Start(t, proxytest.NewBubbleServer(t), func(o *proxy.Options) { o.Lane.BookmarkInterval = interval })
		p.CMs.Put("ns", "a", "1")
		p.Watch(bubble.AnyState).Await(2)
		began := time.Now()
		lasting, told := p.Watch(bubble.AnyState), p.Watch(bubble.Since+"&timeoutSeconds=3&labelSelector=none", 100)
		untold := map[string]*proxytest.Watcher{
			"without bookmarks": p.Watch(bubble.CMs + "?watch=1&resourceVersion=101&timeoutSeconds=3"),
			"two seconds":       p.Watch(bubble.Since+"&timeoutSeconds=2", 101),
			"already there":     p.Watch(bubble.Since+"&timeoutSeconds=3", 150),
			"ahead":             p.Watch(bubble.Since+"&timeoutSeconds=3", 1000),
		}
		rv := p.Up.Bump(49)
		p.CMs.SendBookmark(proxytest.WatchList)
		at := func(want time.Duration, what string) {
			t.Helper()
			if got := time.Since(began); got != want {
				t.Errorf("%s after %s, want %s", what, got, want)
			}
		}
		if got, want := told.Await(1)[0].Raw, proxytest.ConfigMaps.Bookmark(rv, false); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		at(time.Second, "the first bookmark")
		for what, w := range untold {
			w.WantEnd()
			proxytest.WantStrings(t, what, w.Strings())
		}
		at(3*time.Second, "the ends")
		lasting.Await(3)
		at(interval, "a bookmark")
		lasting.Await(4)
		at(2*interval, "the next one")
		proxytest.WantStrings(t, "lasting watch", lasting.Strings(), "ADDED ns/a 101", "END 101", "BOOKMARK 150", "BOOKMARK 150")
	})
}

// A client that accepts gzip gets one gzip member with the same events as other clients.
func TestWatchGzip(t *testing.T) {
	for _, on := range []bool{true, false} {
		bubble.Row(t, fmt.Sprintf("--compress-watches=%t", on), func(t *testing.T, p *bubble.Proxy) {
			for i := range 200 {
				p.CMs.Put("ns", fmt.Sprint("n", 1000+i), strings.Repeat("data ", 160)) // more than one write's worth
			}
			plain := p.Watch(bubble.AnyState)
			plain.Await(201)
			client := p.Send(bubble.Request{Target: bubble.AnyState, Header: []string{"Accept-Encoding", "br, gzip"}})
			want := map[bool][2]string{true: {"gzip", "Accept-Encoding"}}[on]
			if h := client.Response().Header; [2]string{h.Get("Content-Encoding"), h.Get("Vary")} != want {
				t.Errorf("got %v, want %q", h, want)
			}
			zipped := client.Watch()
			for i := range 50 {
				p.CMs.Put("ns", fmt.Sprint("n", 1000+i), strings.Repeat("other ", 80))
			}
			synctest.Wait()
			proxytest.WantStrings(t, "zipped", zipped.Strings(), plain.Strings()...)
			p.Passed(0)
		}, func(o *proxy.Options) { o.Lane.CompressWatches = on })
	}
}

// A watch of Secrets is not compressed: the lengths would tell what they have in common with others' objects.
func TestSecretsAreNotCompressed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := proxytest.NewBubbleServer(t)
		secrets := up.Add(proxytest.Resource{Version: "v1", Name: "secrets", Kind: "Secret"})
		p := bubble.Start(t, up, func(o *proxy.Options) { o.Lane.CompressWatches = true })
		secrets.Put("ns", "a", "1")
		for target, want := range map[string]string{secrets.Path(): "", bubble.CMs: "gzip"} {
			c := p.Send(bubble.Request{Target: target + "?watch=1&resourceVersion=0", Token: "t", Header: []string{"Accept-Encoding", "gzip"}})
			if got := c.Response().Header.Get("Content-Encoding"); got != want {
				t.Errorf("%s: Content-Encoding is %q, want %q", target, got, want)
			}
		}
		p.Passed(0)
	})
}

// A client is served from the cache only if the cluster allows it to read. The Warnings of
// kube-apiserver about the resource reach each client.
func TestWatchIsAuthorized(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.Up.On(proxytest.Form, 1, func(c *proxytest.Call) {
			c.W.Header().Add("Warning", `299 - "one"`)
			c.W.Header().Add("Warning", `299 - "two"`)
			c.Serve()
		})
		p.Up.SetAllow(func(token, review string) bool {
			return token == bubble.ClientToken && strings.Contains(review, `"verb":"watch"`)
		})
		for i, token := range []string{"other", bubble.ClientToken} {
			c := p.Send(bubble.Request{Target: bubble.AnyState, Token: token, Header: []string{"Audit-ID", "my-id"}})
			c.Watch().Await(1)
			p.Passed(1)
			if got := p.Up.Count(proxytest.WatchList); got != i {
				t.Errorf("%d lanes", got)
			}
			if token == bubble.ClientToken {
				want := http.Header{"Audit-Id": {"my-id"}, "Cache-Control": {"no-cache, private"}, "Content-Type": {"application/json"},
					"Warning": {`299 - "one"`, `299 - "two"`}, "Age": {"0"}, "X-Kubernetes-Resource-Version": {"100"}}
				if got := c.Response().Header; fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("header %v, want %v", got, want)
				}
			}
		}
	})
}

// A watch ends gracefully when its connection is too old, behind a bookmark, and is counted.
func TestWatchEndsWithConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const age = 20 * time.Second
		p := bubble.Start(t, proxytest.NewBubbleServer(t))
		p.CMs.Put("ns", "a", "1")
		w := p.Send(bubble.Request{Target: bubble.AnyState, Age: age}).Watch()
		began := time.Now()
		if err := w.Ended(); err != nil || time.Since(began) != age {
			t.Errorf("ended with %v after %s", err, time.Since(began))
		}
		proxytest.WantStrings(t, "watch", w.Strings(), "ADDED ns/a 101", "END 101", "BOOKMARK 101")
		synctest.Wait()
		if _, page := p.Admin("/metrics"); proxytest.SumMetric(page, "watchfan_watches_ended_total", `reason="connection_age"`) != 1 {
			t.Error("it is not counted")
		}
	})
}

// Watches whose selectors together cost the writer too much pass through, and bring the same as those that are served.
func TestCostlySelectors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := bubble.Start(t, proxytest.NewBubbleServer(t))
		p.CMs.Put("ns", "a", "1")
		p.Get(bubble.CMs + "?resourceVersion=0")
		const each = 60
		var all []*proxytest.Watcher
		for i := range each {
			selector := "!l"
			for n := range 98 {
				selector += fmt.Sprintf(",!l%d-%d", i, n)
			}
			all = append(all, p.Watch("/api/v1/namespaces/ns/configmaps?watch=1&resourceVersion=0&labelSelector=%s", selector))
		}
		p.CMs.Put("ns", "b", "1")
		for _, w := range all {
			proxytest.WantStrings(t, "watch", proxytest.Strings(w.Await(2)), "ADDED ns/a 101", "ADDED ns/b 102")
		}
		_, text := p.Admin("/metrics")
		served := int(proxytest.SumMetric(text, "watchfan_watchers"))
		if costly := proxytest.SumMetric(text, "watchfan_costly_watches_total"); served < each/4 || served == each || int(costly) != each-served {
			t.Errorf("%d of %d are served, and %v cost too much", served, each, costly)
		}
		p.Passed(each - served)
	})
}
