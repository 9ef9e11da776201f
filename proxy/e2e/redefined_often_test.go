//go:build nightly

package e2e_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

var fillerIn = regexp.MustCompile(`"filler":"(\d+)"`)

// fillers returns the smallest and the largest spec.filler in some bytes.
func fillers(body string) (least, most int) {
	for i, m := range fillerIn.FindAllStringSubmatch(body, -1) {
		n, _ := strconv.Atoi(m[1])
		if i == 0 {
			least = n
		}
		least, most = min(least, n), max(most, n)
	}
	return least, most
}

// TestRedefinedOften: a client that has seen one form of a definition never sees an earlier one,
// and never objects of two forms at once, however often the definition changes.
func TestRedefinedOften(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	p := privateWatchfan(t, c)
	theirs := c.direct(t)
	ours := p.plain(t)
	createNamespaces(t, theirs, "often")
	const group, flips = "often.example.com", 6
	defineWidgets(t, theirs, group, widgetVersion{name: "v1", stored: true})
	w := newWidgets(t, theirs, group, "v1", "often")
	for i := range 20 {
		w.create(fmt.Sprintf("w%02d", i), "")
	}
	var clients sync.WaitGroup
	done := make(chan struct{})
	finish := sync.OnceFunc(func() {
		close(done)
		clients.Wait()
	})
	defer finish()
	running := func() bool { return pace(done, 5*time.Millisecond) }
	var mu sync.Mutex
	answers := make(map[bool]int) // from the cache, or not
	check := func(what string, shown *int, header http.Header, body string) {
		least, most := fillers(body)
		mu.Lock()
		defer mu.Unlock()
		answers[proxytest.FromCache(header)]++
		if least != most || least < *shown {
			t.Errorf("%s (from cache: %t) is of forms %d to %d, after %d", what, proxytest.FromCache(header), least, most, *shown)
		}
		*shown = max(*shown, most)
	}
	for _, query := range []string{"resourceVersion=0", ""} {
		clients.Go(func() {
			for shown := 0; running(); {
				resp, err := ours.try(http.MethodGet, w.uri+"?"+query, nil, "")
				switch {
				case err != nil:
					t.Errorf("list: %v", err)
				case resp.status == http.StatusOK:
					check("list "+query, &shown, resp.header, string(resp.body))
				case resp.status != http.StatusTooManyRequests: // while a storage begins
					t.Errorf("list: %d %s", resp.status, resp.body)
				}
			}
		})
	}
	for range 3 {
		clients.Go(func() {
			for shown := 0; running(); {
				r, err := ours.tryWatch(t.Context(),
					w.uri+"?watch=1&resourceVersion=0&allowWatchBookmarks=true", nil)
				if err != nil {
					t.Errorf("watch: %v", err)
					return
				}
				for r.open() && running() {
				}
				r.stop()
				if r.status != http.StatusOK {
					continue // 429, while a storage begins
				}
				var initial strings.Builder
				for _, e := range r.all() {
					if e.end {
						break
					}
					initial.WriteString(e.line)
				}
				if initial.Len() > 0 { // or the test has ended before them
					check("watch", &shown, r.header, initial.String())
				}
			}
		})
	}
	seen := func() int {
		mu.Lock()
		defer mu.Unlock()
		return answers[true]
	}
	for i := 1; i <= flips; i++ {
		reach(t, "answer from the cache", seen()+50, seen)
		redefineWidgets(t, theirs, group, widgetVersion{name: "v1", stored: true, filler: strconv.Itoa(i)})
	}
	steady.Until(t, "last form from the cache", func() error {
		resp, err := ours.try(http.MethodGet, w.uri+"?resourceVersion=0", nil, "")
		if least, _ := fillers(string(resp.body)); err == nil && (least != flips || !proxytest.FromCache(resp.header)) {
			err = fmt.Errorf("from cache: %t, %d: %.300s", proxytest.FromCache(resp.header), resp.status, resp.body)
		}
		return err
	})
	finish()
	t.Logf("%d definitions, %d answers from the cache, %d passed through", flips, answers[true], answers[false])
	if answers[true] < 100 {
		t.Errorf("%d answers from the cache are too few to show anything", answers[true])
	}
}
