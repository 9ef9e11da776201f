package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

// A watch's parameters say where it begins (contract 3.1; W01 to W16, W24, W41). ns/a is created at
// resourceVersion 101. ns/b is created at 102, changed at 103 and deleted at 104. Once the watches
// are open, another resource is written at 105, and ns/n is created at 106.
func TestWatchStart(t *testing.T) {
	const (
		a, b, c = "ADDED ns/a 101", "ADDED ns/b 102", "DELETED ns/b 104"
		n       = "ADDED ns/n 106"
		sie     = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
		noSIE   = "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
		bm      = "&allowWatchBookmarks=true"
	)
	tests := []struct {
		query string
		want  []string
	}{
		{"", []string{a, n}},
		{bm, []string{a, "END 104", n}},
		{"&resourceVersion=0", []string{a, n}},
		{"&resourceVersion=0" + bm, []string{a, "END 104", n}},
		{"&resourceVersion=0" + bm + "&labelSelector=zz", []string{"END 104"}},
		{sie, []string{a, n}},
		{sie + bm, []string{a, "END 104", n}},
		{sie + bm + "&resourceVersion=0", []string{a, "END 104", n}},
		{sie + bm + "&resourceVersion=101", []string{a, "END 104", n}},
		{"&sendInitialEvents=&resourceVersionMatch=NotOlderThan" + bm, []string{a, "END 104", n}},
		{noSIE + bm, []string{n}},
		{noSIE + bm + "&resourceVersion=0", []string{n}},
		{noSIE + "&resourceVersion=102", []string{"MODIFIED ns/b 103", c, n}},
		{"&resourceVersion=102", []string{"MODIFIED ns/b 103", c, n}},
		{"&resourceVersion=103", []string{c, n}},
		{"&resourceVersion=104", []string{n}},
		{"&resourceVersion=105", []string{n}},
		{"&resourceVersion=106", nil},
		{"&resourceVersion=99999999" + bm, nil},
		{"&limit=1", []string{a, n}},
		{"&labelSelector=app%3Dx&resourceVersion=101", []string{b, "DELETED ns/b 103"}},
	}
	f := startFan(t, proxytest.NewServer(t))
	first := f.watch(anyState)
	first.Await(1)
	f.cms.Put("ns", "a", "1")
	f.cms.Put("ns", "b", "1", "app", "x")
	f.cms.Put("ns", "b", "2")
	f.cms.Delete("ns", "b")
	first.AwaitVersion(104)
	started := time.Now()
	var opening []<-chan *proxytest.Watcher
	for _, test := range tests {
		// Two seconds are too short for other bookmarks.
		opening = append(opening, f.later(cmsPath+"?watch=1"+test.query+"&timeoutSeconds=2"))
	}
	var watchers []*proxytest.Watcher
	for _, c := range opening {
		watchers = append(watchers, f.awaitOpen(c))
	}
	f.up.Bump(1)
	f.cms.Put("ns", "n", "1")
	for i, w := range watchers {
		if err := w.Ended(); err != nil {
			t.Errorf("%s: stream ended with %v", tests[i].query, err)
		}
		wantStrings(t, tests[i].query, w.Strings(), tests[i].want...)
	}
	if took := time.Since(started); took < 1900*time.Millisecond || took > proxytest.Patience {
		t.Errorf("the watches lasted %s, want 2 s", took)
	}
	f.passed(0)
}

// A watch with the deprecated /watch/ prefix begins with the cache's state, without a proof and
// without a bookmark at the end of the initial events.
func TestWatchLegacyPrefix(t *testing.T) {
	t.Parallel()
	f := startFan(t, proxytest.NewServer(t))
	f.cms.Put("ns", "a", "1")
	f.watch(anyState).Await(2)
	w := f.watch("/api/v1/watch/namespaces/ns/configmaps?allowWatchBookmarks=true&timeoutSeconds=1")
	if err := w.Ended(); err != nil {
		t.Errorf("stream ended with %v", err)
	}
	wantStrings(t, "watch", w.Strings(), "ADDED ns/a 101")
	f.passed(0)
	if n := f.up.Count(proxytest.List); n != 0 {
		t.Errorf("%d proofs", n)
	}
}

// "first … deadline − 2 s", "suppressed if RV ≤ the RV the watch started from" (contract 3.3; W21,
// W22, W24).
func TestWatchBookmarkBeforeTimeout(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t))
	f.cms.Put("ns", "a", "1")
	f.watch(anyState).Await(2)
	started := time.Now()
	none := f.watch(since+"&timeoutSeconds=3&labelSelector=none", 100)
	without := f.watch(cmsPath + "?watch=1&resourceVersion=101&timeoutSeconds=3")
	ahead := f.watch(since+"&timeoutSeconds=3", 1000)
	short := f.watch(since+"&timeoutSeconds=2", 101)
	quiet := f.watch(since+"&timeoutSeconds=3", 150)
	f.up.Bump(49)
	f.cms.SendBookmark(proxytest.WatchList)
	none.Await(1)
	if took := time.Since(started); took < 700*time.Millisecond {
		t.Errorf("bookmark after %s, want 1 s", took)
	}
	for what, w := range map[string]*proxytest.Watcher{"ahead": ahead, "without bookmarks": without,
		"two seconds": short, "already there": quiet} {
		if err := w.Ended(); err != nil {
			t.Errorf("%s: stream ended with %v", what, err)
		}
		wantStrings(t, what, w.Strings())
	}
	none.Ended()
	wantStrings(t, "watch that matches nothing", none.Strings(), "BOOKMARK 150")
	if want := proxytest.ConfigMaps.Bookmark(150, false); none.Events()[0].Raw != want {
		t.Errorf("got %q, want %q", none.Events()[0].Raw, want)
	}
}

// The bytes of a watch's response: its head, and an event.
func TestWatchBytes(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t))
	f.up.On(proxytest.Form, 1, func(c *proxytest.Call) {
		c.W.Header().Add("Warning", `299 - "one"`)
		c.W.Header().Add("Warning", `299 - "two"`)
		c.Serve()
	})
	f.watch(anyState).Await(1)
	c := (&front{t: t, insecure: strings.TrimPrefix(f.insecure, "http://")}).dial()
	c.send("GET %s&timeoutSeconds=1 HTTP/1.1\nHost: localhost\nAudit-ID: my-id\n\n", anyState)
	got := new(strings.Builder)
	readTo := func(suffix string) {
		t.Helper()
		for !strings.HasSuffix(got.String(), suffix) {
			if _, err := io.CopyN(got, c.r, 1); err != nil {
				t.Fatal(err, got)
			}
		}
	}
	readTo("}\n\r\n")
	f.cms.Put("ns", "a", "1")
	readTo("\r\n0\r\n\r\n")
	chunk := func(line string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(line), line) }
	cms := proxytest.ConfigMaps
	body := chunk(cms.Bookmark(100, true)) +
		chunk(`{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1",`+
			`"metadata":{"name":"a","namespace":"ns","resourceVersion":"101","uid":"u1"},"data":{"v":"1"}}}`+"\n")
	want := "HTTP/1.1 200 OK\r\nAudit-Id: my-id\r\nCache-Control: no-cache, private\r\n" +
		"Content-Type: application/json\r\nDate: DATE\r\n" +
		"Warning: 299 - \"one\"\r\nWarning: 299 - \"two\"\r\nTransfer-Encoding: chunked\r\n\r\n" + body + "0\r\n\r\n"
	if got := regexp.MustCompile(`Date: [^\r]+GMT`).ReplaceAllString(got.String(), "Date: DATE"); got != want {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

// A connection serves on after a watch: a second watch, which is sent during the first one, and
// then ordinary requests, on both ports.
func TestWatchKeepAlive(t *testing.T) {
	t.Parallel()
	for _, port := range []string{"plaintext", "TLS"} {
		t.Run(port, func(t *testing.T) {
			t.Parallel()
			f := startFan(t, proxytest.NewServer(t), both)
			f.cms.Put("ns", "a", "1")
			f.watch(anyState).Await(2) // a watch of a second does not wait long for its lane
			fr := &front{t: t, insecure: strings.TrimPrefix(f.insecure, "http://"),
				secure: strings.TrimPrefix(f.secure, "https://")}
			c, authorization := fr.dial(), ""
			if port == "TLS" {
				c, authorization = fr.dialTLS(), "Authorization: Bearer "+clientToken+"\n"
			}
			request := func(path string) string {
				return "GET " + path + " HTTP/1.1\nHost: localhost\nUser-Agent: " + proxytest.ClientAgent + "\n" +
					authorization + "\n"
			}
			c.send(request(anyState + "&timeoutSeconds=1"))
			first := c.head("GET")
			c.send(request(anyState+"&timeoutSeconds=1") + request("/version"))
			for i := range 2 {
				resp := first
				if i == 1 {
					resp = c.head("GET")
				}
				if resp.StatusCode != http.StatusOK {
					t.Fatalf("watch %d: got status %s", i, resp.Status)
				}
				if body := bodyOf(t, resp); strings.Count(body, "\n") != 2 {
					t.Errorf("watch %d: got %q", i, body)
				}
			}
			if resp, _ := c.response(); resp.StatusCode != http.StatusNotFound { // the fake has no /version
				t.Errorf("got status %s", resp.Status)
			}
			c.send(request(cmsPath + "?resourceVersion=0"))
			if resp, body := c.response(); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"a"`) {
				t.Errorf("got status %s, %q", resp.Status, body)
			}
			f.passed(1)
		})
	}
}

// A client is served from the cache only if the cluster allows it to read.
func TestWatchIsAuthorized(t *testing.T) {
	for name, open := range map[string]func(testing.TB, string, ...string) *proxytest.Watcher{
		"HTTP/1.1": proxytest.Open, "HTTP/2": proxytest.OpenHTTP2} {
		t.Run(name, func(t *testing.T) { watchIsAuthorized(t, open) })
	}
}

func watchIsAuthorized(t *testing.T, open func(testing.TB, string, ...string) *proxytest.Watcher) {
	f := startFan(t, proxytest.NewServer(t), both)
	f.up.SetAllow(func(token, review string) bool {
		return token == clientToken && strings.Contains(review, `"verb":"watch"`)
	})
	for i, token := range []string{"other", clientToken} {
		w := open(t, f.secure+anyState, "Authorization", "Bearer "+token)
		w.Await(1)
		f.passed(1)
		if got := f.up.Count(proxytest.WatchList); got != i {
			t.Errorf("%d lanes", got)
		}
	}
}

// --bookmark-interval is the time between two bookmarks of a watch. They come without news too,
// once the watch has left its beginning behind.
func TestBookmarkInterval(t *testing.T) {
	t.Parallel()
	const interval = 5 * time.Second
	f := startFan(t, proxytest.NewServer(t), func(o *proxy.Options) { o.Lane.BookmarkInterval = interval })
	began := time.Now()
	w := f.watch(anyState)
	w.Await(1)
	rv := f.cms.Put("ns", "a", "1")
	events := w.Await(4)
	bookmark := fmt.Sprintf("BOOKMARK %d", rv)
	wantStrings(t, "watch", proxytest.Strings(events), "END 100", fmt.Sprintf("ADDED ns/a %d", rv), bookmark, bookmark)
	if took := time.Since(began); took < 2*interval-time.Second {
		t.Errorf("two bookmarks within %s, want one each %s", took, interval)
	}
}
